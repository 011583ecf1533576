package control

import "time"

const (
	// A replica is put into probation for a run of this many slow windows, where
	// runs do not pass by themselves.
	slowWindows = 3

	// Together they must have this z. Three windows of 1.5 times the latency have 11
	// give or take 1. Runs that had less when they passed teach nothing.
	runZ = 6

	// A run must be so many times as long as the longest that passed by itself.
	patienceFactor = 3

	// Longer runs that passed teach no more: a minute of windows is the longest
	// that a sick replica can need.
	longestPassed = 20

	// What was learned is halved by so many windows in which no run as long passed.
	patienceWindows = 300

	// A replica that is released so soon was slow by its load, not by itself. By then
	// the shortest stay is over and the trickle has brought enough samples, unless
	// there are few calls anyway.
	soonReleased = 20 * time.Second
)

// run is a replica's surplus of windows that do not look healthy over those that do,
// since it last had none, and what all of them say together: in a window of 70 calls
// 1.5 times the latency is not always clear, in a sum of three it is.
type run struct {
	length, longest int // longest: of those lengths at which the sum was enough
	sum             evidence
}

// persists reports whether a run of so many windows is enough.
func (r *run) persists(needed int) bool {
	z := float64(slowZ)
	if needed >= slowWindows {
		z = runZ
	}
	return r.length >= needed && r.sum.beyond(z)
}

// patience is how long a run a pool takes for chance. Where calls queue, those of
// a replica are slow together for as long as its queue is, and what a window's z
// assumes, calls that know nothing of each other, does not hold: runs of several
// slow windows are ordinary. To eject for one does harm: it gives the other
// replicas more load than they had, hence longer queues, and the ejected one none,
// so that it looks healthy. How long such runs get depends on the load, the
// service times and the routing; so the pool's own runs that passed say it.
type patience struct {
	passed int // longest run that passed lately
	quiet  int // windows since then
}

// needs is the length of the run for which a replica goes into probation. One that
// was there before has the less to prove the more doublings of its stay it has.
func (p *patience) needs(doublings int) int {
	return max(1, max(slowWindows, patienceFactor*p.passed)>>doublings)
}

// pass learns from a run that passed by itself. One that only the cap kept in
// service may have been longer than it needed to be, and teaches no more than that.
func (p *patience) pass(longest int) {
	longest = min(longest, p.needs(0), longestPassed)
	if longest >= p.passed {
		p.passed, p.quiet = longest, 0
	}
}

// tick lets a window pass.
func (p *patience) tick() {
	if p.quiet++; p.quiet >= patienceWindows {
		p.passed, p.quiet = p.passed/2, 0
	}
}

// observe adds a window to a replica's run.
func (p *patience) observe(r *run, e evidence) {
	if r.length == 0 && e.healthy() {
		return
	}
	r.sum.add(e)
	if !e.healthy() {
		r.length++
		if r.sum.beyond(runZ) {
			r.longest = max(r.longest, r.length)
		}
		return
	}
	if r.length--; r.length == 0 {
		p.pass(r.longest)
		*r = run{}
	}
}
