package hedge

import (
	"math"
	"sync/atomic"

	"github.com/hedged-project/hedged/policy"
)

// Throttle is gRFC A6's retryThrottling for one service, over all methods of one
// client: it stops hedging while the service fails.
//
// A6: "For each server name, the gRPC client maintains a token_count variable
// which is initially set to maxTokens and can take values between 0 and
// maxTokens."
//
// It does not charge for hedges, and a slow service that answers OK never trips
// it: the Budget is for that.
//
// All methods may be called from any goroutine; none takes a lock or allocates.
// NewThrottle makes a Throttle.
type Throttle struct {
	word atomic.Uint64 // a throttleState, packed
}

// throttleState is in thousandths of a token. A6: "Up to 3 decimal places are
// supported."
type throttleState struct {
	tokens, max, ratio uint64
}

// Each part is at most policy.MaxTokens * 1000 and so takes 20 bits.
const (
	partBits = 20
	partMask = 1<<partBits - 1
)

func unpackThrottle(w uint64) throttleState {
	return throttleState{w & partMask, w >> partBits & partMask, w >> (2 * partBits)}
}

func (s throttleState) pack() uint64 {
	return s.tokens | s.max<<partBits | s.ratio<<(2*partBits)
}

// NewThrottle returns a Throttle that allows everything until Set.
func NewThrottle() *Throttle { return new(Throttle) }

// Set puts new limits into force for the next decision, those of calls under way
// included. p must be valid. The count keeps its share of the maximum: it starts
// full, but an update never refills it. MaxTokens 0 forgets it and allows
// everything.
func (t *Throttle) Set(p policy.Throttle) {
	limit := uint64(math.Round(p.MaxTokens * 1000))
	// Cut after the third decimal, but to no less than .001: a count that
	// successes do not raise would end hedging for good.
	ratio := max(uint64(p.TokenRatio*1000+1e-6), 1)
	t.update(func(s throttleState) throttleState {
		tokens := limit
		if s.max > 0 {
			tokens = s.tokens * limit / s.max
		}
		return throttleState{tokens, limit, ratio}
	})
}

// Success says that an attempt succeeded. A6: "Every successful RPC will
// increment the token_count by tokenRatio."
func (t *Throttle) Success() {
	t.update(func(s throttleState) throttleState {
		s.tokens = min(s.tokens+s.ratio, s.max)
		return s
	})
}

// Failure says that an attempt failed in the way that counts. A6: "Every failed
// RPC will decrement the token_count by 1 [...] The only RPCs that are counted as
// failures for the throttling policy are RPCs that fail with a status code that
// qualifies as a retryable or non-fatal status code, or that receive a pushback
// response indicating not to retry."
func (t *Throttle) Failure() {
	t.update(func(s throttleState) throttleState {
		s.tokens -= min(s.tokens, 1000)
		return s
	})
}

// Allow reports whether a hedge may be sent. A6: "The first outgoing RPC will
// always be sent, but subsequent hedged RPCs will only be sent if token_count is
// greater than the threshold", which is "defined to be (maxTokens / 2)".
func (t *Throttle) Allow() bool {
	s := unpackThrottle(t.word.Load())
	return s.max == 0 || 2*s.tokens > s.max
}

func (t *Throttle) update(change func(throttleState) throttleState) {
	for {
		old := t.word.Load()
		next := change(unpackThrottle(old)).pack()
		if next == old || t.word.CompareAndSwap(old, next) {
			return
		}
	}
}
