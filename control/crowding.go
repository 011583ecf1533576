package control

import (
	"fmt"
	"time"
)

// Chosen by sweeps over three queues at utilisations of .3, .5 and .7, picked at
// random and better of two, and over the worlds without queues. With a minute
// instead of crowdTime the factor drops to 1 now and then where it is 2, and at .7
// quiet minutes let change detection loose; five minutes are no better.
const (
	// Crowding is judged by the last crowdTime or so, and not by fewer than
	// crowdPairs pairs of seconds.
	crowdTime  = 150 * time.Second
	crowdPairs = 30

	// A pair counts for no more than this, so that one change of all latencies is
	// no crowding.
	crowdMost = 50

	// Chance alone makes a factor of 1.2, and a machine that hiccups one of 10 at
	// thousands of calls a second. So the rate itself must swing, too: its variance
	// beyond chance is a quarter of its square (.5 to 2.4 in the queues, less than
	// .1 where a hundredth of the calls stalls one by one or for half a second).
	// Half of both is enough once there is crowding.
	leastCrowding = 1.5
	leastSwing    = 0.25
)

// crowding measures how much more the rate of eligible calls varies from one second
// to the next than chance explains. Where nothing queues, calls are slow one by one;
// where they queue behind a slow one, they are slow together, and n of them tell no
// more than n / factor that are independent. So queueing shows without knowing of
// queues, and the factor says how much memory, patience and burst it takes.
//
// Of each two seconds in a row the difference of their eligible rates, squared, is held
// against its variance were calls independent; slow drifts cancel out. The zero
// crowding has seen nothing.
type crowding struct {
	second     int64 // the one under way, since the epoch
	open, last share

	pairs, ratios  float64 // decayed: pairs, and the sum of their ratios
	safe, eligible float64 // decayed: calls in a second of them
	on             bool
}

// share is so many calls, and how many of them outlived the delay.
type share struct{ safe, eligible float64 }

// add takes in what was counted at a delay in force.
func (c *crowding) add(now time.Time, safe, eligible uint64) {
	c.advance(now)
	c.open.safe += float64(safe)
	c.open.eligible += float64(min(eligible, safe))
}

// advance closes the seconds that are over at now.
func (c *crowding) advance(now time.Time) {
	n := now.UnixNano() / int64(time.Second)
	if n <= c.second {
		return
	}
	if c.last.safe > 0 && c.open.safe > 0 {
		c.compare(c.last, c.open)
	}
	c.last = c.open
	if n > c.second+1 {
		c.last = share{}
	}
	c.second, c.open = n, share{}
}

func (c *crowding) compare(a, b share) {
	keep := decay(time.Second, crowdTime)
	c.pairs = keep*c.pairs + 1
	c.safe = keep*c.safe + (a.safe+b.safe)/2
	c.eligible = keep*c.eligible + (a.eligible+b.eligible)/2
	c.ratios *= keep
	p := c.eligible / c.safe
	if variance := p * (1 - p) * (1/a.safe + 1/b.safe); variance > 0 {
		d := a.eligible/a.safe - b.eligible/b.safe
		c.ratios += min(d*d/variance, crowdMost)
	}
	f := c.ratios / c.pairs
	least := 1.
	if c.on {
		least = .5
	}
	c.on = c.pairs >= crowdPairs && f-1 >= least*(leastCrowding-1) &&
		(f-1)*c.pairs >= least*leastSwing*c.eligible
}

// factor is how many calls tell as much as one that is independent of all others,
// 1 to crowdMost.
func (c *crowding) factor() float64 {
	if !c.on {
		return 1
	}
	return c.ratios / c.pairs
}

func (c *crowding) text() string {
	if !c.on {
		return "calls are slow one by one"
	}
	return fmt.Sprintf("calls are slow together: from second to second their share varies %s times as much as by chance", number(c.factor()))
}
