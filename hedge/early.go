package hedge

import (
	"math"
	"sync/atomic"
	"time"
)

// EarlyRule tells one client, for one service, that a report should go ahead of
// the cadence, because calls become eligible far more often, or far less often,
// than the policy in force expects: the delay is wrong and every call until the
// next policy pays for it.
//
// It is a pair of one-sided CUSUM tests on "was this call eligible?", one
// against an eligible rate of earlyMore times the expected one, one against an
// earlyLess-th of it. Each sums log likelihood ratios, never below 0, and
// fires at its alarm. Such a sum needs no window: it finds eight eligible
// outcomes in a row as well as a third of a hundred.
//
// Observe may be called from any goroutine: it is two loads and, mostly, one
// compare-and-swap. NewEarlyRule makes an EarlyRule.
type EarlyRule struct {
	weights atomic.Pointer[earlyWeights] // nil: never fires
	sums    atomic.Uint64                // more<<32 | less, in 1/earlyUnit
	last    atomic.Int64                 // when it fired last, ns; 0: never
}

// Chosen by measurement. A false alarm costs one report: at 1,000 calls a second
// at the expected rate there is at most one in a million calls, at 1.5 times the
// rate 30. When everything freezes it takes eight outcomes. When no call is
// eligible any more it takes 500: too few hedges are less urgent, and half the
// expected rate, which is common where timers are late, fires
// about once in 50,000 calls.
const (
	earlyMore      = 5
	earlyLess      = 10
	earlyMoreAlarm = 12 // nats
	earlyLessAlarm = 20
	earlyUnit      = 1 << 16

	// EarlyGap is the least time between two early reports.
	EarlyGap = 200 * time.Millisecond
)

// earlyWeights are log likelihood ratios of one outcome, in 1/earlyUnit.
type earlyWeights struct {
	expected               float64
	moreIfEligible, moreIf int64
	lessIfEligible, lessIf int64
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
	less := expected / earlyLess
	nats := func(p, q float64) int64 { return int64(math.Round(math.Log(p/q) * earlyUnit)) }
	r.weights.Store(&earlyWeights{
		expected:       expected,
		moreIfEligible: nats(more, expected),
		moreIf:         nats(1-more, 1-expected),
		lessIfEligible: nats(less, expected),
		lessIf:         nats(1-less, 1-expected),
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
	dMore, dLess := w.moreIf, w.lessIf
	if eligible {
		dMore, dLess = w.moreIfEligible, w.lessIfEligible
	}
	const moreAlarm, lessAlarm = earlyMoreAlarm * earlyUnit, earlyLessAlarm * earlyUnit
	for {
		old := r.sums.Load()
		more := min(max(int64(old>>32)+dMore, 0), moreAlarm)
		less := min(max(int64(old&math.MaxUint32)+dLess, 0), lessAlarm)
		if !r.sums.CompareAndSwap(old, uint64(more)<<32|uint64(less)) {
			continue
		}
		return (more == moreAlarm || less == lessAlarm) && r.fire(now)
	}
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
func (r *EarlyRule) Reset() { r.sums.Store(0) }
