package hedge

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hedged-project/hedged/policy"
)

// Budget is the token bucket of one client for one service. A hedge takes one
// token; tokens come from calls, never from the clock, so that in any stretch of
// n calls
//
//	hedges <= Ratio*n + Burst
//
// whatever the daemon does. A hedge that finds no token waits its turn, and
// goes when later calls have earned one.
//
// The bucket has two parts. Any hedge takes from the free part. The reserve is
// kept for the late class: hedges that have already waited for another delay,
// and third and later attempts. A call that is merely slow seldom gets there; a
// stalled one always does. The reserve starts empty, so that a new client's
// starting tokens are free for all, and gets a share of each earned token until
// it holds half of Burst.
//
// All methods may be called from any goroutine. While nobody waits they take no
// lock and allocate nothing. A Budget starts inactive and empty; NewBudget makes
// one.
type Budget struct {
	word   atomic.Uint64 // see the layout below
	limits atomic.Pointer[limits]

	mu      sync.Mutex // held to change limits, and whenever somebody waits
	fresh   queue
	late    queue
	started bool // Start was granted
}

// The layout of Budget.word: the free part and the reserve in millionths of a
// token, whether anybody waits, and the version of the limits that the word is
// within. One compare-and-swap thus sees one consistent bucket. Millionths,
// because ratios are written in decimal: ten calls at 0.1 earn exactly 1.
const (
	token        = 1_000_000
	amountBits   = 28 // 268 tokens; policy.MaxBurst is 200
	amountMask   = 1<<amountBits - 1
	waitingBit   = 1 << (2 * amountBits)
	versionShift = 2*amountBits + 1
	versionMask  = 1<<(64-versionShift) - 1
)

// limits is what Set said, in the units of the word. Never written again.
type limits struct {
	active  bool
	version uint64
	ratio   uint64 // earned by a call
	burst   uint64
	reserve uint64 // most that the reserve holds, in whole tokens
}

// bucket is the word, unpacked.
type bucket struct {
	free, reserve uint64
	waiting       bool
	version       uint64
}

func unpack(w uint64) bucket {
	return bucket{
		free:    w & amountMask,
		reserve: w >> amountBits & amountMask,
		waiting: w&waitingBit != 0,
		version: w >> versionShift,
	}
}

func (b bucket) pack() uint64 {
	w := b.free | b.reserve<<amountBits | b.version<<versionShift
	if b.waiting {
		w |= waitingBit
	}
	return w
}

// NewBudget returns an inactive, empty Budget.
func NewBudget() *Budget {
	b := new(Budget)
	b.limits.Store(new(limits))
	return b
}

// amount converts tokens, rounding down so that no bound is exceeded; the
// nudge keeps decimal fractions that have no exact binary form.
func amount(tokens float64) uint64 {
	return uint64(math.Floor(tokens*token + 1e-3))
}

// Set puts new limits into force for the next decision of every call, those
// under way included. p must be valid. An inactive budget (mode shadow or off)
// earns nothing and grants nothing, to waiters neither, but keeps its tokens.
// p.Start is granted once in a Budget's life, at the first Set that is active;
// otherwise the tokens are clamped to p.Burst, never refilled.
func (b *Budget) Set(p policy.Budget, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &limits{
		active:  active,
		version: (b.limits.Load().version + 1) & versionMask,
		ratio:   amount(p.Ratio),
		burst:   amount(p.Burst),
		reserve: uint64(p.Burst/2) * token,
	}
	// From here on nobody changes the word without b.mu: its version is old.
	b.limits.Store(l)
	for {
		old := b.word.Load()
		s := unpack(old)
		if active && !b.started {
			s.free += amount(p.Start)
		}
		s = l.clamp(s)
		s.version = l.version
		if b.word.CompareAndSwap(old, s.pack()) {
			break
		}
	}
	b.started = b.started || active
}

// clamp brings the bucket within the limits: a reserve that is now too large
// becomes free, and what is over the burst is lost.
func (l *limits) clamp(s bucket) bucket {
	if s.reserve > l.reserve {
		s.free += s.reserve - l.reserve
		s.reserve = l.reserve
	}
	s.free = min(s.free, l.burst-s.reserve)
	return s
}

// earn adds one call's ratio to the bucket.
func (l *limits) earn(s bucket) bucket {
	kept := min(l.ratio/reserveShare, l.reserve-s.reserve)
	s.reserve += kept
	s.free += l.ratio - kept
	return l.overflow(s)
}

// overflow moves what the free part cannot hold to the reserve; what neither
// can hold is lost.
func (l *limits) overflow(s bucket) bucket {
	if most := l.burst - l.reserve; s.free > most {
		moved := min(s.free-most, l.reserve-min(s.reserve, l.reserve))
		s.reserve += moved
		s.free -= moved
	}
	s.free = min(s.free, l.burst-s.reserve)
	return s
}

// reserveShare: one part in reserveShare of each earned token is kept for the
// late class until the reserve is full.
const reserveShare = 4

// take takes a token for one hedge of the class, if it may have one.
func (s bucket) take(late bool) (bucket, bool) {
	switch {
	case late && s.reserve >= token:
		s.reserve -= token
	case s.free >= token:
		s.free -= token
	case late && s.free+s.reserve >= token:
		s.free -= token - s.reserve
		s.reserve = 0
	default:
		return s, false
	}
	return s, true
}

// Earn says that the primary of a safe method was sent. It returns the waiters
// that this call's earnings let go, in order; nil while nobody waits. The token
// of each is already in its C: a caller whose waiters listen to their C may
// ignore the result.
func (b *Budget) Earn() []*Waiter {
	for {
		l := b.limits.Load()
		if !l.active {
			return nil
		}
		old := b.word.Load()
		s := unpack(old)
		if s.waiting || s.version != l.version {
			return b.earnSlow()
		}
		if next := l.earn(s).pack(); next == old || b.word.CompareAndSwap(old, next) {
			return nil
		}
	}
}

func (b *Budget) earnSlow() []*Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits.Load()
	if !l.active {
		return nil
	}
	b.update(l.earn)
	return b.dispatch()
}

// update changes the word; b.mu is held.
func (b *Budget) update(change func(bucket) bucket) {
	for {
		old := b.word.Load()
		if b.word.CompareAndSwap(old, change(unpack(old)).pack()) {
			return
		}
	}
}

// dispatch grants tokens to waiters, the late class first; b.mu is held.
func (b *Budget) dispatch() []*Waiter {
	var granted []*Waiter
	b.update(func(s bucket) bucket {
		for _, q := range []*queue{&b.late, &b.fresh} {
			for q.head != nil {
				next, ok := s.take(q == &b.late)
				if !ok {
					break
				}
				s = next
				granted = append(granted, q.head)
				q.head.C <- struct{}{}
				q.remove(q.head)
			}
		}
		s.waiting = b.late.head != nil || b.fresh.head != nil
		return s
	})
	return granted
}

// Take asks for a token for one hedge. True: the token is taken, and w was not
// touched. False: w waits in the queue of its class until its C delivers the
// token; or, while the budget is inactive, nothing is granted and w does not
// wait. late says that the hedge is a call's third or later attempt. w must not
// be waiting already.
func (b *Budget) Take(w *Waiter, late bool) bool {
	for {
		l := b.limits.Load()
		if !l.active {
			return false
		}
		old := b.word.Load()
		s := unpack(old)
		if s.waiting || s.version != l.version {
			break
		}
		next, ok := s.take(late)
		if !ok {
			break
		}
		if b.word.CompareAndSwap(old, next.pack()) {
			return true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.limits.Load().active {
		return false
	}
	q := &b.fresh
	if late {
		q = &b.late
	}
	return b.takeOrWait(w, q)
}

// takeOrWait grants w a token when nobody of its class is ahead of it, or
// queues it; b.mu is held.
func (b *Budget) takeOrWait(w *Waiter, q *queue) bool {
	for {
		old := b.word.Load()
		s := unpack(old)
		if q.head == nil {
			if next, ok := s.take(q == &b.late); ok {
				if b.word.CompareAndSwap(old, next.pack()) {
					return true
				}
				continue
			}
		}
		// The same swap that finds no token says that somebody waits: no call
		// can earn a token in between and leave w behind.
		s.waiting = true
		if b.word.CompareAndSwap(old, s.pack()) {
			q.push(w)
			return false
		}
	}
}

// Promote says that w has waited for another delay: it moves to the late class.
// True: it has a token now (perhaps granted before), which its C will not
// deliver any more. False: it waits on, or was not waiting at all.
func (b *Budget) Promote(w *Waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.collect() {
		return true
	}
	if w.queue != &b.fresh {
		return false
	}
	b.fresh.remove(w)
	granted := b.limits.Load().active && b.takeOrWait(w, &b.late)
	if !granted && w.queue == nil {
		b.late.push(w) // inactive: it keeps its turn, in case
	}
	b.update(func(s bucket) bucket {
		s.waiting = b.late.head != nil || b.fresh.head != nil
		return s
	})
	return granted
}

// Leave takes w out of the queue: its call has ended, or may not hedge any
// more. It may be called when w does not wait. token says that w had been
// granted a token that its C did not deliver; the token went back, and next is
// the waiter that got it in w's place, or nil. w may be used again at once.
func (b *Budget) Leave(w *Waiter) (token bool, next *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.collect() {
		l := b.limits.Load()
		b.update(l.giveBack)
		if l.active {
			if granted := b.dispatch(); len(granted) > 0 {
				next = granted[0]
			}
		}
		return true, next
	}
	if w.queue != nil {
		w.queue.remove(w)
		b.update(func(s bucket) bucket {
			s.waiting = b.late.head != nil || b.fresh.head != nil
			return s
		})
	}
	return false, nil
}

func (l *limits) giveBack(s bucket) bucket {
	s.free += token
	return l.overflow(s)
}

// Tokens returns how many tokens are in the bucket, its reserve included.
func (b *Budget) Tokens() float64 {
	s := unpack(b.word.Load())
	return float64(s.free+s.reserve) / token
}
