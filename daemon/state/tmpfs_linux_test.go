package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hedged-project/hedged/policy"
)

// State on a real file system of 4 MB that fills and is freed. It needs the
// right to mount, and runs only where HEDGED_INTEGRATION is 1; there it fails
// without that right.
func TestSmallFileSystem(t *testing.T) {
	if os.Getenv("HEDGED_INTEGRATION") != "1" {
		t.Log("HEDGED_INTEGRATION is not 1: the hermetic TestFullDisk stands in")
		return
	}
	w := newWorld(t)
	if err := syscall.Mount("tmpfs", w.dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount a tmpfs of 4 MB: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(w.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()

	s := w.open()
	w.set(s, about(off, cart))
	fill(t, w.path("filler"))
	blob := make([]byte, 300_000)
	s.SavePolicy(pay, blob)
	until(t, "the error shows", func() bool { return errors.Is(s.Err(), syscall.ENOSPC) })
	if got, durable, err := s.SetOverride(t.Context(), about(off, pay), 0.05); durable || got.Serial == 0 || err == nil {
		t.Fatalf("tightening: %+v, durable %v, %v; want applied, not durable", got, durable, err)
	}
	if got, _, err := s.SetOverride(t.Context(), about(on, cart), 0.05); got.Serial != 0 || err == nil {
		t.Fatalf("loosening: %+v, %v; want refused", got, err)
	}
	last := s.Next()
	w.wantMode(s, pay, "off")
	w.wantMode(s, cart, "off")
	free(t, w.path("filler"))
	until(t, "saving resumes", func() bool { return s.Err() == nil })
	w.close(s)
	s = w.open()
	if g := s.Next(); g.Compare(last) <= 0 || len(s.Policies()[pay]) != len(blob) {
		t.Fatalf("after a restart %v follows %v; the policy has %d bytes", g, last, len(s.Policies()[pay]))
	}
	w.wantMode(s, pay, "off")
	w.close(s)

	// A process is killed while the file system is full; the file opens, full
	// or not, and has what was acknowledged.
	cmd, lines := startCommander(t, w.dir)
	for range 5 {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
	}
	fill(t, w.path("filler"))
	_ = cmd.Process.Kill()
	acknowledged := lines.Text()
	for lines.Scan() {
		acknowledged = lines.Text()
	}
	_ = cmd.Wait()
	for range 2 {
		s = w.open()
		o, ok := s.Effective(pay)
		var kept, want policy.Generation
		_, err := fmt.Sscanf(o.Reason, "%d.%d", &kept.Epoch, &kept.Number)
		_, err2 := fmt.Sscan(acknowledged, &want.Epoch, &want.Number)
		if !ok || errors.Join(err, err2) != nil || kept.Compare(want) < 0 {
			t.Fatalf("the command kept is %+v, acknowledged was that of %v; %v", o, want, errors.Join(err, err2))
		}
		_ = s.Close()
		_ = os.Remove(w.path("filler"))
	}
	if aside, _ := filepath.Glob(w.path("*damaged*")); len(aside) != 0 {
		t.Fatalf("the file was damaged: %q", aside)
	}
}

// fill takes all the space that is left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func free(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
