package sim

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// maxHeld is how many reports a client keeps while the daemon is away.
const maxHeld = 60

// oursClient is package client's law of one service, without the network.
type oursClient struct {
	l        *ours
	c        *client
	source   report.Source
	lies     bool
	budget   *hedge.Budget
	throttle *hedge.Throttle
	silence  hedge.Silence
	early    *hedge.EarlyRule
	runaway  bool // a report goes out ahead of the cadence
	looks    int
	fresh    uint64 // calls begun in the interval

	inForce *policy.Policy
	laws    []policy.Method // of inForce, by method
	valid   bool            // inForce has not outlived its valid_for
	heard   time.Duration   // of the daemon's last message

	sequence   uint64
	generation policy.Generation   // in force when the interval began
	began      time.Duration       // of the interval
	counts     []report.Method     // by method
	replicas   [][]*report.Replica // by method and replica
	held       []*report.Report    // the daemon was away
}

func (l *ours) join(c *client) agent {
	methods := len(l.methods)
	cl := &oursClient{
		l: l,
		c: c,
		source: report.Source{
			ID:          fmt.Sprintf("client-%d", c.slot),
			Incarnation: uint64(c.number) + 1,
			Zone:        l.w.sc.zones.name(c.slot),
		},
		lies:     among(l.w.sc.liars, c.slot),
		budget:   hedge.NewBudget(),
		throttle: hedge.NewThrottle(),
		early:    hedge.NewEarlyRule(),
		heard:    l.w.now,
		began:    l.w.now,
		laws:     make([]policy.Method, methods),
		counts:   make([]report.Method, methods),
		replicas: make([][]*report.Replica, methods),
	}
	for i := range cl.replicas {
		cl.replicas[i] = make([]*report.Replica, len(l.w.replicas))
	}
	l.byNumber[c.number] = cl
	phase := time.Duration(l.w.change.Int64N(int64(l.w.sc.cadence)))
	l.w.push(event{at: l.w.now + 1 + phase, kind: evLawClient, ref: c.number, gen: l.id})
	if l.policy != nil && !l.w.daemonDown {
		l.post(message{policy: l.policy, to: cl})
	}
	return cl
}

func (a *oursClient) apply(p *policy.Policy) {
	if a.c.gone || a.inForce != nil && p.Generation.Compare(a.inForce.Generation) <= 0 {
		return
	}
	a.heard = a.l.w.now
	a.inForce = p
	for i, name := range a.l.methods {
		a.laws[i], _ = p.Method(name)
	}
	a.c.unwell = 0
	for i := range a.c.candidates {
		r := &a.c.candidates[i]
		r.state, r.share = policy.ReplicaServing, 1
		if standing, ok := p.Replicas[a.l.names[i]]; ok {
			r.state, r.share = standing.State, standing.Share
			a.c.unwell++
		}
	}
	a.throttle.Set(p.Throttle)
	a.flush(false)
	a.enforce(true)
}

// enforce has the policy's budget in force, or none.
func (a *oursClient) enforce(valid bool) {
	a.valid = valid
	expected := 0.0
	if valid {
		expected = a.inForce.Expected()
	}
	a.early.Set(expected)
	a.l.grant(a.budget.Set(a.inForce.Budget, valid && a.inForce.Mode == policy.ModeActive))
}

// live takes the policy out of force when nothing was heard for its valid_for,
// and brings it back when something was.
func (a *oursClient) live() bool {
	if a.inForce == nil {
		return false
	}
	if valid := a.l.w.now-a.heard < a.inForce.ValidFor; valid != a.valid {
		a.enforce(valid)
	}
	return a.valid
}

func (a *oursClient) method(method int32) policy.Method {
	if !a.live() {
		return policy.Method{}
	}
	return a.laws[method]
}

func (a *oursClient) sent(method int32) {
	a.fresh++
	a.counts[method].Calls++
	a.counts[method].Safe++
	a.l.grant(a.budget.Earn())
}

func (a *oursClient) eligible(c *call, yes bool) {
	now := a.l.w.now
	early := a.early.Observe(yes, now)
	if yes {
		a.counts[c.method].Eligible++
		early = a.pending(c) || early
	}
	if early && !a.runaway {
		a.runaway = true
		a.flush(true)
	}
}

// pending reports whether a call that is pending is the sign of a silence that is
// to be reported.
func (a *oursClient) pending(c *call) bool {
	return a.silence.Pending(a.l.w.now, c.law.Delay) && a.early.Alarm(a.l.w.now)
}

func (a *oursClient) mayHedge(c *call) (policy.Suppression, bool) {
	switch {
	case !a.live() || a.inForce.Mode != policy.ModeActive:
		return policy.SuppressedMode, false
	case a.laws[c.method].Probability <= 0: // since the call began
		return policy.SuppressedProbability, false
	case !a.throttle.Allow():
		return policy.SuppressedThrottle, false
	}
	if a.pending(c) {
		a.flush(true)
	}
	if !c.plan.Late() && a.silence.Holds(a.l.w.now, c.law.Delay) {
		return policy.SuppressedSilence, false
	}
	return 0, true
}

func (a *oursClient) take(c *call) answer {
	if a.budget.Take(&c.waiter, c.plan.Late()) {
		return goes
	}
	a.l.waiting[&c.waiter] = c
	return waits
}

func (a *oursClient) promote(c *call) bool {
	if !a.budget.Promote(&c.waiter) {
		return false
	}
	delete(a.l.waiting, &c.waiter)
	return true
}

func (a *oursClient) giveBack() {
	if next := a.budget.Return(); next != nil {
		a.l.grant([]*hedge.Waiter{next})
	}
}

func (a *oursClient) hedged(c *call) {
	a.silence.Hedged(a.l.w.now)
	a.counts[c.method].Hedges++
	if c.observed && c.plan.Attempts() == 2 {
		a.counts[c.method].Observed++
	}
}

func (a *oursClient) replica(method, i int32) *report.Replica {
	r := &a.replicas[method][i]
	if *r == nil {
		*r = &report.Replica{}
	}
	return *r
}

func (a *oursClient) ended(c *call, i int, took time.Duration, how outcome) {
	if how != censored {
		a.silence.Answered()
	}
	if a.lies {
		took = a.l.w.sc.lie.latency(a.l.w, took)
	}
	r := a.replica(c.method, c.attempts[i].replica)
	seen := &r.Primary
	if i > 0 {
		seen = &r.Hedge
	}
	switch how {
	case completed:
		seen.Completed.Record(took)
		a.throttle.Success()
	case censored:
		seen.Censored.Record(took)
	case failed:
		r.Failed++
		a.throttle.Failure()
	}
	counts, x, y := &a.counts[c.method], &c.attempts[0], &c.attempts[1]
	if c.observed && i <= 1 && x.ended && y.ended && !x.fails && !y.fails && len(counts.Pairs) < report.MaxPairs {
		counts.Pairs = append(counts.Pairs, estimator.NewPair(x.took, y.took))
	}
}

func (a *oursClient) done(c *call, i int) {
	counts := &a.counts[c.method]
	if c.attempts[i].fails {
		counts.Failures++
	} else if i > 0 {
		counts.Wins++
	}
	if c.eligible {
		waited := a.l.w.now - c.start
		if c.plan.Attempts() == 1 {
			counts.Suppressed[c.refusal]++
			counts.Unhedged.Record(waited)
			if c.heldOut {
				counts.HeldOut.Record(waited)
			}
		} else {
			counts.Hedged.Record(waited)
		}
	}
	if _, ok := a.l.waiting[&c.waiter]; ok {
		delete(a.l.waiting, &c.waiter)
		if _, next := a.budget.Leave(&c.waiter); next != nil {
			a.l.grant([]*hedge.Waiter{next})
		}
	}
}

func (a *oursClient) leave() {
	a.flush(false)
	delete(a.l.byNumber, a.c.number)
}

func (a *oursClient) look() {
	if hedge.Reports(a.looks, a.fresh) {
		a.flush(false)
	}
	a.looks++
}

// flush ends the interval and sends its report.
func (a *oursClient) flush(early bool) {
	w := a.l.w
	a.sequence++
	r := &report.Report{
		Source:     a.source,
		Service:    a.l.key,
		Sequence:   a.sequence,
		Interval:   w.now - a.began,
		Generation: a.generation,
		Early:      early,
		Silent:     a.silence.Silent(),
	}
	for i := range a.counts {
		if m := a.measured(i); m != nil {
			if r.Methods == nil {
				r.Methods = make(map[string]*report.Method, len(a.counts))
			}
			r.Methods[a.l.methods[i]] = m
		}
	}
	a.began, a.runaway, a.fresh = w.now, false, 0
	a.early.Reset()
	a.generation = policy.Generation{}
	if a.inForce != nil {
		a.generation = a.inForce.Generation
	}
	switch {
	case w.daemonDown:
		a.hold(r)
	case w.sc.loss > 0 && w.ways.Float64() < w.sc.loss:
	default:
		a.heard = w.now
		a.l.post(message{report: r, from: a})
	}
}

// measured returns what was measured of a method in the interval; nil: nothing.
func (a *oursClient) measured(method int) *report.Method {
	m := a.counts[method]
	a.counts[method] = report.Method{}
	for i, seen := range a.replicas[method] {
		if seen != nil {
			if m.Replicas == nil {
				m.Replicas = make(map[string]*report.Replica, len(a.l.names))
			}
			m.Replicas[a.l.names[i]] = seen
			a.replicas[method][i] = nil
		}
	}
	if m.Calls == 0 && m.Replicas == nil && m.Eligible == 0 && m.Hedges == 0 && m.Pairs == nil {
		return nil
	}
	if a.lies && a.l.w.sc.lie == lieCounts {
		exaggerate(&m)
	}
	return &m
}

// hold keeps a report until the daemon is back; the oldest give way.
func (a *oursClient) hold(r *report.Report) {
	if r.Methods == nil {
		return
	}
	r.Early = false
	a.held = append(a.held, r)
	if len(a.held) > maxHeld {
		a.held = a.held[1:]
	}
}

func (a *oursClient) resend() {
	for _, r := range a.held {
		a.l.post(message{report: r, from: a})
	}
	a.held = nil
	a.heard = a.l.w.now
}
