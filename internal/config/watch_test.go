package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A change of content is noticed, whatever the times of the file say; a file
// that is away for a moment is no change.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		changes := 0
		done := make(chan struct{})
		go func() { Watch(ctx, path, func() { changes++ }); close(done) }()
		after := func(what string, want int) {
			t.Helper()
			time.Sleep(2 * lookEvery)
			synctest.Wait()
			if changes != want {
				t.Errorf("%s: %d changes, want %d", what, changes, want)
			}
		}
		after("nothing happened", 0)
		write("two")
		after("written", 1)
		write("two")
		after("written again as it was", 1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		after("removed", 1)
		write("two")
		after("back", 1)
		write("one")
		after("changed back", 2)
		stop()
		<-done
	})
}
