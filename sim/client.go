package sim

import (
	"time"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// client is one life of one client process.
type client struct {
	slot        int32
	number      int32 // of all clients ever
	agent       agent
	outstanding []int64 // attempts sent and not ended, by replica
	candidates  []candidate
	unwell      int // of candidates, those out of normal service
	gone        bool
}

// call is one call on its way. Like package client's, it brings hedge.Plan the
// events and does what the plan says. Calls are used again.
type call struct {
	ref      int32
	gen      uint32
	client   *client
	method   int32
	law      policy.Method
	plan     hedge.Plan
	start    time.Duration
	end      time.Duration // once it is over
	attempts [policy.MaxAttempts]attempt
	live     int // attempts that are on their way or at a replica
	over     bool
	eligible bool
	tossed   bool // the coin fell: hedge
	heldOut  bool // the coin fell: do not hedge
	observed bool // it is hedged, and its loser runs to its end
	refusal  policy.Suppression
	waiter   hedge.Waiter
	group    int32
	fate     fate
}

// start makes a call of a client, as part of request g, or -1.
func (w *World) start(cl *client, g int32) {
	c := w.take()
	c.client, c.start, c.group = cl, w.now, g
	w.decide(c)
	c.law = cl.agent.method(c.method)
	c.plan = hedge.NewPlan(&c.law)
	c.plan.Started(0)
	w.result.primary(w.now)
	if w.probe.Sent != nil {
		w.probe.Sent(w.now, int(cl.number))
	}
	cl.agent.sent(c.method)
	if c.law.Delay > 0 {
		w.push(event{at: w.now + c.law.Delay, kind: evDue, ref: c.ref, gen: c.gen})
	}
	w.send(c, 0)
}

// send sends attempt i, for which there is a replica.
func (w *World) send(c *call, i int) {
	a := &c.attempts[i]
	r, ok := w.route(c, i)
	if !ok {
		panic("sim: an attempt without a replica")
	}
	*a = attempt{state: onWay, replica: r, sent: w.now}
	c.client.outstanding[r]++
	c.live++
	if way := w.way(c.client, r); way > 0 {
		w.push(event{at: w.now + way, kind: evReach, ref: attemptRef(c, i), gen: c.gen})
		return
	}
	w.reach(c, i)
}

// ring is the call's alarm. It may come for nothing.
func (w *World) ring(c *call) {
	if c.over {
		return
	}
	now := w.now - c.start
	if !c.eligible && now >= c.law.Delay {
		c.eligible = true
		w.result.eligible(c.start)
		if w.probe.Eligible != nil {
			w.probe.Eligible(w.now, c.start)
		}
		c.client.agent.eligible(c, true)
		if c.law.Probability <= 0 {
			c.refusal = policy.SuppressedProbability
		}
	}
	at, ok := c.plan.Next()
	switch {
	case !ok || now < at:
	case !c.plan.Waits():
		w.due(c)
	case c.client.agent.promote(c):
		w.granted(c)
	default:
		w.follow(c, c.plan.Waiting(now), 0)
	}
}

// due sends the attempt that is due, if it may go, or has it wait.
func (w *World) due(c *call) {
	now := w.now - c.start
	if why, ok := w.mayHedge(c); !ok {
		w.follow(c, w.refuse(c, why), 0)
		return
	}
	switch c.client.agent.take(c) {
	case goes:
		w.launch(c)
	case waits:
		c.refusal = policy.SuppressedBudget
		w.follow(c, c.plan.Waiting(now), 0)
	case refused:
		c.refusal = policy.SuppressedBudget
		w.follow(c, c.plan.Refused(), 0)
	}
}

// mayHedge asks everything but the budget.
func (w *World) mayHedge(c *call) (policy.Suppression, bool) {
	if why, ok := c.client.agent.mayHedge(c); !ok {
		return why, false
	}
	if share := c.law.Probability * (1 - c.law.Holdout); !c.tossed && share < 1 && w.routes.Float64() >= share {
		c.heldOut = c.eligible
		return policy.SuppressedProbability, false
	}
	c.tossed = true // one coin for a call
	if !w.untried(c) {
		return policy.SuppressedReplica, false
	}
	return 0, true
}

// refuse says why the due attempt may not go. Silence ends, so it is asked for again.
func (w *World) refuse(c *call, why policy.Suppression) hedge.Action {
	c.refusal = why
	if why == policy.SuppressedSilence {
		return c.plan.Postponed(w.now - c.start)
	}
	return c.plan.Refused()
}

// granted has a token for the attempt that waited, which may not go any more.
func (w *World) granted(c *call) {
	if why, ok := w.mayHedge(c); !ok {
		action := w.refuse(c, why)
		c.client.agent.giveBack()
		w.follow(c, action, 0)
		return
	}
	w.launch(c)
}

// launch sends the next attempt, which may go.
func (w *World) launch(c *call) {
	i := c.plan.Attempts()
	c.plan.Started(w.now - c.start)
	if i == 1 && c.refusal != policy.SuppressedBudget && c.law.Observe > 0 {
		c.observed = w.coins.Float64() < c.law.Observe // one that had to wait is longer than others
	}
	w.result.hedge(w.now)
	if w.probe.Hedge != nil {
		w.probe.Hedge(w.now, c.start)
	}
	c.client.agent.hedged(c)
	w.send(c, i)
	w.setAlarm(c)
}

func (w *World) setAlarm(c *call) {
	if at, ok := c.plan.Next(); ok {
		w.push(event{at: c.start + at, kind: evDue, ref: c.ref, gen: c.gen})
	}
}

// follow does what the plan says; last is the attempt that ended last.
func (w *World) follow(c *call, action hedge.Action, last int) {
	switch action {
	case hedge.Commit:
		w.commit(c, last)
	case hedge.AttemptNow:
		w.due(c)
	default:
		w.setAlarm(c)
	}
}

// statusUnavailable is the gRPC status code of attempts that fail.
const statusUnavailable = 14

// back is an answer's arrival at the client.
func (w *World) back(c *call, i int) {
	a := &c.attempts[i]
	a.state = gone
	if !a.ended {
		a.ended = true
		a.took = w.now - a.sent
		c.client.outstanding[a.replica]--
		c.client.observe(a.replica, a.took, false)
		how, verdict := completed, hedge.Acceptable
		if a.fails {
			how, verdict = failed, hedge.Judge(&c.law, statusUnavailable)
		}
		if c.over && i > 0 && how == completed { // what it did once the call was over rescued nobody
			c.client.agent.ended(c, i, c.end-a.sent, censored)
		} else {
			c.client.agent.ended(c, i, a.took, how)
		}
		if !c.over {
			w.follow(c, c.plan.Ended(w.now-c.start, verdict, hedge.Pushback{}), i)
		}
	}
	w.left(c)
}

// commit ends the call with the outcome of attempt i and cancels what still runs.
func (w *World) commit(c *call, i int) {
	c.over, c.end = true, w.now
	cl := c.client
	if w.probe.Answer != nil {
		w.probe.Answer(w.answer(c, i))
	}
	for k := range c.plan.Attempts() {
		a := &c.attempts[k]
		if a.ended || c.observed && k <= 1 {
			continue
		}
		a.ended = true
		cl.outstanding[a.replica]--
		cl.observe(a.replica, w.now-a.sent, true)
		cl.agent.ended(c, k, w.now-a.sent, censored)
		w.cancel(c, k)
	}
	if c.attempts[i].fails {
		w.result.failed(c.start)
	}
	cl.agent.done(c, i)
	if !c.eligible && c.law.Delay > 0 {
		cl.agent.eligible(c, false)
	}
	w.callEnded(c)
}

// left counts an attempt that no replica knows any more. When there is none, a
// call that is over is used again.
func (w *World) left(c *call) {
	if c.live--; c.live == 0 && c.over {
		w.idle = append(w.idle, c.ref)
		c.gen++
	}
}

// take returns a call to use.
func (w *World) take() *call {
	if n := len(w.idle); n > 0 {
		c := w.calls[w.idle[n-1]]
		w.idle = w.idle[:n-1]
		c.over, c.eligible, c.tossed, c.heldOut, c.observed, c.refusal = false, false, false, false, false, 0
		return c
	}
	c := &call{ref: int32(len(w.calls))}
	w.calls = append(w.calls, c)
	return c
}

// join puts a new client into a slot.
func (w *World) join(slot int32) {
	cl := &client{slot: slot, number: w.joined, outstanding: make([]int64, len(w.replicas))}
	w.joined++
	cl.candidates = make([]candidate, len(w.replicas))
	for i := range cl.candidates {
		cl.candidates[i] = candidate{outstanding: &cl.outstanding[i], replica: int32(i), share: 1}
		if w.sc.routing == routePeakEWMA {
			cl.candidates[i].peak = &peakEWMA{w: w, cost: float64(ewmaStart), at: w.now}
		}
	}
	w.clients[slot] = cl
	cl.agent = w.law.join(cl)
	if w.sc.clientLife > 0 {
		life := limited(w.change.ExpFloat64() * float64(w.sc.clientLife))
		w.push(event{at: w.now + max(1, life), kind: evLife, ref: slot, gen: uint32(cl.number)})
	}
}

// observe tells routing by latency of an attempt.
func (cl *client) observe(replica int32, took time.Duration, censored bool) {
	if p := cl.candidates[replica].peak; p != nil {
		p.observe(took, censored)
	}
}

// life ends a client and starts the one that takes its place.
func (w *World) life(slot int32, number uint32) {
	if int(slot) >= len(w.clients) || w.clients[slot].number != int32(number) {
		return
	}
	w.leave(w.clients[slot])
	w.join(slot)
}

func (w *World) leave(cl *client) {
	cl.gone = true
	cl.agent.leave()
}

// setClients changes how many clients there are.
func (w *World) setClients(n int) {
	for len(w.clients) > n {
		w.leave(w.clients[len(w.clients)-1])
		w.clients = w.clients[:len(w.clients)-1]
	}
	for len(w.clients) < n {
		w.clients = append(w.clients, nil)
		w.join(int32(len(w.clients) - 1))
	}
}
