package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// openTimeout bounds everything in Open after the lock: reading the whole
	// file, and a first write. A disk that takes longer does not answer.
	openTimeout = 30 * time.Second
	lockPoll    = 10 * time.Millisecond
)

// openFile is replaced by tests of file systems that stall.
var openFile = os.OpenFile

// handle is an open bbolt file with its lock.
type handle struct {
	db   *bbolt.DB
	file *os.File // owned by db
}

func (h *handle) close() error {
	_, err := protect(h.db.Close)
	return err
}

// abandon releases the lock and leaves the mapping to the end of the process.
func (h *handle) abandon() { unlockFile(h.file) }

// openHandle locks, verifies and opens the file in a goroutine that it leaves
// behind if the file system does not answer; what that one opens later it
// closes again.
func openHandle(path string, lockTimeout time.Duration) (*handle, error) {
	type result struct {
		h   *handle
		err error
	}
	results := make(chan result)
	locked, gone := make(chan struct{}), make(chan struct{})
	go func() {
		var r result
		_, r.err = protect(func() (err error) {
			r.h, err = lockVerifyOpen(path, lockTimeout, func() { close(locked) })
			return err
		})
		select {
		case results <- r:
		case <-gone:
			if r.h != nil {
				_ = r.h.close()
			}
		}
	}()
	// A little longer than the lock loop, which knows better what happened.
	timer := time.NewTimer(lockTimeout + lockTimeout/4)
	defer timer.Stop()
	for {
		select {
		case r := <-results:
			return r.h, r.err
		case <-locked:
			locked = nil
			timer.Reset(openTimeout)
		case <-timer.C:
			close(gone)
			if locked != nil {
				return nil, fmt.Errorf("%w, or its file system does not answer: waited %v for the lock", ErrLocked, lockTimeout)
			}
			return nil, fmt.Errorf("reading did not end within %v", openTimeout)
		}
	}
}

// lockVerifyOpen hands bbolt a file that is locked and verified: bbolt maps the
// file before it looks at it, and walks it in goroutines that cannot recover.
func lockVerifyOpen(path string, lockTimeout time.Duration, onLock func()) (*handle, error) {
	h := &handle{}
	created := false
	open := func(string, int, os.FileMode) (f *os.File, err error) {
		f, created, err = openLocked(path, os.O_CREATE, lockTimeout)
		if err != nil {
			return nil, err
		}
		onLock()
		if !created {
			if err := verify(f); err != nil {
				return nil, errors.Join(err, f.Close())
			}
		}
		h.file = f
		return f, nil
	}
	opened := false
	defer func() {
		if !opened && h.file != nil {
			unlockFile(h.file)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockTimeout, // where openLocked cannot lock
		OpenFile:     open,
		NoStatistics: true,
	})
	if err != nil {
		return nil, err
	}
	h.db = db
	if err := prepare(db, created, path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	opened = true
	return h, nil
}

// prepare makes an empty bbolt file a store.
func prepare(db *bbolt.DB, created bool, path string) error {
	empty := false
	err := db.View(func(tx *bbolt.Tx) error {
		empty = tx.Bucket(bucketName) == nil
		return nil
	})
	if err == nil && empty {
		err = db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket(bucketName)
			return err
		})
	}
	if err == nil && created {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

// openLocked opens the file, creates it where flag has os.O_CREATE, and locks
// it. The path may come to name another file while the lock is waited for: then
// it starts again.
func openLocked(path string, flag int, timeout time.Duration) (f *os.File, created bool, err error) {
	for deadline := time.Now().Add(timeout); ; {
		f, err = openFile(path, os.O_RDWR, 0)
		created = flag&os.O_CREATE != 0 && errors.Is(err, fs.ErrNotExist)
		if created {
			f, err = openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return nil, false, err
		}
		if err := lockUntil(f, deadline); err != nil {
			return nil, false, errors.Join(err, f.Close())
		}
		same, err := isAt(f, path)
		if err == nil && same {
			return f, created, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, false, err
		}
	}
}

func lockUntil(f *os.File, deadline time.Time) error {
	for {
		held, err := lockFile(f)
		if held || err != nil {
			return err
		}
		if !time.Now().Before(deadline) {
			return ErrLocked
		}
		time.Sleep(lockPoll)
	}
}

// isAt reports whether path still names f.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// SetAside renames a damaged file, if it is that still and no process has it
// open, so that Open can create a new one. It returns ErrLocked otherwise, or an
// error if the file is whole.
func SetAside(path, newPath string, o Options) error {
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if err := setAside(path, newPath, o.LockTimeout); err != nil {
		return fmt.Errorf("set aside %s: %w", path, err)
	}
	return nil
}

func setAside(path, newPath string, timeout time.Duration) error {
	f, _, err := openLocked(path, 0, timeout)
	if err != nil {
		return err
	}
	switch err = verify(f); {
	case err == nil:
		err = errors.New("it is whole")
	case errors.Is(err, ErrCorrupt):
		err = os.Rename(path, newPath)
		err = errors.Join(err, syncDir(filepath.Dir(path)))
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
