package hedge

import (
	"math"
	"sync/atomic"
	"time"
)

// EarlyRule tells one client, for one service, that a report should go ahead of
// the cadence, because calls become eligible far more often than the policy in
// force expects: the delay is too short, and every call until the next policy
// pays for it. A delay that is too long can wait for the cadence; where a lower
// bound holds it up there would be no end of alarms.
//
// It is a one-sided CUSUM test on "was this call eligible?" against an eligible
// rate of earlyMore times the expected one: a sum of log likelihood ratios, never
// below 0, which fires at its alarm. Such a sum needs no window: it finds eight
// eligible outcomes in a row as well as a third of a hundred.
//
// Observe may be called from any goroutine: it is two loads and, mostly, one
// compare-and-swap. NewEarlyRule makes an EarlyRule.
type EarlyRule struct {
	weights atomic.Pointer[earlyWeights] // nil: never fires
	sum     atomic.Int64                 // in 1/earlyUnit
	last    atomic.Int64                 // when it fired last, ns; 0: never
}

// Chosen by measurement. A false alarm costs one report: at 1,000 calls a second
// at the expected rate there is at most one in a million calls, at 1.5 times the
// rate 30. When everything freezes it takes eight outcomes.
const (
	earlyMore  = 5
	earlyAlarm = 12 // nats
	earlyUnit  = 1 << 16

	// EarlyGap is the least time between two early reports.
	EarlyGap = 200 * time.Millisecond
)

// earlyWeights are log likelihood ratios of one outcome, in 1/earlyUnit.
type earlyWeights struct {
	expected         float64
	eligible, prompt int64
}

// NewEarlyRule returns a rule that never fires until Set.
func NewEarlyRule() *EarlyRule { return new(EarlyRule) }

// Set says what share of calls is expected to become eligible under the policy
// in force. Outside (0, 1) nothing is expected, and the rule never fires.
// Evidence against another expectation is dropped.
func (r *EarlyRule) Set(expected float64) {
	old := r.weights.Load()
	if !(expected > 0 && expected < 1) {
		r.weights.Store(nil)
		return
	}
	if old != nil && old.expected == expected {
		return
	}
	more := min(expected*earlyMore, (1+expected)/2)
	nats := func(p, q float64) int64 { return int64(math.Round(math.Log(p/q) * earlyUnit)) }
	r.weights.Store(&earlyWeights{
		expected: expected,
		eligible: nats(more, expected),
		prompt:   nats(1-more, 1-expected),
	})
	r.Reset()
}

// Observe says that a call's eligibility became known: it was still pending at
// its delay, or it ended before. True: send a report now. now is the time since
// any fixed instant; within EarlyGap of the last time the rule stays silent, but
// does not forget.
func (r *EarlyRule) Observe(eligible bool, now time.Duration) bool {
	w := r.weights.Load()
	if w == nil {
		return false
	}
	d := w.prompt
	if eligible {
		d = w.eligible
	}
	const alarm = earlyAlarm * earlyUnit
	for {
		old := r.sum.Load()
		sum := min(max(old+d, 0), alarm)
		if old == sum || r.sum.CompareAndSwap(old, sum) {
			return sum == alarm && r.fire(now)
		}
	}
}

// Alarm says that there is another reason for a report now, however likely. As
// Observe, it stays silent within EarlyGap of the last time.
func (r *EarlyRule) Alarm(now time.Duration) bool {
	return r.weights.Load() != nil && r.fire(now)
}

func (r *EarlyRule) fire(now time.Duration) bool {
	last := r.last.Load()
	if last != 0 && int64(now)-last < int64(EarlyGap) || !r.last.CompareAndSwap(last, max(int64(now), 1)) {
		return false
	}
	r.Reset()
	return true
}

// Reset says that a report was sent, early or not: evidence starts anew.
func (r *EarlyRule) Reset() { r.sum.Store(0) }
