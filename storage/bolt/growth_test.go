package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

// Status reads, whole listings and watches run, some of them started by what
// another one returned, while the file grows past several remaps: nothing ever
// waits for itself. Each step has a watchdog.
func TestReadsWhileGrowing(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var slowest struct {
		sync.Mutex
		time.Duration
	}
	step := func(f func() error) {
		begin := time.Now()
		watchdog := time.AfterFunc(20*time.Second, func() { panic("a step is stuck") })
		defer watchdog.Stop()
		if err := f(); err != nil && !errors.Is(err, storage.ErrNotFound) && ctx.Err() == nil {
			t.Error(err)
		}
		slowest.Lock()
		defer slowest.Unlock()
		slowest.Duration = max(slowest.Duration, time.Since(begin))
	}
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				step(func() error {
					recs, err := s.List(ctx, "k/")
					for i := 0; i < len(recs) && err == nil; i += 1 + len(recs)/3 {
						_, err = s.Get(ctx, recs[i].Key) // a read inside a read
					}
					return err
				})
			}
		})
	}
	events, err := s.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	readers.Go(func() {
		for ev := range events {
			step(func() error {
				_, err := s.Get(ctx, ev.Record.Key)
				return err
			})
		}
	})
	// From 32 KiB the map doubles: to 4 MiB that is 7 remaps.
	for i := range 32 {
		step(func() error {
			_, err := s.Put(ctx, fmt.Sprint("k/", i), make([]byte, 128<<10), 0)
			return err
		})
	}
	cancel()
	readers.Wait()
	t.Logf("slowest step: %v", slowest.Duration)
}

// What was read stays as it was through heavy writes and remaps: it is no
// mapped memory. A reader that kept such would fault or be changed here.
func TestReadBytesOutliveRemaps(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	revs := map[string]storage.Revision{}
	write := func(round, size int) {
		for i := range 20 {
			key := fmt.Sprint("k/", i)
			rev, err := s.Put(t.Context(), key, bytes.Repeat([]byte{byte(round)}, size), revs[key])
			if err != nil {
				t.Fatal(err)
			}
			revs[key] = rev
		}
	}
	write(1, 3000)
	loaded, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Get(t.Context(), "k/7")
	if err != nil {
		t.Fatal(err)
	}
	for round := 2; round < 6; round++ {
		write(round, 3000<<(round-2))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1}, 3000)
	for _, rec := range append(loaded, one) {
		if !bytes.Equal(rec.Value, want) {
			t.Fatalf("%q changed after it was read", rec.Key)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := bolt.Open(filepath.Join(b.TempDir(), "store.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(b.Context(), "k", make([]byte, 1000), 0); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := bolt.Open(filepath.Join(b.TempDir(), "store.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var rev storage.Revision
	value := make([]byte, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if rev, err = s.Put(b.Context(), "k", value, rev); err != nil {
			b.Fatal(err)
		}
	}
}
