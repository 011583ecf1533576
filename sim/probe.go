package sim

import (
	"context"
	"time"

	"github.com/hedged-project/hedged/control"
)

// Probe is told of a run as it happens, from its first instant and not only from the
// end of the warm-up. Any field may be nil and costs nothing then. All are called
// in the goroutine that runs the world, in the order of virtual time, and must not
// keep what they are given but by copying it. A probe changes nothing about the run.
type Probe struct {
	// Sent is told of each primary, by number of the client of all there ever were.
	Sent func(at time.Duration, client int)
	// Eligible is told of each call that outlives its delay, when it does.
	Eligible func(at, start time.Duration)
	// Hedge is told of each hedge, when it is sent, with its call's start.
	Hedge func(at, start time.Duration)
	// Answer is told of each call, when its caller has the answer.
	Answer func(Answer)
	// Request is told of each request, which is all its calls, when it is answered.
	Request func(start, took time.Duration)
	// Decided is told of each tick of the controller. Decision.Publish says whether
	// the policy goes to the clients; status gives what hedgectl status would show.
	Decided func(at time.Duration, d *control.Decision, status func() control.Status)
}

// Answer is a call that is over.
type Answer struct {
	Client   int // of all clients there ever were
	Start    time.Duration
	Took     time.Duration
	Alone    time.Duration // what its primary takes; 0: it was cancelled before a worker took it up
	Eligible bool
	Hedges   int
	Won      bool // by a hedge
	Failed   bool
}

// Observe is Run with a probe.
func Observe(ctx context.Context, s *Scenario, p Policy, seed uint64, probe Probe) (*Result, error) {
	w := newWorld(s, seed, p.new)
	w.result.Seed = seed
	w.probe = probe
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	return w.result, nil
}

// answer is what is told of a call that attempt i answered, before the others are
// cancelled.
func (w *World) answer(c *call, i int) Answer {
	a := Answer{
		Client:   int(c.client.number),
		Start:    c.start,
		Took:     w.now - c.start,
		Eligible: c.eligible,
		Hedges:   c.plan.Attempts() - 1,
		Won:      i > 0 && !c.attempts[i].fails,
		Failed:   c.attempts[i].fails,
	}
	switch primary := &c.attempts[0]; {
	case i == 0:
		a.Alone = a.Took
	case primary.takes > 0: // as if nothing froze until its end
		a.Alone = primary.begun + primary.takes + w.network.way - primary.sent
	}
	return a
}
