package sim

import (
	"time"

	"github.com/hedged-project/hedged/policy"
)

// FoundationDB's load balancing, with its knobs: the delay is a multiple of the
// last latency of the replica that the second request would go to, and 0.5 ms.
// The multiple grows by .01 with each second request and falls by .00025 with each
// first one that ends, not below 1. A second request takes a token; a first one
// that ends earns .05, and at most 100 are kept. Each client has its own.
const (
	fdbBase   = 500 * time.Microsecond
	fdbGrowth = .01
	fdbDecay  = .00025
	fdbMost   = 100
	// fdbUnknown is the latency of a replica that nothing is known of.
	fdbUnknown = time.Millisecond
)

type foundationDB struct {
	quietLaw
	w *World
}

func newFoundationDB(w *World) law { return &foundationDB{w: w} }

func (l *foundationDB) join(c *client) agent {
	a := &foundationDBClient{w: l.w, multiple: 1, last: make([]time.Duration, len(c.outstanding))}
	for i := range a.last {
		a.last[i] = fdbUnknown
	}
	return a
}

type foundationDBClient struct {
	quietAgent
	w        *World
	multiple float64
	tokens   float64
	last     []time.Duration // latency, by replica
}

// method takes the second best replica by its last latency: who the first request
// goes to is not known yet here, but it is the best one in FoundationDB.
func (a *foundationDBClient) method(int32) policy.Method {
	best, second := a.last[0], a.last[len(a.last)-1]
	if len(a.last) > 1 && second < best {
		best, second = second, best
	}
	for _, d := range a.last[1:max(len(a.last)-1, 1)] {
		switch {
		case d < best:
			best, second = d, best
		case d < second:
			second = d
		}
	}
	return twoAttempts(time.Duration(a.multiple*float64(second)) + fdbBase)
}

func (a *foundationDBClient) take(*call) answer {
	if a.tokens < 1 {
		return refused
	}
	a.tokens--
	a.multiple += fdbGrowth
	return goes
}

func (a *foundationDBClient) giveBack() { a.tokens++ }

func (a *foundationDBClient) ended(c *call, i int, took time.Duration, how outcome) {
	r := c.attempts[i].replica
	switch how {
	case completed:
		a.last[r] = took
	case censored: // it is at least so slow
		a.last[r] = max(a.last[r], took)
	}
	if i == 0 {
		a.multiple = max(a.multiple-fdbDecay, 1)
		a.tokens = min(a.tokens+a.w.sc.target, fdbMost)
	}
}
