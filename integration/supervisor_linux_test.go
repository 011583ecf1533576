package integration_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A daemon under systemd says when it is ready, alive, reading its settings again
// and stopping.
func TestSupervisor(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "notify"), filepath.Join(dir, "hedged.yaml")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	// heard waits for a message that begins so, past signs of life.
	heard := func(begins string) string {
		t.Helper()
		buf := make([]byte, 1000)
		for {
			n, err := l.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v", begins, err)
			}
			got := string(buf[:n])
			if strings.HasPrefix(got, begins) {
				return got
			}
			if got != "WATCHDOG=1" {
				t.Fatalf("told %q, want %s", got, begins)
			}
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // never seen half written
			t.Fatal(err)
		}
	}
	write("services: {checkout: }\n")
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "200000")
	p := startDaemon(t, dir, "--config", file)
	if got, want := heard("READY=1"), "READY=1\nSTATUS=serving"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	heard("WATCHDOG=1")

	write("services: {checkout: {target: 40}}\n")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	uptime, err := os.ReadFile("/proc/uptime") // never behind the monotonic clock, which stands still in suspend
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	_, us, _ := strings.Cut(heard("RELOADING=1\nMONOTONIC_USEC="), "USEC=")
	if at, err := strconv.ParseFloat(us, 64); err != nil || at <= 0 || at > (most+patience.Seconds())*1e6 {
		t.Errorf("reloading at %s us, up for %v s", us, most)
	}
	if got, want := heard("READY=1"), "READY=1\nSTATUS=configuration refused: "+file+":1: target: 40, want 0.001 to 0.5"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// The change of the file may be found for a second time.
	for {
		buf := make([]byte, 1000)
		n, err := l.Read(buf)
		if err != nil {
			t.Fatalf("waiting for STOPPING=1: %v", err)
		}
		if string(buf[:n]) == "STOPPING=1" {
			break
		}
	}
	<-p.exited
	if p.err != nil {
		t.Errorf("it ended with %v", p.err)
	}
}
