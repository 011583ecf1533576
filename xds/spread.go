package xds

import (
	"sync/atomic"
	"time"
)

// spread follows one publish to its last client.
type spread struct {
	published time.Time
	// waiting counts the subscriptions that have not answered it, and the shards
	// that have not yet counted theirs.
	waiting  atomic.Int64
	followed atomic.Bool // by somebody
}

// answered takes one off what is waited for, and reports whether that was the
// last of those who follow the resource.
func (s *spread) answered() bool { return s.waiting.Add(-1) == 0 && s.followed.Load() }

// SpreadBounds are the upper bounds of Spread.Counts but for the last, which has none.
var SpreadBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
}

// Spread is how long publishes took until the last client that follows the
// resource had answered. A publish that the next one overtakes, or that nobody
// follows, is not among them.
type Spread struct {
	Counts [len(SpreadBounds) + 1]uint64
	Sum    time.Duration
}

// spreads is Spread, for many goroutines.
type spreads struct {
	counts [len(SpreadBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (s *spreads) observe(d time.Duration) {
	i := 0
	for i < len(SpreadBounds) && d > SpreadBounds[i] {
		i++
	}
	s.counts[i].Add(1)
	s.sum.Add(int64(d))
}

func (s *spreads) load() Spread {
	out := Spread{Sum: time.Duration(s.sum.Load())}
	for i := range s.counts {
		out.Counts[i] = s.counts[i].Load()
	}
	return out
}
