package control

import (
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Window is the span over which loads are counted and shown.
const Window = 10 * time.Second

const (
	subWindow  = time.Second
	windowSubs = int(Window / subWindow)
	// Latencies are kept for three windows: the delay needs some hundred calls
	// beyond its quantile, and a longer memory is safe because change detection
	// drops what no longer holds.
	memorySubs = 3 * windowSubs
	memory     = time.Duration(memorySubs) * subWindow
)

// tally is what was counted in some time.
type tally struct {
	calls, safe, eligible, hedges, unsent, wins, failures uint64
	suppressed                                            [policy.NumSuppressions]uint64
	served                                                report.Served
	ended                                                 uint64 // primaries whose latency, or a bound of it, is known

	// Of safe and eligible: counted by clients that had the delay in force all the while.
	forcedSafe, forcedEligible uint64

	// Of all clients: the time that their reports cover, and how many began.
	clientTime time.Duration
	starts     uint64
}

func (t *tally) add(o *tally) {
	t.calls += o.calls
	t.safe += o.safe
	t.eligible += o.eligible
	t.hedges += o.hedges
	t.unsent += o.unsent
	t.wins += o.wins
	t.failures += o.failures
	for i, n := range o.suppressed {
		t.suppressed[i] += n
	}
	t.served.Add(o.served)
	t.ended += o.ended
	t.forcedSafe += o.forcedSafe
	t.forcedEligible += o.forcedEligible
	t.clientTime += o.clientTime
	t.starts += o.starts
}

func (t *tally) load() Load {
	return Load{
		Window:          Window,
		Calls:           t.calls,
		Safe:            t.safe,
		Eligible:        t.eligible,
		Hedges:          t.hedges,
		CancelledUnsent: t.unsent,
		Wins:            t.wins,
		Failures:        t.failures,
		Suppressed:      t.suppressed,
		Server:          t.served,
	}
}

// ring is a sliding window of tallies by time of arrival. The zero ring is empty.
type ring struct {
	subs   [memorySubs]tally
	newest int64 // number of the newest sub-window since the epoch
}

// advance forgets what is older than memory. Time never goes back: an earlier
// now than the last one counts as the last one.
func (r *ring) advance(now time.Time) {
	n := now.UnixNano() / int64(subWindow)
	if n <= r.newest {
		return
	}
	for i := max(r.newest+1, n-int64(memorySubs)+1); i <= n; i++ {
		r.subs[slot(i)] = tally{}
	}
	r.newest = n
}

func (r *ring) at(now time.Time) *tally {
	r.advance(now)
	return &r.subs[slot(r.newest)]
}

// sum is the last n sub-windows, the one under way included.
func (r *ring) sum(now time.Time, n int) tally {
	r.advance(now)
	var t tally
	for i := range int64(n) {
		t.add(&r.subs[slot(r.newest-i)])
	}
	return t
}

// forgetForced starts the counts at the delay in force anew.
func (r *ring) forgetForced() {
	for i := range r.subs {
		r.subs[i].forcedSafe, r.subs[i].forcedEligible = 0, 0
	}
}

func slot(i int64) int {
	return int(((i % int64(memorySubs)) + int64(memorySubs)) % int64(memorySubs))
}
