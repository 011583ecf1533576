package hedge

import (
	"sync/atomic"
	"time"
)

// EarlyRule tells one client, for one service, that a report should go ahead of
// the cadence, because calls become eligible far more or far less often than the
// policy promised.
//
// All methods may be called from any goroutine; Observe is one load and at most
// a few compare-and-swaps.
type EarlyRule struct {
	weights atomic.Pointer[earlyWeights]
	sums    atomic.Uint64 // up in the low half, down in the high half
	last    atomic.Int64  // when it last fired, ns; 0: never
}

type earlyWeights struct{ upHit, upMiss, downHit, downMiss int32 }

// NewEarlyRule returns a rule that never fires until Set.
func NewEarlyRule() *EarlyRule { return new(EarlyRule) }

// Set says what share of calls the policy in force expects to become eligible;
// 0 or less: none is expected, and the rule never fires.
func (r *EarlyRule) Set(expected float64) {}

// Observe says that a call's eligibility became known: it was still pending at
// the delay, or it ended before. True: send a report now. now is the time since
// the client's start.
func (r *EarlyRule) Observe(eligible bool, now time.Duration) bool { return false }

// Reset says that a report was sent: evidence starts anew.
func (r *EarlyRule) Reset() {}
