package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// The daemon's state is on a file system of 4 MB that fills and is freed:
// hedging and pushes go on from memory, the error is seen wherever operators
// look, and saving resumes. After a kill -9 while it is full the file opens.
//
// It needs the right to mount, and runs only where HEDGED_INTEGRATION is 1; there
// it fails without that right.
func TestFullDisk(t *testing.T) {
	if os.Getenv("HEDGED_INTEGRATION") != "1" {
		t.Log("HEDGED_INTEGRATION is not 1: the hermetic tests of daemon/state stand in")
		return
	}
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount a tmpfs of 4 MB: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := startDaemon(t, dir, "--cadence", "100ms")
	d.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0)
	d.set(t, "orders", hedgedv1.Mode_MODE_ACTIVE, 0)
	f := startFleet(t, "users")
	c := f.call(t, d.ready.GRPC, "client")
	end := c.load(t, 8)
	await(t, "it hedges", func() bool { return c.hedging() && c.stats().Hedges > 0 })

	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	// Each new service is a policy to save, until there is no room for one more.
	n := 0
	await(t, "the store fails", func() bool {
		n++
		if _, err := d.admin.SetOverride(t.Context(), overrideOf(fmt.Sprintf("filler-%d", n), hedgedv1.Mode_MODE_OFF)); err != nil {
			t.Fatalf("what tightens was refused: %v", err)
		}
		r, err := d.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{})
		return err == nil && r.GetStorageError() != ""
	})
	if got := run(t, "hedgectl", "status", "--daemon", d.ready.GRPC); got.code != 0 || !strings.Contains(got.stdout, "STORAGE FAILS, going on from memory: ") {
		t.Errorf("hedgectl status: %+v", got)
	}
	if body, err := d.get("/healthz"); err != nil || !strings.Contains(body, "degraded") || !strings.Contains(body, "no space left") {
		t.Errorf("/healthz: %s, %v", body, err)
	}
	if body, err := d.get("/metrics"); err != nil || !strings.Contains(body, "hedged_storage_failing 1") {
		t.Errorf("/metrics: %v\n%s", err, body)
	}
	// What tightens applies all the same, and says what it is worth.
	got := run(t, "hedgectl", "off", "orders", "--daemon", d.ready.GRPC)
	if got.code != 0 || !strings.Contains(got.stderr, "warning: applied, not durable") {
		t.Errorf("hedgectl off: %+v", got)
	}
	if mode := d.status(t, "orders").GetPolicy().GetMode(); mode != hedgedv1.Mode_MODE_OFF {
		t.Errorf("orders is %v, want off", mode)
	}
	// What loosens could be forgotten by a restart, and is refused.
	if got := run(t, "hedgectl", "on", "orders", "--daemon", d.ready.GRPC); got.code != 1 || !strings.Contains(got.stderr, "not saved, so not applied") {
		t.Errorf("hedgectl on: %+v", got)
	}
	// Pushes and hedging go on.
	was := c.stats()
	f.slowDown(18)
	await(t, "a longer delay reaches the client", func() bool { return c.stats().Delay[getUser] > 200*time.Millisecond })
	await(t, "it goes on hedging", func() bool { return c.stats().Hedges > was.Hedges+10 })

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await(t, "saving resumes", func() bool {
		r, err := d.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{})
		return err == nil && r.GetStorageError() == ""
	})
	d.set(t, "orders", hedgedv1.Mode_MODE_OFF, 0)
	saved := d.status(t, "users").GetPolicy().GetGeneration()

	fill(t, filler)
	d.kill()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, dir)
	if aside, _ := filepath.Glob(filepath.Join(dir, "*damaged*")); len(aside) != 0 {
		t.Errorf("the file was damaged: %q", aside)
	}
	if s := d.status(t, "orders"); s.GetPolicy().GetMode() != hedgedv1.Mode_MODE_OFF {
		t.Errorf("orders is %v after the restart, want off", s.GetPolicy().GetMode())
	}
	if g := d.status(t, "users").GetPolicy().GetGeneration(); g.GetEpoch() != saved.GetEpoch() || g.GetNumber() == 0 {
		t.Errorf("users is at %v after the restart, want the epoch of %v", g, saved)
	}
	if _, err := end(); err != nil {
		t.Errorf("a call failed: %v", err)
	}
	wantWithinBudget(t, c)
}

func overrideOf(service string, mode hedgedv1.Mode) *hedgedv1.SetOverrideRequest {
	return &hedgedv1.SetOverrideRequest{
		Scope:    &hedgedv1.SetOverrideRequest_Service{Service: service},
		Override: &hedgedv1.Override{Mode: mode},
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
