// Package state is what the daemon keeps: the numbers of its policies, the
// commands of its operators, and the last policy of each service as opaque
// bytes. It serves all of them from memory and never makes a caller wait for a
// disk, except the one who wants to know that a command is saved.
//
// It decides no policy and knows no wire format. In its directory it has
// hedged.db, a store of storage/bolt, and overrides.json, the second copy of the
// commands. Read this file first; generation.go and override.go hold the two
// laws, start.go what a start makes of the files it finds, writer.go the one
// goroutine that writes, encoding.go the bytes.
package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/storage"
)

// Names in the state directory.
const (
	StoreFile     = "hedged.db"
	OverridesFile = "overrides.json"
)

const (
	commandTimeout = 3 * time.Second // how long SetOverride waits for the disk
	closeTimeout   = 5 * time.Second // how long Close waits for the last writes
	firstTimeout   = 5 * time.Second // how long Open waits for the first ones
)

// State may be used by many goroutines. Open starts its writer, Close waits for
// the writer's end.
type State struct {
	dir       string
	log       *slog.Logger
	now       func() time.Time
	openStore func(path string) (storage.Store, error)
	stored    map[policy.Key][]byte // as found by Open

	requests  chan *request
	wake      chan struct{} // size 1
	closing   chan struct{}
	closeOnce sync.Once
	ended     chan struct{} // closed by the writer after lastErr was set
	lastErr   error

	writes, failures atomic.Uint64

	mu            sync.Mutex // never held over I/O
	numbers       numbering
	commands      commands
	commandsDirty bool
	policies      map[policy.Key][]byte // not yet written
	err           error
	lastSerial    uint64 // of the newest command tried

	w writer // the writer goroutine's own
}

// Stats counts what the writer did since Open.
type Stats struct {
	Writes   uint64 // records and files written and synced
	Failures uint64 // attempts that failed
}

// Epoch returns the epoch that the next generation will be in, unless storage
// makes a new one necessary before.
func (s *State) Epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers.epoch
}

// Next returns a generation above all that were handed out before, in this
// process or an earlier one on the same directory. It does not wait for storage:
// where no block of numbers can be reserved it goes on in a new epoch.
func (s *State) Next() policy.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.numbers.next(s.now())
	if s.numbers.low() {
		s.poke()
	}
	return g
}

// ObserveEpoch takes note of the epoch of a policy that a client holds. It
// returns true if that one was higher than ours, which happens after a damaged
// file and a clock that was set back: then ours is above it now, and every
// policy has to be published again with a new generation. Epochs more than a
// day ahead of the clock are ignored.
func (s *State) ObserveEpoch(epoch uint64) (raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.numbers.epoch
	if !s.numbers.observe(epoch, s.now()) {
		return false
	}
	s.log.Warn("a client holds a policy of a higher epoch; ours was raised", "reported", epoch, "old", old, "new", s.numbers.epoch)
	s.poke()
	return true
}

// SavePolicy saves blob as key's policy some time later, unless a newer one
// comes before. blob is kept and must not be changed.
func (s *State) SavePolicy(key policy.Key, blob []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[key] = blob
	s.poke()
}

// Policies returns the policies as they were stored when the state was opened.
// The map belongs to the caller.
func (s *State) Policies() map[policy.Key][]byte {
	m := make(map[policy.Key][]byte, len(s.stored))
	for k, b := range s.stored {
		m[k] = append([]byte(nil), b...)
	}
	return m
}

// SetOverride puts an operator's command in force and saves it, in the store and
// in the second copy, before it returns. It sets o.Serial, and o.SetAt if zero,
// and returns o so. configured is the smallest target, in hedges per call, that
// the configuration gives to services in o's scope.
//
//   - No error: in force, and durable.
//   - An error, and applied with its Serial: in force, not durable. o tightens (off, shadow, or a target that is no
//     larger than any in its scope) and could not be saved; saving is tried again
//     until it works.
//   - An error, and no applied: o is invalid, or loosens and could not be saved; nothing changes
//     while this process runs. After a write that failed half-way the next
//     process may find it saved all the same, unless the state could write again
//     before.
//
// It waits for the disk up to ctx's end, and at most 3 s.
func (s *State) SetOverride(ctx context.Context, o Override, configured float64) (applied Override, durable bool, err error) {
	if err := o.Validate(); err != nil {
		return Override{}, false, err
	}
	if o.SetAt.IsZero() {
		o.SetAt = s.now()
	}
	o.Doubt = false
	o.SetAt = o.SetAt.Truncate(time.Millisecond).UTC()
	if o.Over(s.now()) {
		return Override{}, false, fmt.Errorf("override.until: %v is past", o.Until)
	}
	if !o.Until.IsZero() {
		o.Until = o.Until.Truncate(time.Millisecond).UTC()
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()

	s.mu.Lock()
	s.lastSerial++
	o.Serial = s.lastSerial
	r := &request{o: o, reply: make(chan error, 1)}
	tightens := s.commands.tightens(o, configured, s.now())
	if tightens {
		s.commands, s.commandsDirty = s.commands.with(o), true
	}
	s.mu.Unlock()

	select {
	case s.requests <- r:
	case <-ctx.Done():
		err = fmt.Errorf("save override: storage does not answer: %w", ctx.Err())
	case <-s.ended:
		err = fmt.Errorf("save override: %w", storage.ErrClosed)
	}
	if err == nil {
		select {
		case err = <-r.reply:
		case <-ctx.Done():
			if r.settled.CompareAndSwap(false, true) {
				err = fmt.Errorf("save override: storage does not answer: %w", ctx.Err())
			} else {
				err = <-r.reply
			}
		}
	}
	if err != nil {
		s.poke()
		if !tightens {
			return Override{}, false, err
		}
	}
	return o, err == nil, err
}

// Overrides returns the commands that still count, oldest first. One for all
// services ends every older one; cleared ones are listed while they stand
// against an older one for all.
func (s *State) Overrides() []Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.current(s.now())
}

// Past returns the latest 200 commands, oldest first, whether they still count or
// not. The caller must not write to it.
func (s *State) Past() []Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.past
}

// NextEnd returns when the next command ends by itself; false: none does.
func (s *State) NextEnd() (next time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.commands.current(s.now()) {
		if !o.Until.IsZero() && (!ok || o.Until.Before(next)) {
			next, ok = o.Until, true
		}
	}
	return next, ok
}

// Effective returns the last command about key, its own or the one for all
// services; false if there is none, or it was to clear.
func (s *State) Effective(key policy.Key) (Override, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.effective(key, s.now())
}

// Doubtful reports that commands were lost with both of their copies, and that
// no operator has spoken about all services since. Meanwhile a command
// with Doubt stands in for them, so that Effective answers shadow for every
// service without a newer command of its own.
func (s *State) Doubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands.hasAll && s.commands.all.Doubt
}

// Err returns why the last attempt to save failed; nil once all is saved again.
func (s *State) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats returns the counts so far.
func (s *State) Stats() Stats {
	return Stats{Writes: s.writes.Load(), Failures: s.failures.Load()}
}

// Close saves what is not saved yet, waits for that up to 5 s, and releases the
// file. It returns why something could not be saved. Calling it again returns
// the same.
func (s *State) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-s.ended:
		return s.lastErr
	case <-timer.C:
		return errors.New("close state in " + s.dir + ": storage does not answer")
	}
}

// poke wakes the writer.
func (s *State) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
