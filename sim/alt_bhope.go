package sim

import (
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

// bhope/hedge with its defaults: the delay is the p90 of whole calls over two
// rotating sketches of 30 s, at least 1 ms, and 10 ms until 20 calls were seen; the
// budget is 10% of an expected 100 calls a second, refilled by the clock and full at
// first, so that a slow client may hedge every call. Each client has its own.
const (
	bhopeWindow   = 30 * time.Second
	bhopeQuantile = .9
	bhopeFloor    = time.Millisecond
	bhopeWarm     = 20
	bhopeFirst    = 10 * time.Millisecond
	bhopeRate     = 10 // tokens a second
	bhopeBurst    = 2 * bhopeRate
)

type bhope struct {
	quietLaw
	w *World
}

func newBhope(w *World) law { return &bhope{w: w} }

func (l *bhope) join(*client) agent {
	return &bhopeClient{w: l.w, tokens: bhopeBurst, refilled: l.w.now, law: twoAttempts(bhopeFirst)}
}

type bhopeClient struct {
	quietAgent
	w        *World
	windows  [2]estimator.Histogram
	window   int64
	law      policy.Method
	seen     int
	looked   int // calls seen when the quantile was looked at
	tokens   float64
	refilled time.Duration
}

func (a *bhopeClient) method(int32) policy.Method {
	if a.seen >= bhopeWarm && a.seen-a.looked >= a.seen/100 { // looked at by every call there; the same but for 1%
		a.looked = a.seen
		var all estimator.Histogram
		all.Merge(&a.windows[0])
		all.Merge(&a.windows[1])
		if d, ok := all.Quantile(bhopeQuantile); ok {
			a.law = twoAttempts(max(d, bhopeFloor))
		}
	}
	return a.law
}

func (a *bhopeClient) take(*call) answer {
	a.tokens = min(a.tokens+(a.w.now-a.refilled).Seconds()*bhopeRate, bhopeBurst)
	a.refilled = a.w.now
	if a.tokens < 1 {
		return refused
	}
	a.tokens--
	return goes
}

func (a *bhopeClient) done(c *call, _ int) {
	for now := int64(a.w.now / bhopeWindow); a.window < now; {
		a.window = max(a.window+1, now-2)
		a.windows[a.window%2].Reset()
	}
	a.windows[a.window%2].Record(a.w.now - c.start)
	a.seen++
}
