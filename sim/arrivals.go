package sim

import (
	"math"
	"time"
)

// arrivals says when requests come. Rates are requests a second of all clients
// together.
type arrivals struct {
	closed int // callers that each wait for their answer; 0: an open loop
	steady bool
	rate   float64

	burstRate            float64 // in bursts; 0: there are none
	burstEvery, burstFor time.Duration

	// A daily curve: the rate times 1 + swing * sin(2 pi t / period).
	swing  float64
	period time.Duration
}

// load is the arrivals of a world as they are now.
type load struct {
	arrivals
	bursting bool
	gen      uint32 // of the arrival that is due; a change of rate draws it anew
}

// most is the rate that the curve does not exceed.
func (l *load) most() float64 {
	if l.bursting {
		return l.burstRate * (1 + l.swing)
	}
	return l.rate * (1 + l.swing)
}

// now is the share of most at a time.
func (l *load) share(now time.Duration) float64 {
	if l.swing == 0 {
		return 1
	}
	return (1 + l.swing*math.Sin(2*math.Pi*now.Seconds()/l.period.Seconds())) / (1 + l.swing)
}

// restart draws the next arrival anew, which is right at a change of rate since
// a Poisson process has no memory.
func (w *World) restart() {
	w.load.gen++
	w.nextArrival()
}

func (w *World) nextArrival() {
	rate := w.load.most()
	if rate <= 0 || w.load.closed > 0 {
		return
	}
	gap := 1.0
	if !w.load.steady {
		gap = w.arrive.ExpFloat64()
	}
	w.push(event{at: w.now + max(1, limited(gap/rate*1e9)), kind: evArrival, gen: w.load.gen})
}

// arrival starts a request unless the curve leaves it out, by thinning.
func (w *World) arrival(gen uint32) {
	if gen != w.load.gen || w.ending {
		return
	}
	if share := w.load.share(w.now); share >= 1 || w.arrive.Float64() < share {
		w.request()
	}
	w.nextArrival()
}

// request makes its calls, all at once; it lasts until the last has ended.
func (w *World) request() {
	if w.ending {
		return
	}
	w.open++
	cl := w.clients[int(w.arrive.Uint64()>>32*uint64(len(w.clients))>>32)]
	if w.sc.fanout == 1 {
		w.start(cl, -1)
		return
	}
	g := w.groups.take()
	w.groups.all[g] = group{start: w.now, left: w.sc.fanout}
	for range w.sc.fanout {
		w.start(cl, g)
	}
}

// group is a request under way that makes several calls.
type group struct {
	start time.Duration
	left  int
}

// groups are used again.
type groups struct {
	all  []group
	free []int32
}

func (g *groups) take() int32 {
	if n := len(g.free); n > 0 {
		i := g.free[n-1]
		g.free = g.free[:n-1]
		return i
	}
	g.all = append(g.all, group{})
	return int32(len(g.all) - 1)
}

// callEnded counts an answer, and in a closed loop makes the next request.
func (w *World) callEnded(c *call) {
	if c.group >= 0 {
		g := &w.groups.all[c.group]
		if g.left--; g.left > 0 {
			return
		}
		w.answered(g.start)
		w.groups.free = append(w.groups.free, c.group)
	} else {
		w.answered(c.start)
	}
	w.open--
	if w.load.closed > 0 {
		w.request()
	}
}

// answered counts a request that started then.
func (w *World) answered(start time.Duration) {
	took := w.now - start
	w.result.answered(start, took)
	if w.probe.Request != nil {
		w.probe.Request(start, took)
	}
}

func (w *World) startLoad() {
	for range w.load.closed {
		w.request()
	}
	w.nextArrival()
	if w.load.burstRate > 0 {
		w.push(event{at: w.now + w.load.burstEvery, kind: evBurst, ref: 1})
	}
}

func (w *World) burst(begins bool) {
	w.load.bursting = begins
	if begins {
		w.push(event{at: w.now + w.load.burstFor, kind: evBurst})
	} else {
		w.push(event{at: w.now + w.load.burstEvery - w.load.burstFor, kind: evBurst, ref: 1})
	}
	w.restart()
}
