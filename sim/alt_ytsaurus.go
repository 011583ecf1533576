package sim

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// YTsaurus' adaptive hedging manager with its defaults: each second the delay is
// multiplied by 1.05 when more than the wanted share of calls outlived it, and
// divided otherwise; it starts at the longest, here 1 s (10 s by default, from which
// it takes two minutes to get to 15 ms). A hedge takes a token; calls earn the
// wanted share, and a hedge without one waits in turn. Each client has its own.
const (
	ytsaurusTick   = time.Second
	ytsaurusFactor = 1.05
	ytsaurusMax    = time.Second
	ytsaurusTokens = 10
)

type ytsaurus struct {
	quietLaw
	w *World
}

func newYtsaurus(w *World) law { return &ytsaurus{w: w} }

func (l *ytsaurus) join(*client) agent {
	return &ytsaurusClient{w: l.w, delay: ytsaurusMax, ticked: l.w.now}
}

type ytsaurusClient struct {
	quietAgent
	w               *World
	delay           time.Duration
	ticked          time.Duration
	calls, outlived float64 // since the last tick
	tokens          float64
	waiting         []ytsaurusWaiter
}

type ytsaurusWaiter struct {
	c   *call
	gen uint32
}

func (a *ytsaurusClient) method(int32) policy.Method {
	// The statistics change over when a call comes after the period's end.
	if a.w.now-a.ticked >= ytsaurusTick {
		if a.outlived >= math.Ceil(a.calls*a.w.sc.target) {
			a.delay = min(time.Duration(float64(a.delay)*ytsaurusFactor), ytsaurusMax)
		} else {
			a.delay = max(time.Duration(float64(a.delay)/ytsaurusFactor), time.Microsecond)
		}
		a.ticked, a.calls, a.outlived = a.w.now, 0, 0
	}
	return twoAttempts(a.delay)
}

func (a *ytsaurusClient) sent(int32) {
	a.calls++
	a.tokens = math.Min(a.tokens+a.w.sc.target, ytsaurusTokens)
	for len(a.waiting) > 0 && a.tokens >= 1 {
		x := a.waiting[0]
		a.waiting = a.waiting[1:]
		if x.c.gen == x.gen && !x.c.over && x.c.plan.Waits() {
			a.tokens--
			a.w.granted(x.c)
		}
	}
}

func (a *ytsaurusClient) eligible(_ *call, yes bool) {
	if yes {
		a.outlived++
	}
}

func (a *ytsaurusClient) take(c *call) answer {
	if a.tokens < 1 {
		a.waiting = append(a.waiting, ytsaurusWaiter{c, c.gen})
		return waits
	}
	a.tokens--
	return goes
}

func (a *ytsaurusClient) giveBack() { a.tokens++ }
