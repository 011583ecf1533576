package sim

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// routing is how an attempt's replica is chosen.
type routing uint8

const (
	routeRandom routing = iota
	routeRoundRobin
	routeShortest // of the replicas' own queues, as if they were known
	routeBetterOfTwo
	routePeakEWMA // the better of two by latency and outstanding attempts
)

// candidate is a replica as one client under one policy sees it.
type candidate struct {
	outstanding *int64
	peak        *peakEWMA // nil: outstanding attempts alone count
	replica     int32
	state       policy.ReplicaState
	share       float64
}

// Outstanding is part of hedge.Candidate.
func (c candidate) Outstanding() int64 {
	if c.peak != nil {
		return c.peak.load(*c.outstanding)
	}
	return *c.outstanding
}

// Standing is part of hedge.Candidate.
func (c candidate) Standing() (policy.ReplicaState, float64) { return c.state, c.share }

// peakEWMA is a replica's latency as Finagle's and Linkerd's balancers of that name
// see it: at once as high as the highest, and then down by a moving average, over
// ewmaDecay, towards what comes after, or 0 while nothing does.
type peakEWMA struct {
	w    *World
	cost float64 // ns
	at   time.Duration
}

// Linkerd's defaults.
const (
	ewmaDecay = 10 * time.Second
	ewmaStart = 30 * time.Millisecond // of a replica that is not known yet
)

func (p *peakEWMA) decayed() float64 {
	return p.cost * math.Exp(-float64(p.w.now-p.at)/float64(ewmaDecay))
}

// observe takes the latency of an attempt, or the least that it can be.
func (p *peakEWMA) observe(took time.Duration, censored bool) {
	now, took64 := p.decayed(), float64(took)
	switch {
	case took64 > p.cost:
		p.cost = took64
	case censored:
		return
	default: // what has not decayed counts as much as it has not
		p.cost = now + took64*(1-now/max(p.cost, 1))
	}
	p.at = p.w.now
}

func (p *peakEWMA) load(outstanding int64) int64 {
	return int64(p.decayed() * float64(outstanding+1))
}

// route chooses the replica of attempt i. False: all were tried.
func (w *World) route(c *call, i int) (int32, bool) {
	cl := c.client
	if w.sc.routing == routeBetterOfTwo || w.sc.routing == routePeakEWMA {
		w.tried = w.tried[:0]
		for k := range i {
			w.tried = append(w.tried, cl.candidates[c.attempts[k].replica])
		}
		chosen, ok := hedge.Choose(cl.candidates, w.tried, w.random)
		return chosen.replica, ok
	}
	// The other routings know standings as hedge.Choose does: a replica out of
	// service gets its share of primaries, and hedges when nothing else is left.
	if i == 0 && cl.unwell > 0 {
		r := cl.candidates[w.below(len(cl.candidates))]
		if r.state != policy.ReplicaServing && w.routes.Float64() < r.share {
			return r.replica, true
		}
	}
	for _, state := range [...]policy.ReplicaState{
		policy.ReplicaServing, policy.ReplicaRecovering, policy.ReplicaProbation,
	} {
		if r, ok := w.routeAmong(c, i, state); ok {
			return r, true
		}
		if cl.unwell == 0 {
			break
		}
	}
	return 0, false
}

func (w *World) below(n int) int { return int(w.routes.Uint64() >> 32 * uint64(n) >> 32) }

// routeAmong chooses among the untried replicas in one state.
func (w *World) routeAmong(c *call, i int, state policy.ReplicaState) (int32, bool) {
	cl := c.client
	n := 0
	for k := range cl.candidates {
		if usable(c, i, &cl.candidates[k], state) {
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	var skip int
	switch w.sc.routing {
	case routeRandom:
		skip = w.below(n)
	case routeShortest:
		skip = w.below(n) // ties go round
	case routeRoundRobin:
		turn := &w.turns[min(i, 1)]
		skip = int(*turn % uint64(n))
		*turn++
	}
	best, least := int32(-1), 0
	for k := range cl.candidates {
		r := &cl.candidates[k]
		if !usable(c, i, r, state) {
			continue
		}
		if w.sc.routing != routeShortest {
			if skip == 0 {
				return r.replica, true
			}
			skip--
			continue
		}
		length := 2 * w.replicas[r.replica].load()
		if skip != 0 {
			length++
		}
		skip--
		if best < 0 || length < least {
			best, least = r.replica, length
		}
	}
	return best, best >= 0
}

func usable(c *call, i int, r *candidate, state policy.ReplicaState) bool {
	if r.state != state {
		return false
	}
	for k := range i {
		if c.attempts[k].replica == r.replica {
			return false
		}
	}
	return true
}

// untried reports whether a hedge has anywhere to go.
func (w *World) untried(c *call) bool {
	return c.plan.Attempts() < len(w.replicas) // each attempt went to another one
}
