package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

// Open opens the state in dir, which it creates if need be; now is the wall
// clock. It returns bolt.ErrLocked, with the file's name, if another process has
// it, and an error if the directory may not be read or written. Damage is no
// error: a damaged store is set aside under a name that is logged, and lost
// commands leave the state Doubtful. Nor is a full or failing disk: the state
// goes on from memory, and Err says why.
func Open(dir string, logger *slog.Logger, now func() time.Time) (*State, error) {
	return openWith(dir, logger, now, func(path string) (storage.Store, error) {
		return bolt.Open(path, bolt.Options{})
	})
}

func openWith(dir string, logger *slog.Logger, now func() time.Time, openStore func(path string) (storage.Store, error)) (*State, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s := &State{
		dir: dir, log: logger, now: now, openStore: openStore,
		stored:   map[policy.Key][]byte{},
		requests: make(chan *request),
		wake:     make(chan struct{}, 1),
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
		policies: map[policy.Key][]byte{},
		w:        writer{revisions: map[string]storage.Revision{}},
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	first := make(chan struct{})
	go s.run(first)
	timer := time.NewTimer(firstTimeout)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
		logger.Error("storage does not answer; going on from memory", "dir", dir)
	}
	return s, nil
}

// found is what a start finds in the directory.
type found struct {
	lost    bool // there is no store any more that could have commands
	records []storage.Record
	second  []byte // the second copy of the commands
	err     error  // why there is no second copy
}

func (s *State) load() error {
	var f found
	path := filepath.Join(s.dir, StoreFile)
	_, statErr := os.Stat(path)
	absent := errors.Is(statErr, fs.ErrNotExist)
	empty := isEmpty(path)

	var damaged bool
	var err error
	f.records, damaged, err = s.openOrSetAside(path)
	switch {
	case errors.Is(err, bolt.ErrLocked), errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		s.failed(err)
	}
	// Only now, under the store's lock, is the second copy ours to read.
	f.second, f.err = os.ReadFile(filepath.Join(s.dir, OverridesFile))
	// A command is acknowledged when both copies have it: where there is no
	// second copy, and the store is only just there, none ever was.
	newborn := errors.Is(f.err, fs.ErrNotExist) && (absent || empty)
	f.lost = (damaged || absent || err != nil) && !newborn
	s.restore(f)
	return nil
}

func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// openOrSetAside opens the store and lists it; a damaged file gives way to a new
// one.
func (s *State) openOrSetAside(path string) (records []storage.Record, damaged bool, err error) {
	records, err = s.openAndList(path)
	if !errors.Is(err, bolt.ErrCorrupt) {
		return records, false, err
	}
	aside := fmt.Sprintf("%s.damaged-%d", path, s.now().UnixMilli())
	s.log.Error("the state file is damaged; it is set aside and a new one begun", "file", path, "aside", aside, "err", err)
	if err := bolt.SetAside(path, aside, bolt.Options{}); err != nil {
		return nil, true, err
	}
	records, err = s.openAndList(path)
	return records, true, err
}

func (s *State) openAndList(path string) ([]storage.Record, error) {
	store, err := s.openStore(path)
	if err != nil {
		return nil, err
	}
	records, err := store.List(context.Background(), "")
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.w.store = store
	for _, rec := range records {
		s.w.revisions[rec.Key] = rec.Revision
	}
	return records, nil
}

// restore makes memory of what was found.
func (s *State) restore(f found) {
	s.numbers = newNumbering(s.now(), 0)
	var kept commands
	keptErr := fs.ErrNotExist
	for _, rec := range f.records {
		switch rec.Key {
		case generationRecord:
			r, err := decodeReservation(rec.Value)
			if err != nil {
				s.log.Error("the stored generation is unreadable; a new epoch begins", "err", err)
				continue
			}
			s.numbers = resume(r)
		case overridesRecord:
			kept, keptErr = decodeCommands(rec.Value)
		default:
			key, err := policyKey(rec.Key)
			if err != nil {
				s.log.Error("a stored policy has no readable name and is ignored", "record", rec.Key, "err", err)
				continue
			}
			s.stored[key] = rec.Value
		}
	}
	f.lost = f.lost || keptErr != nil && !errors.Is(keptErr, fs.ErrNotExist)
	s.restoreCommands(f, kept, keptErr)
	s.lastSerial = s.commands.serial
}

// restoreCommands takes the newer copy. A copy is a whole, never merged with the
// other one: that could bring back a command which was cleared.
func (s *State) restoreCommands(f found, kept commands, keptErr error) {
	second, secondErr := commands{}, f.err
	if secondErr == nil {
		second, secondErr = decodeCommands(f.second)
	}
	s.commandsDirty = keptErr != nil || secondErr != nil || kept.serial != second.serial
	switch {
	case keptErr == nil && (secondErr != nil || kept.serial >= second.serial):
		s.commands = kept
	case secondErr == nil:
		s.commands = second
	case f.lost:
		s.commands = commands{}.with(Override{
			HasMode: true, Mode: policy.ModeShadow, Author: "hedged", Doubt: true,
			Serial: 1, SetAt: s.now().UTC().Truncate(time.Millisecond),
			Reason: "the commands of operators were lost with a damaged state file and their second copy",
		})
	}
	if s.commandsDirty && (f.lost || secondErr != nil && !errors.Is(secondErr, fs.ErrNotExist)) {
		s.log.Error("a copy of the overrides is unreadable", "store", keptErr, "second_copy", secondErr,
			"in_force", len(s.commands.list()), "doubtful", s.commands.hasAll && s.commands.all.Doubt)
	}
}

// reopen opens a store that could not be opened before. What is in memory is
// newer than what it holds, and will be written over it.
func (s *State) reopen() error {
	if _, _, err := s.openOrSetAside(filepath.Join(s.dir, StoreFile)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commandsDirty = true
	return nil
}
