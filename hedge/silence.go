package hedge

import (
	"sync/atomic"
	"time"
)

// Silence notices, in one client and for one service, that nothing comes back: a
// call outlived its delay, a further delay has passed since, and no attempt was
// answered all the while. Then no copy is quicker than another, which the daemon can
// only learn from reports, each of which is mostly of the time before. So the hedges of
// further calls are held, but for one every so often, until something is answered.
//
// To hold costs little where it is wrong: whatever ends lets hedges go, and what is
// needed is a call whose first hedge outlives the delay too, at a client to which no
// other call is answered meanwhile.
//
// All methods may be called from any goroutine. The zero Silence has heard nothing
// and is not silent. Times are since any fixed instant.
type Silence struct {
	// word is 0 when something was answered since the last call that outlived its
	// delay; else twice the time of the first such call, and 1 more once it is silent.
	word   atomic.Int64
	hedged atomic.Int64 // time of the last hedge
}

// holdDelays is how many delays after the last hedge the next may go all the same,
// so that a caller who waits for one call alone is not left with two stalled copies.
// By then the daemon has decided, of a fleet that freezes.
const holdDelays = 4

// Answered says that an attempt has ended, and not because it was cancelled. It is
// one load, mostly.
func (s *Silence) Answered() {
	if s.word.Load() != 0 {
		s.word.Store(0)
	}
}

// Pending says that a call is pending at its delay or later, and reports whether
// that makes it silent, which it was not before.
func (s *Silence) Pending(now, delay time.Duration) (news bool) {
	w := s.word.Load()
	if w == 0 {
		s.word.CompareAndSwap(0, 2*max(int64(now), 1))
		return false
	}
	return w&1 == 0 && int64(now)-w/2 >= int64(delay) && s.word.CompareAndSwap(w, w|1)
}

// Silent reports whether nothing comes back.
func (s *Silence) Silent() bool { return s.word.Load()&1 != 0 }

// Holds reports whether a hedge that is due has to wait: one has gone in this
// silence, and not long ago.
func (s *Silence) Holds(now, delay time.Duration) bool {
	w, hedged := s.word.Load(), s.hedged.Load()
	return w&1 != 0 && hedged >= w/2 && int64(now)-hedged < holdDelays*int64(delay)
}

// Hedged says that a hedge goes.
func (s *Silence) Hedged(now time.Duration) { s.hedged.Store(int64(now)) }
