package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hedged-project/hedged/policy"
)

// MaxText is the longest author or reason of an override, in bytes.
const MaxText = 1024

// Override is one command of an operator about one service or about all. It
// is whole: it replaces what was commanded before for its scope, and a field
// that it leaves out is as configured.
type Override struct {
	Key     policy.Key  // zero: every service
	Mode    policy.Mode // counts only where HasMode is true
	HasMode bool
	Target  float64   // extra load, in hedges per call; 0: as configured
	Cleared bool      // all as configured again; HasMode is false and Target 0
	Author  string    // who said so; up to MaxText bytes
	Reason  string    // and why; up to MaxText bytes
	SetAt   time.Time // wall clock, in milliseconds; for people
	Until   time.Time // wall clock, in milliseconds: it ends by itself; zero: it does not
	Serial  uint64    // order of the commands; SetOverride sets it
	Doubt   bool      // stands in for commands that were lost; SetOverride clears it
}

// All reports whether o is about every service.
func (o Override) All() bool { return o.Key == policy.Key{} }

// Over reports whether o has ended by itself.
func (o Override) Over(now time.Time) bool { return !o.Until.IsZero() && !now.Before(o.Until) }

// Validate reports the first field that is out of bounds, with value and bound.
func (o Override) Validate() error {
	if !o.All() {
		if err := o.Key.Validate(); err != nil {
			return err
		}
	}
	switch {
	case o.Mode > policy.ModeActive:
		return fmt.Errorf("override.mode: %d is unknown, want at most %d", o.Mode, policy.ModeActive)
	case !(o.Target >= 0 && o.Target <= policy.MaxRatio): // NaN too
		return fmt.Errorf("override.target: %g, want 0 to %g", o.Target, policy.MaxRatio)
	case o.Cleared && (o.HasMode || o.Target != 0):
		return errors.New("override.cleared: true with a mode or a target, want neither")
	case o.Cleared && !o.Until.IsZero():
		return fmt.Errorf("override.until: %v with cleared, want none", o.Until)
	case !o.Cleared && !o.HasMode && o.Target == 0:
		return errors.New("override: no mode, no target and not cleared, want one of them")
	case len(o.Author) > MaxText || len(o.Reason) > MaxText:
		return fmt.Errorf("override: author has %d and reason %d bytes, want at most %d", len(o.Author), len(o.Reason), MaxText)
	case !utf8.ValidString(o.Author) || !utf8.ValidString(o.Reason):
		return fmt.Errorf("override: author %q or reason %q is not valid UTF-8", o.Author, o.Reason)
	}
	return nil
}

// maxPast is how many commands are remembered for people.
const maxPast = 200

// commands are the overrides that still count. The last command wins: one for
// all services ends every older one, and a service's own stands beside it only
// if it is newer, and until it is over. A commands value is never written to again.
type commands struct {
	serial uint64 // of the newest command that was ever tried
	all    Override
	hasAll bool
	own    map[policy.Key]Override
	past   []Override // the latest commands, oldest first, whether they count or not
}

// with returns c after o. Commands may come out of order: the older one of two
// changes nothing that the newer one said.
func (c commands) with(o Override) commands {
	n := commands{serial: max(c.serial, o.Serial), all: c.all, hasAll: c.hasAll, own: maps.Clone(c.own), past: remember(c.past, o)}
	if n.own == nil {
		n.own = map[policy.Key]Override{}
	}
	switch {
	case !o.All():
		if o.Serial > n.own[o.Key].Serial && (!n.hasAll || o.Serial > n.all.Serial) {
			n.own[o.Key] = o
		}
	case !n.hasAll || o.Serial > n.all.Serial:
		n.all, n.hasAll = o, true
		maps.DeleteFunc(n.own, func(_ policy.Key, own Override) bool { return own.Serial < o.Serial })
	}
	return n
}

// remember returns past with o in its place.
func remember(past []Override, o Override) []Override {
	i, known := slices.BinarySearchFunc(past, o, bySerial)
	if known {
		return past
	}
	past = slices.Insert(slices.Clone(past), i, o)
	return past[max(0, len(past)-maxPast):]
}

func bySerial(a, b Override) int { return cmp.Compare(a.Serial, b.Serial) }

// effective returns the last command about key that is not over, if it was not to clear.
func (c commands) effective(key policy.Key, now time.Time) (Override, bool) {
	o, ok := c.own[key]
	if !ok || o.Over(now) {
		o, ok = c.all, c.hasAll && !c.all.Over(now)
	}
	return o, ok && !o.Cleared
}

// list returns all of them, oldest first, cleared ones included.
func (c commands) list() []Override {
	list := slices.Collect(maps.Values(c.own))
	if c.hasAll {
		list = append(list, c.all)
	}
	slices.SortFunc(list, bySerial)
	return list
}

// current is list without those that are over.
func (c commands) current(now time.Time) []Override {
	return slices.DeleteFunc(c.list(), func(o Override) bool { return o.Over(now) })
}

// tightens reports whether o can only lessen hedging: it turns it off (shadow
// sends nothing either), or lowers the target where nothing is turned off that
// it would turn on. configured is the smallest target configured in o's scope.
func (c commands) tightens(o Override, configured float64, now time.Time) bool {
	if o.HasMode {
		return o.Mode != policy.ModeActive
	}
	if o.Cleared || o.Target > configured {
		return false
	}
	for _, old := range c.current(now) {
		inScope := o.All() || old.All() || old.Key == o.Key
		if inScope && !old.Cleared && (old.HasMode || old.Target != 0 && old.Target < o.Target) {
			return false
		}
	}
	return true
}
