package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

// filled returns the bytes of a store with a tree of some depth, values that
// overflow their page, and free pages.
func filled(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "store.db")
	s, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 60 {
		key, value := fmt.Sprintf("%s/%04d", strings.Repeat("k", 100), i%50), bytes.Repeat([]byte{byte(i)}, i*200)
		rec, err := s.Get(tb.Context(), key)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			tb.Fatal(err)
		}
		if _, err := s.Put(tb.Context(), key, value, rec.Revision); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// opened opens a file with these bytes and reads all of it.
func opened(t *testing.T, b []byte) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		if !errors.Is(err, bolt.ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Fatalf("Open: %v, want ErrCorrupt and the path", err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, b) {
			t.Fatal("Open changed a damaged file")
		}
		return err
	}
	recs, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatalf("the file opened, but List: %v", err)
	}
	for _, rec := range recs { // filled repeats one byte in each value
		if n := len(rec.Value); n > 0 && bytes.Count(rec.Value, rec.Value[:1]) != n {
			t.Fatalf("the file opened, but %q has another value than was written", rec.Key)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return nil
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	good := filled(t)
	if err := opened(t, good); err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 0x40
		return b
	}
	zero := func(from, to int) []byte {
		b := bytes.Clone(good)
		clear(b[from:to])
		return b
	}
	garbage := make([]byte, len(good))
	for i := range garbage {
		garbage[i] = byte(rand.Uint32())
	}
	for name, b := range map[string][]byte{
		"empty":                      nil,
		"one byte":                   {0},
		"zeros":                      make([]byte, len(good)),
		"garbage":                    garbage,
		"text":                       []byte(strings.Repeat("not a store\n", 10_000)),
		"first meta flipped":         flip(16 + 40),
		"second meta flipped":        flip(page + 16 + 40),
		"both metas zeroed":          zero(0, 2*page),
		"all but the metas zeroed":   zero(2*page, len(good)),
		"cut to the metas":           good[:2*page],
		"cut within a page":          good[:3*page+100],
		"cut in the first meta":      good[:50],
		"bbolt file of another kind": otherBolt(t),
	} {
		t.Run(name, func(t *testing.T) {
			err := opened(t, b)
			if err == nil && !strings.HasPrefix(name, "bbolt file") {
				t.Fatal("Open took it for a store")
			}
		})
	}
}

// otherBolt is a whole bbolt file that no store wrote.
func otherBolt(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A file that lost its end, at any offset, or has a flipped bit in any place,
// either opens with all that it had or is damaged: it never crashes the
// process, hangs it, or gives other values.
func TestDamageAnywhere(t *testing.T) {
	t.Parallel()
	good := filled(t)
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 30 {
		if opened(t, good[:rng.IntN(len(good))]) != nil {
			found++
		}
		b := bytes.Clone(good)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		if opened(t, b) != nil {
			found++
		}
		b = bytes.Clone(good)
		at := rng.IntN(len(b) - 600)
		for i := range 600 {
			b[at+i] = byte(rng.Uint32())
		}
		if opened(t, b) != nil {
			found++
		}
	}
	t.Logf("%d of 90 damages were in a place that matters", found)
}

// FuzzOpen lays bytes over a whole file: it opens with readable records, or is damaged.
func FuzzOpen(f *testing.F) {
	good := filled(f)
	page := uint32(os.Getpagesize())
	f.Add(uint32(0), []byte{})
	f.Add(page+16, []byte{1, 2, 3})
	f.Add(3*page, bytes.Repeat([]byte{0xFF}, 32))
	for p := uint32(2); p < 8; p++ { // headers: id, flags, count, overflow
		f.Add(p*page+8, []byte{1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F})
		f.Add(p*page+16, bytes.Repeat([]byte{0xFE}, 16))
	}
	f.Fuzz(func(t *testing.T, at uint32, over []byte) {
		b := bytes.Clone(good)
		copy(b[int(at)%len(b):], over)
		_ = opened(t, b)
	})
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	path, aside := filepath.Join(dir, "store.db"), filepath.Join(dir, "aside")
	s := open(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := bolt.SetAside(path, aside, bolt.Options{}); err == nil {
		t.Fatal("SetAside took away a whole file")
	}
	if err := os.WriteFile(path, []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bolt.SetAside(path, aside, bolt.Options{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(aside); string(b) != "damage" {
		t.Fatalf("set aside: %q, %v", b, err)
	}
	open(t, path)
}

func TestFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode is %v, want 0600; %v", info.Mode(), err)
	}
}

// The file is cut short while it is open, as a bad block would do it: reading
// mapped memory faults. That is an error, and the process and Close go on.
func TestFaultInMappedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if _, err := s.Put(t.Context(), "k", make([]byte, 100_000), 0); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, bolt.ErrCorrupt) {
		t.Fatalf("Get: %v, want ErrCorrupt", err)
	}
	if _, err := s.Put(t.Context(), "other", nil, 0); !errors.Is(err, bolt.ErrCorrupt) {
		t.Fatalf("Put: %v, want ErrCorrupt", err)
	}
	// The block can be read again: the next write verifies and goes on.
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "other", nil, 0); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Get(t.Context(), "k"); err != nil || len(rec.Value) != 100_000 {
		t.Fatalf("Get after recovery: %d bytes, %v", len(rec.Value), err)
	}
}
