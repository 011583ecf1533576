package sim

import (
	"math/rand/v2"
	"time"
)

// stall is extra time that a share of attempts, or of calls, takes.
type stall struct {
	share float64
	extra time.Duration
	// Episodes: gaps and lengths are exponential with these means; every 0: always.
	every, last time.Duration
}

// stalls are all that may be at work in a world.
type stalls struct {
	call    stall // each attempt by itself
	shared  stall // call by call: every copy of a call that is slow is slow
	replica stall // attempts on one replica, in its episodes
	all     stall // as shared, in episodes of the whole service
}

// slowdowns are what a scenario changes about replicas.
type slowdowns struct {
	factor      float64
	byReplica   []float64
	frozenUntil time.Duration
	frozenFrom  time.Duration
	failing     float64       // share of attempts
	failAfter   time.Duration // how long a failing attempt takes
}

// setStall puts one kind of stall into force, and starts its episodes.
func (w *World) setStall(what string, s stall) {
	w.episodeGen++
	switch what {
	case "off":
		w.stalls = stalls{}
	case "call":
		w.stalls.call = s
	case "shared":
		w.stalls.shared = s
	case "replica":
		w.stalls.replica = s
	case "all":
		w.stalls.all = s
	}
	w.episode, w.replicaEpisode = false, make([]bool, len(w.replicas))
	if s := w.stalls.all; s.every > 0 {
		w.pushEpisode(-1, s.every)
	}
	if s := w.stalls.replica; s.every > 0 {
		for i := range w.replicas {
			w.pushEpisode(int32(i), s.every)
		}
	}
}

func (w *World) pushEpisode(ref int32, mean time.Duration) {
	after := limited(w.change.ExpFloat64() * float64(mean))
	w.push(event{at: w.now + max(1, after), kind: evEpisode, ref: ref, gen: w.episodeGen})
}

// toggle begins or ends an episode.
func (w *World) toggle(ref int32, gen uint32) {
	if gen != w.episodeGen {
		return
	}
	on, s := &w.episode, w.stalls.all
	if ref >= 0 {
		on, s = &w.replicaEpisode[ref], w.stalls.replica
	}
	*on = !*on
	if *on {
		w.pushEpisode(ref, s.last)
	} else {
		w.pushEpisode(ref, s.every)
	}
}

// fate is what is decided about a call when it starts, so that it does not depend
// on what is done about other calls.
type fate struct {
	primary attemptTime
	score   float64       // of its primary's latency, for correlated copies
	shared  time.Duration // that every copy takes longer
}

// attemptTime is the time that an attempt takes at a replica that is well.
type attemptTime struct {
	latency, stall time.Duration
	fails          bool
}

// decide decides about a call that starts.
func (w *World) decide(c *call) {
	c.fate = fate{}
	c.method = 0
	if len(w.sc.methods) > 0 {
		c.method = w.sc.methodOf(w.fate.Float64())
	}
	if s := w.stalls.shared; s.share > 0 && w.fate.Float64() < s.share {
		c.fate.shared += s.extra
	}
	if s := w.stalls.all; w.episode && w.fate.Float64() < s.share {
		c.fate.shared += s.extra
	}
	if w.sc.correlation == 0 {
		c.fate.primary = w.attemptTime(w.latency.draw(w.fate), w.fate)
		return
	}
	c.fate.score = w.fate.NormFloat64()
	c.fate.primary = w.attemptTime(w.latency.at(c.fate.score), w.fate)
}

// copyTime decides about another copy of a call.
func (w *World) copyTime(c *call) attemptTime {
	if rho := w.sc.correlation; rho > 0 {
		z := rho*c.fate.score + w.sc.independence*w.work.NormFloat64()
		return w.attemptTime(w.latency.at(z), w.work)
	}
	return w.attemptTime(w.latency.draw(w.work), w.work)
}

func (w *World) attemptTime(latency time.Duration, r *rand.Rand) attemptTime {
	t := attemptTime{latency: latency}
	if s := w.stalls.call; s.share > 0 && r.Float64() < s.share {
		t.stall = s.extra
	}
	t.fails = w.slow.failing > 0 && r.Float64() < w.slow.failing
	return t
}

// serviceTime is how long replica r works on attempt i of a call, and whether the
// attempt fails then.
func (w *World) serviceTime(c *call, i int, r int32) (d time.Duration, fails bool) {
	t := c.fate.primary
	if i > 0 {
		t = w.copyTime(c)
	}
	if t.fails {
		return w.slow.failAfter, true
	}
	d = t.latency
	f := w.slow.factor * w.slow.byReplica[r]
	if c.method > 0 {
		f *= w.sc.methods[c.method-1].factor
	}
	if f != 1 {
		d = limited(float64(d) * f)
	}
	if w.replicaEpisode[r] && w.work.Float64() < w.stalls.replica.share {
		d += w.stalls.replica.extra
	}
	return d + t.stall + c.fate.shared, false
}

// freeze stops all replicas: what they work on takes as much longer.
func (w *World) freeze(d time.Duration) {
	w.slow.frozenFrom, w.slow.frozenUntil = w.now, w.now+d
}

// thawed returns when work that would end now does end, given the freeze: it
// began before it, or in it.
func (w *World) thawed(begun time.Duration) (time.Duration, bool) {
	if w.now < w.slow.frozenFrom || w.now >= w.slow.frozenUntil {
		return 0, false
	}
	return w.slow.frozenUntil + w.now - max(begun, w.slow.frozenFrom), true
}
