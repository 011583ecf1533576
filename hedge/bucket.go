package hedge

import "math"

// Levels is how often a waiting hedge can be promoted.
//
// A hedge of level n may take a token while at least (1 - n/Levels) of the
// reserve remains behind it. One that has just become due leaves the whole
// reserve alone; each further delay that it waits opens another part, and after
// Levels delays the last token is its. When latencies rise far beyond what the
// delay was learned from, almost every call becomes eligible, most of them end
// within a few delays, and without such a rule they would have taken every token
// before it is clear which calls are stalled. Two classes (fresh, and waited
// once) are not enough: at four times the latency most calls are still pending
// after two delays.
const Levels = 8

const (
	// lateLevel is where third and later attempts start: their call has been
	// slow on two replicas already, which is rare unless it is in trouble.
	lateLevel = Levels / 2

	// reserveShare: the reserve grows by one part in reserveShare of what a call
	// earns, until it is half the burst, at most maxReserve. So a new client's starting tokens are
	// free for its first hedges, and the reserve fills without starving them.
	reserveShare = 4

	// maxReserve bounds the reserve. A burst of more than twice as much is for calls
	// that queue: they are slow together, and one that waits for another delay is slow
	// for good. Half of a burst of 200 kept from them made 414 ms of a p99.9 of 392.
	maxReserve = 25
)

// bucket is a Budget's state at one instant.
type bucket struct {
	tokens  uint64 // millionths of a token; at most the burst
	reserve uint64 // likewise: how much is kept for those that have waited
	waiting bool   // somebody waits, so everybody has to take Budget.mu
	version uint64 // of the limits that it is within
}

// A bucket is packed into one word, so that one compare-and-swap sees it whole.
// Millionths, because ratios are written in decimal: ten calls at 0.1 earn 1.
const (
	token        = 1_000_000
	amountBits   = 28 // 268 tokens; policy.MaxBurst is 200
	amountMask   = 1<<amountBits - 1
	waitingBit   = 1 << (2 * amountBits)
	versionShift = 2*amountBits + 1
	versionMask  = 1<<(64-versionShift) - 1
)

func unpack(w uint64) bucket {
	return bucket{
		tokens:  w & amountMask,
		reserve: w >> amountBits & amountMask,
		waiting: w&waitingBit != 0,
		version: w >> versionShift,
	}
}

func (s bucket) pack() uint64 {
	w := s.tokens | s.reserve<<amountBits | s.version<<versionShift
	if s.waiting {
		w |= waitingBit
	}
	return w
}

// limits is what Budget.Set said, in millionths of a token. Never written again.
type limits struct {
	active  bool
	version uint64
	ratio   uint64 // earned by a call
	burst   uint64
	reserve uint64 // most that is kept; whole tokens, so that burst 1 keeps none
}

// amount converts tokens to millionths, rounding down so that no bound is
// exceeded; the nudge keeps decimal fractions that have no exact binary form.
func amount(tokens float64) uint64 {
	return uint64(math.Floor(tokens*token + 1e-3))
}

// earn adds what one call earns.
func (s bucket) earn(l *limits) bucket {
	s.tokens = min(s.tokens+l.ratio, l.burst)
	s.reserve = min(s.reserve+l.ratio/reserveShare, l.reserve)
	return s
}

// take takes a token for a hedge of the level, if that may have one.
func (s bucket) take(level int) (bucket, bool) {
	if s.tokens < token+s.reserve*uint64(Levels-level)/Levels {
		return s, false
	}
	s.tokens -= token
	return s, true
}
