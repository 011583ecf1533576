package state

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/storage"
)

// retryEvery is how long after a failure saving is tried again.
const retryEvery = time.Second

// Records of the store, beside one for each policy.
const (
	generationRecord = "generation"
	overridesRecord  = "overrides"
)

// request is a command on its way to disk. Whoever settles it first decides: the
// writer that it was saved, or the caller that it took too long.
type request struct {
	o       Override
	settled atomic.Bool
	reply   chan error // size 1
}

// writer belongs to the writer goroutine, and to Open before that runs.
type writer struct {
	store     storage.Store // nil while it cannot be opened
	revisions map[string]storage.Revision
	failing   bool
}

// run is the writer goroutine: the only one that writes, in order of what
// matters: numbers, commands, policies. first is closed after one pass.
func (s *State) run(first chan<- struct{}) {
	defer close(s.ended)
	retry := time.NewTimer(retryEvery)
	defer retry.Stop()
	s.save()
	close(first)
	for {
		if s.w.failing {
			retry.Reset(retryEvery)
		} else {
			retry.Stop()
		}
		wake := s.wake
		if s.w.failing {
			wake = nil // a new policy is no reason to try a failing disk sooner
		}
		select {
		case r := <-s.requests:
			s.command(r)
			s.save()
		case <-wake:
			s.save()
		case <-retry.C:
			s.save()
		case <-s.closing:
			s.save()
			s.lastErr = s.Err()
			if s.w.store != nil {
				s.lastErr = errors.Join(s.lastErr, s.w.store.Close())
			}
			return
		}
	}
}

// save writes all that is due, and stops at the first failure; Err has it.
func (s *State) save() {
	for {
		select {
		case r := <-s.requests:
			s.command(r)
		default:
		}
		due, err := s.saveOne()
		if err != nil {
			s.failed(err)
			return
		}
		if !due {
			s.succeeded()
			return
		}
	}
}

// saveOne writes the most urgent thing that is due.
func (s *State) saveOne() (due bool, err error) {
	if r, due := s.dueReservation(); due {
		return true, s.saveReservation(r)
	}
	if c, due := s.dueCommands(); due {
		err := s.saveCommands(c)
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.commandsDirty = true
		}
		return true, err
	}
	if key, blob, due := s.duePolicy(); due {
		return true, s.savePolicy(key, blob)
	}
	return false, nil
}

func (s *State) dueReservation() (r reservation, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.numbers.low() {
		return reservation{}, false
	}
	return s.numbers.reserve(), true
}

func (s *State) dueCommands() (c commands, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, due = s.commands, s.commandsDirty
	c.serial, s.commandsDirty = s.lastSerial, false
	return c, due
}

// duePolicy takes any policy that waits.
func (s *State) duePolicy() (key policy.Key, blob []byte, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, blob = range s.policies {
		delete(s.policies, key)
		due = true
		break
	}
	return key, blob, due
}

func (s *State) saveReservation(r reservation) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	if err := s.put(generationRecord, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers.reserved(r)
	return nil
}

func (s *State) savePolicy(key policy.Key, blob []byte) error {
	err := s.put(policyRecord(key), blob)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, newer := s.policies[key]; !newer {
			s.policies[key] = blob
		}
	}
	return err
}

// saveCommands writes both copies.
func (s *State) saveCommands(c commands) error {
	b, err := c.encode()
	if err != nil {
		return err
	}
	if err := s.put(overridesRecord, b); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(s.dir, OverridesFile), b); err != nil {
		return fmt.Errorf("write the second copy of the overrides: %w", err)
	}
	s.writes.Add(1)
	return nil
}

// command saves one command together with all before it, and puts it in force
// if it was not yet.
func (s *State) command(r *request) {
	s.mu.Lock()
	c := s.commands.with(r.o)
	c.serial = s.lastSerial
	s.mu.Unlock()
	if r.settled.Load() {
		return
	}
	err := s.saveCommands(c)
	s.mu.Lock()
	if !r.settled.CompareAndSwap(false, true) {
		err = context.DeadlineExceeded // the caller was told so
	}
	if err == nil {
		s.commands = s.commands.with(r.o)
	} else {
		// Either copy may hold what is not in force now: what is in force is
		// written over it, with a higher serial.
		s.lastSerial++
		s.commandsDirty = true
	}
	s.mu.Unlock()
	if err != nil {
		s.failed(err)
	}
	r.reply <- err
}

// put writes a record, whatever its revision: this process is the only writer.
// A conflict means that a write which failed is on disk after all.
func (s *State) put(record string, value []byte) error {
	if s.w.store == nil {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	ctx := context.Background()
	rev, err := s.w.store.Put(ctx, record, value, s.w.revisions[record])
	if errors.Is(err, storage.ErrConflict) {
		var now storage.Record
		if now, err = s.w.store.Get(ctx, record); err == nil || errors.Is(err, storage.ErrNotFound) {
			rev, err = s.w.store.Put(ctx, record, value, now.Revision)
		}
	}
	if err != nil {
		return err
	}
	s.w.revisions[record] = rev
	s.writes.Add(1)
	return nil
}

// failed takes note of a failure; the first of a row is logged.
func (s *State) failed(err error) {
	s.failures.Add(1)
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	if !s.w.failing {
		s.log.Error("saving failed; going on from memory", "err", err, "retry", retryEvery)
	}
	s.w.failing = true
}

func (s *State) succeeded() {
	if !s.w.failing {
		return
	}
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
	s.w.failing = false
	s.log.Info("saving works again")
}
