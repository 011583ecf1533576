// Package storagetest is the suite that every implementation of storage.Store
// has to pass. It tests the contract, not a medium: what happens on a full disk
// or in a damaged file is tested beside the implementation.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hedged-project/hedged/storage"
)

// stall is how long anything may take before the suite calls it stuck.
const stall = 20 * time.Second

// Run runs the suite. Open opens the store kept at place, a directory of the
// test's own, and is called again for the same place after Close.
func Run(t *testing.T, open func(t *testing.T, place string) storage.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s storage.Store)
	}{
		{"values come back", valuesComeBack},
		{"compare and swap", compareAndSwap},
		{"one of many writers wins", oneWriterWins},
		{"a deleted key never meets an old revision", deletedKey},
		{"list is ordered and by prefix", listPrefix},
		{"bytes belong to the caller", ownedBytes},
		{"keys and values have bounds", bounds},
		{"an ended context stops a call before it starts", endedContext},
		{"a watch sees what follows it", watchFollows},
		{"a slow watch gets the newest and blocks nobody", watchCoalesces},
		{"a watch ends with its context", watchEnds},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir())
			c.test(t, s)
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	t.Run("records and revisions survive closing", func(t *testing.T) { reopened(t, open) })
	t.Run("a closed store says so", func(t *testing.T) { closedStore(t, open(t, t.TempDir())) })
}

func put(t *testing.T, s storage.Store, key, value string, prev storage.Revision) storage.Revision {
	t.Helper()
	rev, err := s.Put(t.Context(), key, []byte(value), prev)
	if err != nil {
		t.Fatalf("Put(%q, prev %d): %v", key, prev, err)
	}
	return rev
}

func want(t *testing.T, s storage.Store, key, value string, rev storage.Revision) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if err != nil || got.Key != key || string(got.Value) != value || got.Revision != rev {
		t.Fatalf("Get(%q) = %+v, %v; want value %q at revision %d", key, got, err, value, rev)
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: error is %v, want %v", what, got, want)
	}
}

func valuesComeBack(t *testing.T, s storage.Store) {
	_, err := s.Get(t.Context(), "absent")
	wantError(t, "Get of an absent key", err, storage.ErrNotFound)
	for key, value := range map[string]string{"a": "1", "empty": "", "with/slash and space": "x", "\x00\xff": "\x00"} {
		want(t, s, key, value, put(t, s, key, value, 0))
	}
}

func compareAndSwap(t *testing.T, s storage.Store) {
	ctx := t.Context()
	first := put(t, s, "k", "1", 0)
	_, err := s.Put(ctx, "k", []byte("x"), 0)
	wantError(t, "Put as if absent", err, storage.ErrConflict)
	second := put(t, s, "k", "2", first)
	if second <= first {
		t.Fatalf("revision went from %d to %d, want growth", first, second)
	}
	_, err = s.Put(ctx, "k", []byte("x"), first)
	wantError(t, "Put on an old revision", err, storage.ErrConflict)
	_, err = s.Put(ctx, "never", []byte("x"), second)
	wantError(t, "Put of an absent key as if present", err, storage.ErrConflict)
	wantError(t, "Delete of an old revision", s.Delete(ctx, "k", first), storage.ErrConflict)
	wantError(t, "Delete of an absent key", s.Delete(ctx, "never", first), storage.ErrNotFound)
	want(t, s, "k", "2", second)
	if err := s.Delete(ctx, "k", second); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(ctx, "k")
	wantError(t, "Get of a deleted key", err, storage.ErrNotFound)
}

// oneWriterWins counts up from many goroutines: each success is one more.
func oneWriterWins(t *testing.T, s storage.Store) {
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				rec, err := s.Get(t.Context(), "n")
				if err != nil && !errors.Is(err, storage.ErrNotFound) {
					t.Error(err)
					return
				}
				_, err = s.Put(t.Context(), "n", append(rec.Value, 'x'), rec.Revision)
				if err == nil {
					done++
				} else if !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	rec, err := s.Get(t.Context(), "n")
	if err != nil || len(rec.Value) != writers*each {
		t.Fatalf("%d increments are left, want %d; %v", len(rec.Value), writers*each, err)
	}
}

func deletedKey(t *testing.T, s storage.Store) {
	old := put(t, s, "k", "1", 0)
	if err := s.Delete(t.Context(), "k", old); err != nil {
		t.Fatal(err)
	}
	if rev := put(t, s, "k", "2", 0); rev <= old {
		t.Fatalf("the new key has revision %d, the deleted one had %d", rev, old)
	}
	_, err := s.Put(t.Context(), "k", []byte("x"), old)
	wantError(t, "Put on the deleted key's revision", err, storage.ErrConflict)
}

func listPrefix(t *testing.T, s storage.Store) {
	for _, key := range []string{"b/2", "a", "b/1", "b", "c", "b/10"} {
		put(t, s, key, "v"+key, 0)
	}
	for prefix, want := range map[string][]string{
		"":     {"a", "b", "b/1", "b/10", "b/2", "c"},
		"b/":   {"b/1", "b/10", "b/2"},
		"none": nil,
	} {
		recs, err := s.List(t.Context(), prefix)
		var keys []string
		for _, r := range recs {
			keys = append(keys, r.Key)
			if string(r.Value) != "v"+r.Key {
				t.Errorf("List(%q): value of %q is %q", prefix, r.Key, r.Value)
			}
		}
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("List(%q) = %q, %v; want %q", prefix, keys, err, want)
		}
	}
}

func ownedBytes(t *testing.T, s storage.Store) {
	in := []byte("value")
	rev, err := s.Put(t.Context(), "k", in, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(in, "XXXXX")
	got, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	copy(got.Value, "YYYYY")
	list, err := s.List(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	copy(list[0].Value, "ZZZZZ")
	want(t, s, "k", "value", rev)
}

func bounds(t *testing.T, s storage.Store) {
	for what, key := range map[string]string{"an empty key": "", "a long key": string(make([]byte, storage.MaxKeyLen+1))} {
		if _, err := s.Put(t.Context(), key, nil, 0); err == nil {
			t.Errorf("Put took %s", what)
		}
	}
	if _, err := s.Put(t.Context(), "k", make([]byte, storage.MaxValueLen+1), 0); err == nil {
		t.Error("Put took a value over the limit")
	}
	put(t, s, string(make([]byte, storage.MaxKeyLen)), "v", 0)
}

func endedContext(t *testing.T, s storage.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, "k", nil, 0)
	wantError(t, "Put", err, context.Canceled)
	_, err = s.Get(ctx, "k")
	wantError(t, "Get", err, context.Canceled)
	_, err = s.Get(t.Context(), "k")
	wantError(t, "Get after the cancelled Put", err, storage.ErrNotFound)
}

func next(t *testing.T, events <-chan storage.Event) storage.Event {
	t.Helper()
	select {
	case ev, ok := <-events:
		if !ok {
			t.Fatal("the watch ended")
		}
		return ev
	case <-time.After(stall):
		t.Fatal("no event came")
	}
	return storage.Event{}
}

func watchFollows(t *testing.T, s storage.Store) {
	put(t, s, "w/before", "1", 0)
	events, err := s.Watch(t.Context(), "w/")
	if err != nil {
		t.Fatal(err)
	}
	rev := put(t, s, "w/k", "1", 0)
	put(t, s, "other", "1", 0)
	if ev := next(t, events); ev.Deleted || ev.Record.Key != "w/k" || string(ev.Record.Value) != "1" || ev.Record.Revision != rev {
		t.Fatalf("event is %+v, want w/k = 1 at revision %d", ev, rev)
	}
	if err := s.Delete(t.Context(), "w/k", rev); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, events); !ev.Deleted || ev.Record.Key != "w/k" || ev.Record.Revision <= rev {
		t.Fatalf("event is %+v, want the deletion of w/k after revision %d", ev, rev)
	}
}

func watchCoalesces(t *testing.T, s storage.Store) {
	events, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	const writes = 40
	var a, b storage.Revision
	for i := range writes {
		a = put(t, s, "a", fmt.Sprint(i), a)
		b = put(t, s, "b", fmt.Sprint(i), b)
	}
	newest := map[string]storage.Revision{}
	for taken := 0; newest["a"] != a || newest["b"] != b; taken++ {
		if taken > 4 {
			t.Fatalf("%d events after %d writes of two keys, want the newest of each (and one that was on offer)", taken, 2*writes)
		}
		ev := next(t, events)
		newest[ev.Record.Key] = ev.Record.Revision
	}
}

func watchEnds(t *testing.T, s storage.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	events, err := s.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	ended(t, events)
	put(t, s, "k", "1", 0)
}

func ended(t *testing.T, events <-chan storage.Event) {
	t.Helper()
	timeout := time.After(stall)
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-timeout:
			t.Fatal("the watch did not end")
		}
	}
}

func reopened(t *testing.T, open func(t *testing.T, place string) storage.Store) {
	place := t.TempDir()
	s := open(t, place)
	a := put(t, s, "a", "1", 0)
	gone := put(t, s, "gone", "1", 0)
	if err := s.Delete(t.Context(), "gone", gone); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, place)
	want(t, s, "a", "1", a)
	if rev := put(t, s, "gone", "2", 0); rev <= gone {
		t.Errorf("revision %d after reopening, there was %d before", rev, gone)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func closedStore(t *testing.T, s storage.Store) {
	events, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ended(t, events)
	ctx := t.Context()
	_, err = s.Get(ctx, "k")
	wantError(t, "Get", err, storage.ErrClosed)
	_, err = s.List(ctx, "")
	wantError(t, "List", err, storage.ErrClosed)
	_, err = s.Put(ctx, "k", nil, 0)
	wantError(t, "Put", err, storage.ErrClosed)
	wantError(t, "Delete", s.Delete(ctx, "k", 0), storage.ErrClosed)
	_, err = s.Watch(ctx, "")
	wantError(t, "Watch", err, storage.ErrClosed)
	wantError(t, "Close", s.Close(), storage.ErrClosed)
}
