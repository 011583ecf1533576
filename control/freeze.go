package control

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/report"
)

const (
	// frozenShare of calls pending at the delay is a freeze: nothing that a second
	// copy could outrun. Three times all latencies, lognormal with sigma .5, make
	// it 61%, which is for the delay to follow. Below thawedShare it is over.
	frozenShare = 0.8
	thawedShare = 0.5

	// The share is that of the newest reports: of at least freezeTime and of at
	// least freezeCalls, which may take freezeLongest to come together. Reports of
	// many clients are not of the same moment, so they are told apart by slots of
	// their arrival.
	freezeSlot    = 100 * time.Millisecond
	freezeTime    = 200 * time.Millisecond
	freezeLongest = 3 * time.Second
	freezeCalls   = 50
	freezeSlots   = int(freezeLongest / freezeSlot)

	// Counts of a second's calls tell late. It is a freeze, too, where this share of
	// the newest reports, of at least so many, come from clients to which nothing is
	// answered, as they say at once. Three times all latencies make it 20%.
	silentShare   = 0.5
	silentReports = 20

	// A freeze keeps the delay, which nothing that ends can speak for. Where enough
	// calls end that they make the delay more than this much longer, it was a shift.
	shiftedBy = blindRaise
)

// freeze notices that nearly every call outlives the delay. Then no copy is
// quicker than another, so hedging pauses; the delay stays, so that calls go on
// telling whether they outlive it. The zero freeze has seen nothing.
type freeze struct {
	on     bool
	seen   time.Time // when it was on last
	slots  [freezeSlots]freezeCount
	newest int64 // number of the newest slot since the epoch
}

type freezeCount struct {
	safe, eligible  uint64
	reports, silent uint64 // those with calls, and of them of clients that nothing is answered to
}

// add takes in a report's counts at the delay in force.
func (f *freeze) add(now time.Time, safe, eligible uint64, silent bool) {
	f.advance(now)
	c := freezeCount{safe: safe, eligible: eligible}
	if safe+eligible > 0 {
		c.reports = 1
	}
	if silent {
		c.silent = c.reports
	}
	f.slots[f.slot(f.newest)].merge(c)
}

func (c *freezeCount) merge(o freezeCount) {
	c.safe += o.safe
	c.eligible += o.eligible
	c.reports += o.reports
	c.silent += o.silent
}

func (f *freeze) advance(now time.Time) {
	n := now.UnixNano() / int64(freezeSlot)
	if n <= f.newest {
		return
	}
	for i := max(f.newest+1, n-int64(freezeSlots)+1); i <= n; i++ {
		f.slots[f.slot(i)] = freezeCount{}
	}
	f.newest = n
}

func (f *freeze) slot(n int64) int {
	return int((n%int64(freezeSlots) + int64(freezeSlots)) % int64(freezeSlots))
}

// recent is the newest counts that are enough, and how long they took to come.
func (f *freeze) recent() (c freezeCount, span time.Duration) {
	for i := range int64(freezeSlots) {
		s := f.slots[f.slot(f.newest-i)]
		c.merge(s)
		span = time.Duration(i+1) * freezeSlot
		if span >= freezeTime && c.safe >= freezeCalls {
			break
		}
	}
	return c, span
}

// all is the counts of freezeLongest.
func (f *freeze) all() freezeCount {
	var c freezeCount
	for _, s := range f.slots {
		c.merge(s)
	}
	return c
}

// decide reports whether hedging pauses. Where too few calls are reported the
// verdict stays what it was.
func (f *freeze) decide(now time.Time) (bool, string) {
	f.advance(now)
	c, span := f.recent()
	share, silent := 0.0, 0.0
	if c.safe >= freezeCalls {
		share = min(1, float64(c.eligible)/float64(c.safe))
		if c.reports >= silentReports {
			silent = float64(c.silent) / float64(c.reports)
		}
		f.on = share >= frozenShare || silent >= silentShare ||
			f.on && (share >= thawedShare || silent >= silentShare/2)
	}
	if f.on {
		f.seen = now
	}
	text := fmt.Sprintf("%s of %s calls outlived the delay in %v, and in %s of reports nothing was answered",
		percent(share), commas(c.safe), span, percent(silent))
	if f.on {
		text += ": everything is slow, hedging pauses"
	}
	return f.on, text
}

// lately reports whether reports that arrive at now may speak of a freeze still.
func (f *freeze) lately(now time.Time) bool {
	return !f.seen.IsZero() && now.Sub(f.seen) <= freezeLongest
}

// thaws reports whether more calls ended in a method's part of a report than
// began, in a freeze or just after one: what it held up ends all at once, and is no
// latency to expect of a call to come.
func (f *freeze) thaws(now time.Time, from *report.Method) bool {
	if !f.lately(now) {
		return false
	}
	return ended(from) > from.Calls
}

// forget drops what was counted at a delay that is no more.
func (f *freeze) forget() { *f = freeze{newest: f.newest, seen: f.seen} }
