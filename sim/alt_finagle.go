package sim

import (
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

// Finagle's BackupRequestFilter, as its sources have it: the delay is the
// (1 - maxExtraLoad) quantile over a sliding window of 3 x 10 s, looked at every
// 3 s, in whole milliseconds, at least 1 ms; nothing is sent when it is above 2 s.
// The budget is a leaky bucket: calls of the last 10 s earn maxExtraLoad each.
// Each client has its own. A cancelled attempt is taken for one that ended.
const (
	finagleWindow  = 10 * time.Second
	finagleWindows = 3
	finagleRefresh = 3 * time.Second
	finagleFloor   = time.Millisecond
	finagleCeiling = 2 * time.Second
	finagleSlots   = 10 // of the leaky bucket, a second each

	// windowedBurst is the most tokens of the rule at its best, or 10 s of calls'
	// worth where that is more.
	windowedBurst = 50
)

// finagle is the rule in one fleet; windowed is the same idea at its best: delays
// are not rounded, hedges' own latencies do not count, and a token bucket refilled
// by calls takes the leaky one's place, in which at an eligible rate of just the
// budget there is mostly nothing.
type finagle struct {
	quietLaw
	w        *World
	windowed bool
}

func newFinagle(w *World) law  { return &finagle{w: w} }
func newWindowed(w *World) law { return &finagle{w: w, windowed: true} }

func (l *finagle) join(*client) agent {
	if l.windowed {
		return &finagleClient{w: l.w, windowed: true}
	}
	return &finagleClient{w: l.w, law: twoAttempts(finagleFloor)} // before the first look
}

type finagleClient struct {
	quietAgent
	w         *World
	windowed  bool
	law       policy.Method
	refreshed time.Duration

	windows [finagleWindows]estimator.Histogram
	window  int64

	slots   [finagleSlots]float64
	slot    int64
	balance float64
}

func (a *finagleClient) method(int32) policy.Method {
	a.roll()
	if a.w.now-a.refreshed >= finagleRefresh {
		a.refreshed = a.w.now
		var all estimator.Histogram
		for i := range a.windows {
			all.Merge(&a.windows[i])
		}
		if d, ok := all.Quantile(1 - a.w.sc.target); ok {
			if !a.windowed {
				d = max(d.Truncate(time.Millisecond), finagleFloor)
			}
			if d > finagleCeiling {
				d = 0
			}
			a.law = twoAttempts(d)
		}
	}
	return a.law
}

func (a *finagleClient) roll() {
	for now := int64(a.w.now / finagleWindow); a.window < now; {
		a.window = max(a.window+1, now-finagleWindows)
		a.windows[a.window%finagleWindows].Reset()
	}
	for now := int64(a.w.now / time.Second); a.slot < now; {
		a.slot = max(a.slot+1, now-finagleSlots)
		s := &a.slots[a.slot%finagleSlots]
		if !a.windowed {
			a.balance -= *s
		}
		*s = 0
	}
}

func (a *finagleClient) put(tokens float64) {
	a.roll()
	if a.windowed {
		a.slots[a.slot%finagleSlots] += max(tokens, 0)
		var earned float64
		for _, s := range a.slots {
			earned += s
		}
		a.balance = min(a.balance+tokens, max(earned, windowedBurst))
		return
	}
	a.slots[a.slot%finagleSlots] += tokens
	a.balance += tokens
}

func (a *finagleClient) sent(int32) { a.put(a.w.sc.target) }

func (a *finagleClient) take(*call) answer {
	a.roll()
	if a.balance < 1-1e-9 {
		return refused
	}
	a.put(-1)
	return goes
}

func (a *finagleClient) ended(_ *call, i int, took time.Duration, how outcome) {
	if how != failed && (i == 0 || !a.windowed) {
		a.roll()
		a.windows[a.window%finagleWindows].Record(took)
	}
}
