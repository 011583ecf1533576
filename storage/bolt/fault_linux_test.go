package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

// failing puts a device behind the store's open descriptor, and returns what
// puts the file back. The mapping stays. /dev/full refuses every write for lack
// of space. /dev/null takes writes and then fails the sync: the pages are gone,
// as they are on a disk whose write-back failed.
func failing(t *testing.T, s *bolt.Store, device string) (restore func()) {
	t.Helper()
	fd := s.Fd()
	saved, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := syscall.Dup3(int(dev.Fd()), fd, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(syscall.Dup3(saved, fd, syscall.O_CLOEXEC), syscall.Close(saved)); err != nil {
			t.Fatal(err)
		}
	}
}

// While writes fail, reads go on; the first write after the cause is gone
// succeeds; what was acknowledged is there, and what was refused is not.
func TestFailingWrites(t *testing.T) {
	for device, want := range map[string]error{
		"/dev/full": syscall.ENOSPC,
		"/dev/null": syscall.EINVAL, // of fdatasync
	} {
		t.Run(strings.TrimPrefix(device, "/dev/"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			s := open(t, path)
			rev, err := s.Put(t.Context(), "kept", []byte("1"), 0)
			if err != nil {
				t.Fatal(err)
			}
			restore := failing(t, s, device)
			if _, err := s.Put(t.Context(), "refused", []byte("x"), 0); !errors.Is(err, want) {
				t.Fatalf("Put: %v, want %v", err, want)
			}
			if rec, err := s.Get(t.Context(), "kept"); err != nil || string(rec.Value) != "1" {
				t.Fatalf("Get while writes fail: %q, %v", rec.Value, err)
			}
			restore()
			if rev, err = s.Put(t.Context(), "kept", []byte("2"), rev); err != nil {
				t.Fatalf("Put after the cause is gone: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path)
			if rec, err := s.Get(t.Context(), "kept"); err != nil || string(rec.Value) != "2" || rec.Revision != rev {
				t.Fatalf("after reopening: %q, %v", rec.Value, err)
			}
			if rec, err := s.Get(t.Context(), "refused"); !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("the refused write is there: %q, %v", rec.Value, err)
			}
		})
	}
}

// After a failed sync nothing is written before the file was verified: damage
// that came with it is found by the next write, and not built upon.
func TestFenceAfterFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	rev, err := s.Put(t.Context(), "k", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	restore := failing(t, s, "/dev/null")
	if _, err := s.Put(t.Context(), "k", []byte("2"), rev); err == nil {
		t.Fatal("Put succeeded although the sync failed")
	}
	restore()
	// The disk lost the older meta page, which bbolt alone does not look at.
	meta := make([]byte, os.Getpagesize())
	older := overwriteOlderMeta(t, path, whole, meta)
	if _, err := s.Put(t.Context(), "k", []byte("3"), rev); !errors.Is(err, bolt.ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Put after a failed sync on a damaged file: %v, want ErrCorrupt and the path", err)
	}
	if rec, err := s.Get(t.Context(), "k"); err != nil || string(rec.Value) != "1" {
		t.Fatalf("Get while fenced: %q, %v", rec.Value, err)
	}
	writeAt(t, path, older, whole[older:older+int64(os.Getpagesize())])
	if _, err := s.Put(t.Context(), "k", []byte("3"), rev); err != nil {
		t.Fatalf("Put once the file is whole: %v", err)
	}
}

// overwriteOlderMeta returns the offset of the page that it overwrote.
func overwriteOlderMeta(t *testing.T, path string, whole, by []byte) int64 {
	t.Helper()
	const txid = 16 + 48 // header, then magic to page count
	page := int64(os.Getpagesize())
	older := int64(0)
	if whole[txid] > whole[page+txid] { // transactions are few: one byte tells
		older = page
	}
	writeAt(t, path, older, by)
	return older
}

func writeAt(t *testing.T, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, off)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
