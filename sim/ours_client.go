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
	budget   *hedge.Budget
	throttle *hedge.Throttle
	early    *hedge.EarlyRule
	runaway  bool // a report goes out ahead of the cadence

	inForce *policy.Policy
	law     policy.Method // of inForce
	valid   bool          // inForce has not outlived its valid_for
	heard   time.Duration // of the daemon's last message

	sequence   uint64
	generation policy.Generation // in force when the interval began
	began      time.Duration     // of the interval
	counts     report.Method
	replicas   []*report.Replica
	held       []*report.Report // the daemon was away
}

func (l *ours) join(c *client) agent {
	cl := &oursClient{
		l: l,
		c: c,
		source: report.Source{
			ID:          fmt.Sprintf("client-%d", c.slot),
			Incarnation: uint64(c.number) + 1,
		},
		budget:   hedge.NewBudget(),
		throttle: hedge.NewThrottle(),
		early:    hedge.NewEarlyRule(),
		heard:    l.w.now,
		began:    l.w.now,
		replicas: make([]*report.Replica, len(l.w.replicas)),
	}
	l.byNumber[c.number] = cl
	phase := time.Duration(l.w.change.Int64N(int64(l.w.sc.cadence)))
	l.w.push(event{at: l.w.now + 1 + phase, kind: evLawClient, ref: c.number})
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
	a.law, _ = p.Method(simMethod)
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
		expected = a.inForce.Budget.Ratio
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

func (a *oursClient) method() policy.Method {
	if !a.live() {
		return policy.Method{}
	}
	return a.law
}

func (a *oursClient) sent() {
	a.counts.Calls++
	a.counts.Safe++
	a.l.grant(a.budget.Earn())
}

func (a *oursClient) eligible(yes bool) {
	if yes {
		a.counts.Eligible++
	}
	if a.early.Observe(yes, a.l.w.now) && !a.runaway {
		a.runaway = true
		a.flush(true)
	}
}

func (a *oursClient) mayHedge(c *call) (policy.Suppression, bool) {
	switch {
	case !a.live() || a.inForce.Mode != policy.ModeActive:
		return policy.SuppressedMode, false
	case a.law.Probability <= 0: // since the call began
		return policy.SuppressedProbability, false
	case !a.throttle.Allow():
		return policy.SuppressedThrottle, false
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
	a.counts.Hedges++
	if c.observed && c.plan.Attempts() == 2 {
		a.counts.Observed++
	}
}

func (a *oursClient) replica(i int32) *report.Replica {
	if a.replicas[i] == nil {
		a.replicas[i] = &report.Replica{}
	}
	return a.replicas[i]
}

func (a *oursClient) ended(c *call, i int, took time.Duration, how outcome) {
	r := a.replica(c.attempts[i].replica)
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
	x, y := &c.attempts[0], &c.attempts[1]
	if c.observed && i <= 1 && x.ended && y.ended && !x.fails && !y.fails && len(a.counts.Pairs) < report.MaxPairs {
		a.counts.Pairs = append(a.counts.Pairs, estimator.NewPair(x.took, y.took))
	}
}

func (a *oursClient) done(c *call, i int) {
	if c.attempts[i].fails {
		a.counts.Failures++
	} else if i > 0 {
		a.counts.Wins++
	}
	if c.eligible {
		waited := a.l.w.now - c.start
		if c.plan.Attempts() == 1 {
			a.counts.Suppressed[c.refusal]++
			a.counts.Unhedged.Record(waited)
			if c.heldOut {
				a.counts.HeldOut.Record(waited)
			}
		} else {
			a.counts.Hedged.Record(waited)
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

// flush ends the interval and sends its report.
func (a *oursClient) flush(early bool) {
	w := a.l.w
	m := a.counts
	a.counts = report.Method{}
	a.sequence++
	r := &report.Report{
		Source:     a.source,
		Service:    a.l.key,
		Sequence:   a.sequence,
		Interval:   w.now - a.began,
		Generation: a.generation,
		Early:      early,
	}
	for i, seen := range a.replicas {
		if seen != nil {
			if m.Replicas == nil {
				m.Replicas = make(map[string]*report.Replica, len(a.replicas))
			}
			m.Replicas[a.l.names[i]] = seen
			a.replicas[i] = nil
		}
	}
	if m.Calls > 0 || m.Replicas != nil || m.Eligible > 0 || m.Hedges > 0 || m.Pairs != nil {
		r.Methods = map[string]*report.Method{simMethod: &m}
	}
	a.began, a.runaway = w.now, false
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
