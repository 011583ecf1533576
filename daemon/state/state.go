// Package state is what the daemon keeps.
package state

import (
	"context"
	"log/slog"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Override is one command of an operator about one service, or about all.
type Override struct {
	Key     policy.Key  // zero: every service
	Mode    policy.Mode // counts only where HasMode is true
	HasMode bool
	Target  float64   // extra load, as a ratio of calls; 0: as configured
	Cleared bool      // as configured again; Mode and Target are zero
	Author  string    // who said so
	Reason  string    // and why
	SetAt   time.Time // wall clock; milliseconds are kept
	Serial  uint64    // order of commands; set by SetOverride
}

// Stats counts.
type Stats struct{ Writes, Failures uint64 }

// State is what the daemon keeps.
type State struct{}

// Open opens the state in dir. It returns bolt.ErrLocked if another process has it.
func Open(dir string, logger *slog.Logger, now func() time.Time) (*State, error) { panic("soon") }

// Close flushes, with a bound, and releases the file.
func (s *State) Close() error { panic("soon") }

// Epoch returns the epoch in force.
func (s *State) Epoch() uint64 { panic("soon") }

// Next returns the next generation. It never waits for storage.
func (s *State) Next() policy.Generation { panic("soon") }

// ObserveEpoch takes note of an epoch that a client reported; true: ours was raised, republish all.
func (s *State) ObserveEpoch(epoch uint64) (raised bool) { panic("soon") }

// SavePolicy saves blob behind, newest only.
func (s *State) SavePolicy(key policy.Key, blob []byte) { panic("soon") }

// Policies returns what was stored when the state was opened.
func (s *State) Policies() map[policy.Key][]byte { panic("soon") }

// SetOverride saves o. See the final doc. configured is the smallest target that the
// configuration gives the services in o's scope; it tells whether o tightens.
// The stored override, with its Serial, is returned; durable false with nil override error means: in force but not saved (err says why).
func (s *State) SetOverride(ctx context.Context, o Override, configured float64) (applied Override, durable bool, err error) {
	panic("soon")
}

// Overrides returns all commands in force or cleared, in order of Serial.
func (s *State) Overrides() []Override { panic("soon") }

// Effective returns the last command about key: its own or the one for all.
func (s *State) Effective(key policy.Key) (Override, bool) { panic("soon") }

// Doubtful reports whether overrides were lost, so that every service is in SHADOW until an operator says otherwise (Effective answers shadow meanwhile).
func (s *State) Doubtful() bool { panic("soon") }

// Err returns the last storage error; nil once saving works again.
func (s *State) Err() error { panic("soon") }

// Stats returns counters.
func (s *State) Stats() Stats { panic("soon") }
