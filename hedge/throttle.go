package hedge

import (
	"math"
	"sync/atomic"

	"github.com/hedged-project/hedged/policy"
)

// Throttle is gRFC A6's retry throttling for one service, for all methods of
// one client: it stops hedging while the service fails. It does not charge for
// hedges, and a slow service that answers OK never trips it: that is the
// Budget's matter.
//
// All methods may be called from any goroutine; none takes a lock or allocates.
// Until a Set gives it tokens it allows everything.
type Throttle struct {
	state atomic.Pointer[throttleState]
}

// throttleState is replaced whole by Set.
type throttleState struct {
	max    int64 // thousandths of a token; 0: no throttle
	ratio  int64
	tokens atomic.Int64
}

// NewThrottle returns a Throttle that allows everything.
func NewThrottle() *Throttle {
	t := new(Throttle)
	t.state.Store(new(throttleState))
	return t
}

// Set puts new limits into force for the next decision.
func (t *Throttle) Set(p policy.Throttle) {
	old := t.state.Load()
	s := &throttleState{
		max:   int64(math.Round(p.MaxTokens * 1000)),
		ratio: int64(p.TokenRatio*1000 + 1e-6),
	}
	full := 1.0
	if old.max > 0 {
		full = float64(old.tokens.Load()) / float64(old.max)
	}
	s.tokens.Store(int64(full * float64(s.max)))
	t.state.Store(s)
}

// Success says that a call's attempt succeeded.
func (t *Throttle) Success() { s := t.state.Load(); s.add(s.ratio) }

// Failure says that an attempt failed with a non-fatal code, or that its server
// asked for no more attempts.
func (t *Throttle) Failure() { t.state.Load().add(-1000) }

func (s *throttleState) add(n int64) {
	for {
		old := s.tokens.Load()
		next := min(max(old+n, 0), s.max)
		if next == old || s.tokens.CompareAndSwap(old, next) {
			return
		}
	}
}

// Allow reports whether a hedge may be sent.
func (t *Throttle) Allow() bool {
	s := t.state.Load()
	return s.max == 0 || 2*s.tokens.Load() > s.max
}
