package estimator

import (
	"fmt"
	"math"
	"time"
)

// Window is the last n sub-windows of a stream of samples and their total. What
// is added joins the total at once and leaves it exactly when its sub-window
// expires; after a silence of the whole window the total is empty.
//
// Time only comes in as an argument, and the latest seen is taken for now: an
// earlier one adds to the sub-window it belongs to, or is refused if that has
// expired. Use times with a monotonic reading. A Window is not safe for concurrent
// use. The open sub-window is kept as a Sample, the closed ones in their wire form
// (some 10 to 600 bytes).
type Window struct {
	sub    time.Duration
	span   int64    // sub-windows kept, the open one included; at most len(closed)
	closed []packed // a ring: sub-window k is at k mod n; that of head is empty

	started bool
	origin  time.Time // start of sub-window 0
	head    int64     // the open sub-window
	oldest  int64     // the first that still takes data, at least head - n + 1

	open    Sample
	total   Sample
	refused uint64

	grown         bool // something was added since the last DropChanged
	older, recent Sample
}

// packed is a closed sub-window.
type packed struct {
	count               uint64
	completed, censored []byte
}

// NewWindow returns an empty Window of n sub-windows of length sub. It panics if
// either is not positive.
func NewWindow(sub time.Duration, n int) *Window {
	if sub <= 0 || n <= 0 {
		panic(fmt.Sprintf("estimator: window of %d sub-windows of %v, want both positive", n, sub))
	}
	return &Window{sub: sub, span: int64(n), closed: make([]packed, n)}
}

// Keep makes a Window keep its last n sub-windows from now on, 1 to as many as
// NewWindow was given.
func (w *Window) Keep(n int) {
	w.span = min(max(int64(n), 1), int64(len(w.closed)))
	w.forget(w.head - w.span + 1)
}

// forget lets the sub-windows before first expire.
func (w *Window) forget(first int64) {
	for k := w.oldest; k < min(first, w.head); k++ {
		w.expire(k)
	}
	w.oldest = max(w.oldest, first)
}

// Add adds s, which it does not keep, to the sub-window of now. It refuses s whole
// if that has expired or was dropped, or if the total would saturate.
func (w *Window) Add(now time.Time, s *Sample) {
	w.Advance(now)
	k := w.number(now)
	if k < w.oldest || !w.fits(s) {
		w.refused += min(s.Count(), math.MaxUint64-w.refused)
		return
	}
	w.total.Merge(s)
	w.grown = true
	if k == w.head {
		w.open.Merge(s)
		return
	}
	w.recent.Reset()
	w.slot(k).addTo(&w.recent, 1)
	w.recent.Merge(s)
	w.pack(k, &w.recent)
}

// fits reports whether the total can take s without saturating, so that what is
// subtracted later is what was added.
func (w *Window) fits(s *Sample) bool {
	return w.total.Completed.room(s.Completed.total) == s.Completed.total &&
		w.total.Censored.room(s.Censored.total) == s.Censored.total
}

// Advance lets the sub-windows expire that are too old at now. It does nothing
// when now is before the latest time seen.
func (w *Window) Advance(now time.Time) {
	if !w.started {
		w.started, w.origin = true, now
		w.oldest = -w.span + 1
	}
	k := w.number(now)
	if k <= w.head {
		return
	}
	w.pack(w.head, &w.open)
	w.open.Reset()
	last := w.head
	w.head = k
	for expired := max(w.oldest, last-int64(len(w.closed))+1); expired <= min(last, k-w.span); expired++ {
		w.expire(expired)
	}
	w.oldest = max(w.oldest, k-w.span+1)
}

// number returns the sub-window that t is in.
func (w *Window) number(t time.Time) int64 {
	d := t.Sub(w.origin)
	k := int64(d / w.sub)
	if d < 0 && d%w.sub != 0 {
		k--
	}
	return k
}

// Total returns the sum of all sub-windows: a view to read, valid until the next
// call of another method. Its count is zero when there is nothing to estimate from.
func (w *Window) Total() *Sample { return &w.total }

// Refused returns how many attempts Add refused.
func (w *Window) Refused() uint64 { return w.refused }

func (w *Window) slot(k int64) *packed {
	n := int64(len(w.closed))
	return &w.closed[(k%n+n)%n]
}

// pack keeps s as closed sub-window k.
func (w *Window) pack(k int64, s *Sample) {
	p := w.slot(k)
	p.count = s.Count()
	p.completed = s.Completed.appendWire(p.completed[:0])
	p.censored = s.Censored.appendWire(p.censored[:0])
}

// addTo adds p to s, or with the sign -1 modulo 2^64 takes it away again.
func (p *packed) addTo(s *Sample, sign uint64) {
	s.Completed.applyOwn(p.completed, sign)
	s.Censored.applyOwn(p.censored, sign)
}

// move takes closed sub-window k from one sample to another.
func (w *Window) move(k int64, from, to *Sample) {
	p := w.slot(k)
	p.addTo(from, math.MaxUint64)
	p.addTo(to, 1)
}

// expire takes closed sub-window k from the total.
func (w *Window) expire(k int64) {
	p := w.slot(k)
	p.addTo(&w.total, math.MaxUint64)
	p.count, p.completed, p.censored = 0, p.completed[:0], p.censored[:0]
}
