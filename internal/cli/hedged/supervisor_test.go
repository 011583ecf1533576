package hedged

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The environment decides whether anybody waits for word, and how often.
func TestSupervised(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		env    map[string]string
		waits  bool
		every  time.Duration
		warned bool
	}{
		"nobody":                     {},
		"nobody, though a watchdog":  {env: map[string]string{"WATCHDOG_USEC": "30000000"}},
		"no watchdog":                {env: map[string]string{"NOTIFY_SOCKET": socket}, waits: true},
		"a watchdog":                 {env: map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "30000000"}, waits: true, every: 15 * time.Second},
		"a watchdog of this process": {env: map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": "42"}, waits: true, every: time.Millisecond},
		"a watchdog of another":      {env: map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": "41"}, waits: true},
		"a watchdog of no time":      {env: map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "0"}, waits: true},
		"a socket that is gone":      {env: map[string]string{"NOTIFY_SOCKET": socket + "-gone", "WATCHDOG_USEC": "2000"}, warned: true},
	} {
		var log strings.Builder
		s := supervised(func(k string) string { return c.env[k] }, 42, slog.New(slog.NewTextHandler(&log, nil)))
		if (s.conn != nil) != c.waits || s.every != c.every || (log.Len() > 0) != c.warned {
			t.Errorf("%s: waits %v, every %v, logged %q; want %v, %v, a warning %v", name, s.conn != nil, s.every, &log, c.waits, c.every, c.warned)
		}
		s.ready("serving\nwell")
		if c.waits {
			buf := make([]byte, 100)
			n, err := l.Read(buf)
			if want := "READY=1\nSTATUS=serving; well"; err != nil || string(buf[:n]) != want {
				t.Errorf("%s: told %q, %v; want %q in one datagram", name, buf[:n], err, want)
			}
		}
		s.close()
	}
}

// told runs attend for long on a supervisor that allows a minute, and returns what
// it was told.
func told(t *testing.T, long time.Duration, alive func(context.Context) error) []string {
	t.Helper()
	var messages []string
	synctest.Test(t, func(t *testing.T) {
		ours, its := net.Pipe()
		s := &supervisor{conn: ours, every: 30 * time.Second, logger: slog.New(slog.DiscardHandler)}
		read := make(chan struct{})
		go func() {
			defer close(read)
			buf := make([]byte, 100)
			for {
				n, err := its.Read(buf)
				if errors.Is(err, io.EOF) {
					return
				}
				messages = append(messages, string(buf[:n]))
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		s.attend(ctx, alive)
		s.close()
		<-read
	})
	return messages
}

func TestSignsOfLife(t *testing.T) {
	got := told(t, 5*time.Minute+time.Second, func(context.Context) error { return nil })
	if want := strings.Repeat("WATCHDOG=1 ", 10) + "STOPPING=1"; strings.Join(got, " ") != want {
		t.Errorf("in five minutes told %q, want %q", got, want)
	}
}

// What does not answer is not alive, however well its timers run.
func TestNoSignOfLifeWithoutAnAnswer(t *testing.T) {
	asked := 0
	got := told(t, 5*time.Minute+time.Second, func(ctx context.Context) error {
		asked++
		<-ctx.Done()
		return ctx.Err()
	})
	if strings.Join(got, " ") != "STOPPING=1" || asked < 5 {
		t.Errorf("asked %d times, told %q, want only STOPPING=1", asked, got)
	}
}

// A supervisor that does not read holds nothing up.
func TestSupervisorThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, its := net.Pipe()
		defer its.Close()
		s := &supervisor{conn: ours, logger: slog.New(slog.DiscardHandler)}
		defer s.close()
		begun := time.Now()
		s.ready("serving")
		if took := time.Since(begun); took != maxTelling {
			t.Errorf("held up for %v, want %v", took, maxTelling)
		}
	})
}
