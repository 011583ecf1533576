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
// Who may take the last tokens depends on how long a hedge has waited, because
// that tells a stalled call from one that is merely slow: bucket.go has the rule.
//
// All methods may be called from any goroutine. While nobody waits they take no
// lock and allocate nothing. NewBudget makes a Budget.
type Budget struct {
	word   atomic.Uint64 // a bucket, packed
	limits atomic.Pointer[limits]

	mu      sync.Mutex // held to change limits, and whenever somebody waits
	queues  [Levels + 1]queue
	granted uint64 // of Start, in the Budget's life
}

// NewBudget returns a Budget that is inactive and empty until Set.
func NewBudget() *Budget {
	b := new(Budget)
	b.limits.Store(new(limits))
	return b
}

// Set puts new limits into force for the next decision of every call, those
// under way included. p must be valid. An inactive budget (mode shadow or off)
// earns nothing and grants nothing, to waiters neither, but keeps its tokens.
// p.Start is granted once in a Budget's life, at the first Set that is active; of a
// larger one later the difference is, so that clients which came before their rate
// was known get what it calls for. Otherwise the tokens are clamped to p.Burst, never
// refilled. Set returns the waiters that the new limits let go, as Earn does.
func (b *Budget) Set(p policy.Budget, active bool) []*Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &limits{
		active:  active,
		version: (b.limits.Load().version + 1) & versionMask,
		ratio:   amount(p.Ratio),
		burst:   amount(p.Burst),
		reserve: uint64(math.Floor(min(p.Burst/2, maxReserve))) * token,
	}
	var grant uint64
	if start := amount(p.Start); active && start > b.granted {
		grant = start - b.granted
		b.granted = start
	}
	// From here on nobody changes the word without b.mu: its version is old.
	b.limits.Store(l)
	b.update(func(s bucket) bucket {
		s.tokens = min(s.tokens+grant, l.burst)
		s.reserve = min(s.reserve, l.reserve)
		s.version = l.version
		return s
	})
	if !active {
		return nil
	}
	return b.dispatch()
}

// Earn says that the primary of a safe method was sent. It returns the waiters
// that its earnings let go, in order; nil while nobody waits. The token of each
// is in its C already, so a caller whose waiters listen to C may ignore them.
func (b *Budget) Earn() []*Waiter {
	for {
		l := b.limits.Load()
		if !l.active {
			return nil
		}
		old := b.word.Load()
		s := unpack(old)
		if s.waiting || s.version != l.version {
			break
		}
		if next := s.earn(l).pack(); next == old || b.word.CompareAndSwap(old, next) {
			return nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits.Load()
	if !l.active {
		return nil
	}
	b.update(func(s bucket) bucket { return s.earn(l) })
	return b.dispatch()
}

// Take asks for a token for one hedge. True: it is taken, and w was not touched.
// False: w waits until its C delivers a token; or, while the budget is inactive,
// nothing is granted and w does not wait. late says that the hedge is its call's
// third or later attempt. w must not be waiting already.
func (b *Budget) Take(w *Waiter, late bool) bool {
	level := 0
	if late {
		level = lateLevel
	}
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
		next, ok := s.take(level)
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
	return b.takeOrWait(w, level)
}

// Promote says that w has waited for another delay, which lets it dig deeper
// into the reserve. True: it has a token now (it may have been granted one
// before), and its C will not deliver it any more. False: it waits on, or did
// not wait at all. After Levels promotions another one changes nothing.
func (b *Budget) Promote(w *Waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.collect() {
		return true
	}
	if !w.queued || w.level == Levels {
		return false
	}
	b.queues[w.level].remove(w)
	if !b.limits.Load().active {
		b.queues[w.level+1].push(w, w.level+1)
		return false
	}
	granted := b.takeOrWait(w, w.level+1)
	b.noteWaiting()
	return granted
}

// Leave takes w out of the queue: its call has ended, or may not hedge any
// more. It may be called when w does not wait. token says that w had been
// granted a token that its C had not delivered; it went back into the bucket,
// and next is the waiter that got it, or nil. w may be used again at once.
func (b *Budget) Leave(w *Waiter) (token bool, next *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.collect() {
		return true, b.giveBack()
	}
	if w.queued {
		b.queues[w.level].remove(w)
		b.noteWaiting()
	}
	return false, nil
}

// Return gives back a token that was granted, but that no hedge was sent with.
// It returns the waiter that got it, or nil.
func (b *Budget) Return() *Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.giveBack()
}

// Tokens returns how many tokens are in the bucket.
func (b *Budget) Tokens() float64 {
	return float64(unpack(b.word.Load()).tokens) / token
}

// takeOrWait grants w a token unless others of its level or above wait, and
// queues it otherwise; b.mu is held.
func (b *Budget) takeOrWait(w *Waiter, level int) bool {
	first := true
	for i := level; i <= Levels; i++ {
		first = first && b.queues[i].head == nil
	}
	for {
		old := b.word.Load()
		s := unpack(old)
		if next, ok := s.take(level); ok && first {
			if b.word.CompareAndSwap(old, next.pack()) {
				return true
			}
			continue
		}
		// The swap that finds no token also says that somebody waits: no call
		// can earn one in between and leave w behind.
		s.waiting = true
		if b.word.CompareAndSwap(old, s.pack()) {
			b.queues[level].push(w, level)
			return false
		}
	}
}

// dispatch grants tokens to those who have waited longest; b.mu is held.
func (b *Budget) dispatch() []*Waiter {
	var granted []*Waiter
	for level := Levels; level >= 0; level-- {
		q := &b.queues[level]
		for q.head != nil && b.takeFor(level) {
			w := q.head
			q.remove(w)
			w.C <- struct{}{}
			granted = append(granted, w)
		}
	}
	b.noteWaiting()
	return granted
}

func (b *Budget) takeFor(level int) (ok bool) {
	b.update(func(s bucket) bucket {
		s, ok = s.take(level)
		return s
	})
	return ok
}

func (b *Budget) giveBack() (next *Waiter) {
	l := b.limits.Load()
	b.update(func(s bucket) bucket {
		s.tokens = min(s.tokens+token, l.burst)
		return s
	})
	if !l.active {
		return nil
	}
	if granted := b.dispatch(); len(granted) > 0 {
		next = granted[0] // one token lets no second one go
	}
	return next
}

// noteWaiting lets the fast path in again once nobody waits; b.mu is held.
func (b *Budget) noteWaiting() {
	waiting := false
	for i := range b.queues {
		waiting = waiting || b.queues[i].head != nil
	}
	b.update(func(s bucket) bucket {
		s.waiting = waiting
		return s
	})
}

// update changes the word; b.mu is held. The fast path may interfere, so change
// may run more than once.
func (b *Budget) update(change func(bucket) bucket) {
	for {
		old := b.word.Load()
		if b.word.CompareAndSwap(old, change(unpack(old)).pack()) {
			return
		}
	}
}
