// Package bolt is a storage.Store in one bbolt file that belongs to one process.
//
// It adds to bbolt what a daemon needs that must start and go on whatever
// happened to its disk: the lock is waited for only so long, a damaged file is
// found before bbolt maps it, a fault in mapped memory is an error, and after a
// failed write nothing is written before the file was verified. It is not a
// general door to bbolt: there are no transactions for callers to nest.
//
// Read this file first: the store's life and its fence. file.go has the opening
// under lock, verify.go the reading of a file that may be damaged, record.go
// the encoding of a value, watch.go the watches.
package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/storage"
)

// Errors of Open and SetAside that callers branch on. Both come wrapped with the
// path.
var (
	// ErrLocked: another process has the file, or locking it did not answer.
	ErrLocked = errors.New("locked by another process")
	// ErrCorrupt: the file is not a whole store. It was not changed.
	ErrCorrupt = errors.New("damaged")
)

// DefaultLockTimeout is how long Open waits for the lock unless told otherwise.
const DefaultLockTimeout = time.Second

// Options of Open.
type Options struct {
	// LockTimeout is how long to wait for another process to let go of the
	// file, or for a file system to answer; 0: DefaultLockTimeout.
	LockTimeout time.Duration
}

// Store is a storage.Store; its methods may be called concurrently. Close waits
// for the calls under way.
type Store struct {
	path        string
	lockTimeout time.Duration
	done        chan struct{} // closed by Close
	watches     watches

	writing sync.Mutex // held by the one writer; guards fence, and replacing handle
	fence   error      // why the last write failed; nil: the file may be written

	reading sync.RWMutex // held for reading while handle is used, for writing to replace it
	handle  *handle      // nil after a fault or a failed reopening
	closed  bool
}

var _ storage.Store = (*Store)(nil)

var bucketName = []byte("records")

// Open opens the store at path and creates it if there is no such file, with
// mode 0600. It returns ErrLocked within o.LockTimeout, and ErrCorrupt if the
// file is empty, cut short or damaged in a page that is in use: see SetAside.
func Open(path string, o Options) (*Store, error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	h, err := openHandle(path, o.LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &Store{path: path, lockTimeout: o.LockTimeout, done: make(chan struct{}), handle: h}, nil
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (rec storage.Record, err error) {
	err = s.view(ctx, func(b *bbolt.Bucket) error {
		rec, err = readRecord(b, key)
		return err
	})
	return rec, s.wrap("get", key, err)
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string) (recs []storage.Record, err error) {
	err = s.view(ctx, func(b *bbolt.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek([]byte(prefix)); k != nil && strings.HasPrefix(string(k), prefix); k, v = c.Next() {
			rec, err := decodeRecord(string(k), v)
			if err != nil {
				return err
			}
			recs = append(recs, rec)
		}
		return nil
	})
	if err != nil {
		return nil, s.wrap("list", prefix, err)
	}
	return recs, nil
}

// Put implements storage.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev storage.Revision) (storage.Revision, error) {
	switch {
	case key == "" || len(key) > storage.MaxKeyLen:
		return 0, s.wrap("put", key, fmt.Errorf("key is %d bytes long, want 1 to %d", len(key), storage.MaxKeyLen))
	case len(value) > storage.MaxValueLen:
		return 0, s.wrap("put", key, fmt.Errorf("value is %d bytes long, want at most %d", len(value), storage.MaxValueLen))
	}
	ev, err := s.update(ctx, func(b *bbolt.Bucket) (storage.Event, error) {
		now, err := readRecord(b, key)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return storage.Event{}, err
		}
		if now.Revision != prev {
			return storage.Event{}, fmt.Errorf("revision is %d, not %d: %w", now.Revision, prev, storage.ErrConflict)
		}
		seq, err := b.NextSequence()
		if err != nil {
			return storage.Event{}, err
		}
		rec := storage.Record{Key: key, Value: value, Revision: storage.Revision(seq)}
		return storage.Event{Record: rec}, b.Put([]byte(key), encodeRecord(rec))
	})
	return ev.Record.Revision, s.wrap("put", key, err)
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, key string, prev storage.Revision) error {
	_, err := s.update(ctx, func(b *bbolt.Bucket) (storage.Event, error) {
		now, err := readRecord(b, key)
		if err != nil {
			return storage.Event{}, err
		}
		if now.Revision != prev {
			return storage.Event{}, fmt.Errorf("revision is %d, not %d: %w", now.Revision, prev, storage.ErrConflict)
		}
		seq, err := b.NextSequence()
		if err != nil {
			return storage.Event{}, err
		}
		rec := storage.Record{Key: key, Revision: storage.Revision(seq)}
		return storage.Event{Record: rec, Deleted: true}, b.Delete([]byte(key))
	})
	return s.wrap("delete", key, err)
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan storage.Event, error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if s.closed {
		return nil, s.wrap("watch", prefix, storage.ErrClosed)
	}
	return s.watches.add(ctx, s.done, prefix), nil
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.reading.Lock()
	if s.closed {
		s.reading.Unlock()
		return s.wrap("close", "", storage.ErrClosed)
	}
	s.closed = true
	h := s.handle
	s.handle = nil
	close(s.done)
	s.reading.Unlock()
	s.watches.wait()
	if h == nil {
		return nil
	}
	return s.wrap("close", "", h.close())
}

// view runs read on the bucket. It copies nothing: read must.
func (s *Store) view(ctx context.Context, read func(*bbolt.Bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, panicked, err := func() (*handle, bool, error) {
		s.reading.RLock()
		defer s.reading.RUnlock()
		if err := s.usable(); err != nil {
			return nil, false, err
		}
		panicked, err := protect(func() error {
			return s.handle.db.View(func(tx *bbolt.Tx) error { return read(tx.Bucket(bucketName)) })
		})
		return s.handle, panicked, err
	}()
	if panicked {
		s.writing.Lock()
		defer s.writing.Unlock()
		s.drop(h, err)
	}
	return err
}

// update runs write in the one writable transaction and publishes its event
// once that is on disk.
func (s *Store) update(ctx context.Context, write func(*bbolt.Bucket) (storage.Event, error)) (storage.Event, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return storage.Event{}, err
	}
	if s.closed {
		return storage.Event{}, storage.ErrClosed
	}
	if s.fence != nil {
		if err := s.lift(); err != nil {
			return storage.Event{}, fmt.Errorf("fenced since %w; verify: %w", s.fence, err)
		}
	}
	var ev storage.Event
	refused := false
	panicked, err := protect(func() error {
		return s.handle.db.Update(func(tx *bbolt.Tx) (err error) {
			ev, err = write(tx.Bucket(bucketName))
			refused = err != nil
			return err
		})
	})
	switch {
	case panicked:
		s.drop(s.handle, err)
	case err != nil && !refused:
		// bbolt's next transaction succeeds after a failed fdatasync, on top
		// of pages that the kernel may have dropped.
		s.fence = err
	case err == nil:
		s.watches.publish(ev)
		return ev, nil
	}
	return storage.Event{}, err
}

// lift ends the fence: it verifies the file as it is read now and writes every
// page in use once more, since after a failed sync the kernel counts pages as
// clean that the disk does not have; only a sync that succeeds ends the fence.
// Then bbolt opens the file afresh. Meanwhile reads go on with the old mapping.
// The caller holds writing.
func (s *Store) lift() error {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = rewrite(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.handle != nil {
		// Its last write failed; what its closing says adds nothing.
		_ = s.handle.close()
		s.handle = nil
	}
	h, err := openHandle(s.path, s.lockTimeout)
	if err != nil {
		return err
	}
	s.handle, s.fence = h, nil
	return nil
}

// drop gives up a handle in which bbolt panicked: its locks may be held for
// ever. The caller holds writing.
func (s *Store) drop(h *handle, cause error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.handle != h {
		return
	}
	h.abandon()
	s.handle, s.fence = nil, cause
}

// usable says whether there is a handle. The caller holds reading.
func (s *Store) usable() error {
	switch {
	case s.closed:
		return storage.ErrClosed
	case s.handle == nil:
		return errors.New("not open since a write or a read of it failed")
	}
	return nil
}

func (s *Store) wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q in %s: %w", op, key, s.path, err)
}

// protect runs f and makes an error of a fault in mapped memory (a bad block, a
// file that was cut short) and of bbolt's assertions.
func protect(f func() error) (panicked bool, err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			panicked, err = true, fmt.Errorf("%w: %v", ErrCorrupt, r)
		}
	}()
	return false, f()
}
