package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// race is one call on its way, whatever carries it. hedge.Plan decides when an
// attempt is due and when the call is over; race brings it the events (the alarm
// at the delay, the end of an attempt, a token), asks throttle, budget and
// carrier on its behalf, and counts.
//
// The primary runs on the caller's goroutine, unless the call may be observed. A
// call that is not hedged starts no goroutine then; a hedge has one, and so has a
// call while it waits for a token.
type race struct {
	ctx     context.Context // the caller's
	service *service
	alarms  *alarms
	carrier carrier
	name    string // of the method, as policies have it
	method  *method
	policy  *policy.Policy // in force at its start; nil: none
	law     *policy.Method // of policy, for this method; never written to
	start   time.Time

	mu      sync.Mutex // guards what follows, but for safe
	plan    hedge.Plan
	hedges  []runner
	last    runner        // the best that has ended: the last one, but no failure after a reply
	winner  runner        // its outcome is the call's; nil: its caller gave up
	decided chan struct{} // closed when it is over; nil while nobody waits for it
	alarm   *alarm
	waiter  hedge.Waiter
	end     time.Duration // from start, once it is over
	expiry  *time.Timer   // of an observed call that is over

	observable bool // it can be observed, if it is hedged; written before it runs

	safe      bool
	over      bool
	tossed    bool // the coin fell: hedge
	heldOut   bool // the coin fell: do not hedge
	eligible  bool
	observing bool               // primary and first hedge are to run to their ends, and do
	expired   bool               // they have run for long enough
	listening bool               // a goroutine listens to waiter.C
	refusal   policy.Suppression // why the last due attempt could not go
}

// carrier makes a race's hedges and takes its end. Its methods are called with
// race.mu held, and must not block.
type carrier interface {
	// first returns the primary.
	first() runner
	// ready reports whether a hedge has anywhere to go, and can be made at all;
	// if not, why not.
	ready() (policy.Suppression, bool)
	// launch starts a hedge, on a goroutine that calls race.ended at its end.
	launch(t try) runner
	// settle cancels every attempt that has not ended, but of a call that is being
	// observed (race.observed) only those after the first hedge.
	settle()
	// discard frees what an attempt holds that has ended and did not win.
	discard(runner)
}

// runner is an attempt as its carrier knows it.
type runner interface{ state() *try }

// try is an attempt as its race knows it. race.mu guards it once it runs.
type try struct {
	index int           // 0: the primary
	after time.Duration // from the call's start to the attempt's own

	replica  candidate      // that it goes to; zero before
	pushback hedge.Pushback // that its server asked for
	sent     bool           // and its server sees it, or will
	stranded bool           // no replica was left for it, or it could not be made

	took             time.Duration // until it ended
	told             bool          // took is its latency, or less
	ended            bool
	verdict          hedge.Verdict // written at its end, like what follows
	answered, failed bool          // its outcome did, or counts
}

func (t *try) state() *try { return t }

// begin counts the call, and reports whether it may be hedged. If not, it is
// made plainly, and measured tells what came of it.
func (r *race) begin(method string) bool {
	s := r.service
	r.name, r.method, r.policy, r.start = method, s.method(method), s.policy(), time.Now()
	s.noteCall(r.method, r.safe)

	mode := policy.ModeOff
	r.law = &noLaw
	if r.policy != nil {
		mode = r.policy.Mode
		r.law = r.method.under(r.policy, method)
	}
	if r.safe && mode == policy.ModeActive {
		s.budget.Earn() // whom it lets go is listening
	}
	return r.safe && mode != policy.ModeOff && r.law.Delay > 0
}

// measured takes the end of the only attempt of a call that is not hedged. What
// would have been eligible is known at its end.
func (r *race) measured(t *try, o outcome, err error) {
	took := time.Since(r.start)
	o.cancelled = o.torn && r.ctx.Err() != nil

	r.mu.Lock()
	r.record(t, o, took)
	t.tell(r.service.throttle, o)
	info := r.note(t, o, took, true)
	r.mu.Unlock()
	r.tellOf(info, err)
	if o.counts() {
		r.method.failures.Add(1)
	}
	switch {
	case r.law.Delay <= 0:
	case !r.safe:
		if took >= r.law.Delay {
			r.method.suppressed[policy.SuppressedUnsafe].Add(1)
		}
	case took >= r.law.Delay:
		r.service.noteEligible(r.method)
		r.method.suppressed[policy.SuppressedMode].Add(1)
	default:
		r.service.notePrompt()
	}
}

// run starts the race: its primary is about to be sent.
func (r *race) run() {
	r.plan = hedge.NewPlan(r.law)
	r.plan.Started(0)
	r.mu.Lock() // it may ring at once
	r.alarm = r.alarms.start(r, r.law.Delay)
	r.mu.Unlock()
}

// await returns the attempt whose outcome is the call's, or nil when the caller's
// context has ended first: it does not wait for hedges that are slow to notice.
// Only the caller's goroutine waits, after its own attempt has ended.
func (r *race) await() runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return r.winner
	}
	decided := r.decision()
	r.mu.Unlock()
	select {
	case <-decided:
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	if !r.over {
		r.plan.Refused()
		r.commit(nil)
	}
	return r.winner
}

// decision returns what is closed when the race is over, which it is not yet.
func (r *race) decision() <-chan struct{} {
	if r.decided == nil {
		r.decided = make(chan struct{})
	}
	return r.decided
}

// ended takes the end of an attempt, on that attempt's goroutine. err is what its
// caller would get.
func (r *race) ended(a runner, o outcome, err error) {
	r.tellOf(r.conclude(a, o), err)
}

// conclude draws the conclusions of an attempt's end.
func (r *race) conclude(a runner, o outcome) noted {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Since(r.start)
	t := a.state()
	if t.index > 0 && !t.sent {
		r.method.cancelledUnsent.Add(1)
	}
	o.cancelled = o.torn && (r.over || r.ctx.Err() != nil)
	t.ended, t.verdict, t.answered, t.failed = true, o.verdict, o.answered, o.counts()
	t.took, t.told = now-t.after, o.answered || o.cancelled
	if r.over && t.index > 0 && t.told { // what it did once the call was over rescued nobody
		r.record(t, outcome{cancelled: true}, r.end-t.after)
	} else {
		r.record(t, o, t.took)
	}

	verdict := o.verdict
	switch {
	case t.stranded:
		verdict = hedge.NonFatal
	case r.ctx.Err() != nil && verdict != hedge.Acceptable:
		verdict = hedge.Fatal // the caller has ended it
	}
	if !t.stranded {
		t.tell(r.service.throttle, o)
	}
	switch {
	case r.over || t.stranded:
		r.carrier.discard(a)
	case verdict == hedge.NonFatal && r.last != nil && r.last.state().verdict == hedge.NotAcceptable:
		r.carrier.discard(a) // any reply is better than none
	default:
		if r.last != nil {
			r.carrier.discard(r.last)
		}
		r.last = a
	}
	r.follow(r.plan.Ended(now, verdict, t.pushback), now)
	r.observe()
	return r.note(t, o, now-t.after, r.over && r.winner == a)
}

// follow does what the plan says.
func (r *race) follow(action hedge.Action, now time.Duration) {
	switch {
	case r.over:
	case action == hedge.Commit:
		r.commit(r.last)
	case action == hedge.AttemptNow:
		r.due(now)
	default:
		if r.listening && !r.plan.Waits() {
			r.service.budget.Leave(&r.waiter) // a server pushed back
		}
		r.setAlarm(now)
	}
}

// commit ends the call with the outcome of winner, and cancels what still runs.
func (r *race) commit(winner runner) {
	r.over, r.winner, r.end = true, winner, time.Since(r.start)
	r.alarms.stop(r.alarm)
	r.alarm = nil
	if r.observing {
		r.expiry = time.AfterFunc(observeLimit, r.expire)
	}
	r.carrier.settle()
	if r.decided != nil {
		close(r.decided)
	}
	switch {
	case !r.eligible:
		r.service.notePrompt()
	case r.plan.Attempts() == 1:
		r.method.suppressed[r.refusal].Add(1)
		r.method.unhedged.Record(r.end)
		if r.heldOut {
			r.method.heldOut.Record(r.end)
		}
	default:
		r.method.hedged.Record(r.end)
	}
	if winner == nil {
		if r.last != nil {
			r.carrier.discard(r.last)
		}
		return
	}
	t := winner.state()
	if t.index > 0 && t.answered {
		r.method.wins.Add(1)
	}
	if t.failed {
		r.method.failures.Add(1)
	}
}

// setAlarm sets the alarm for when time alone will matter next.
func (r *race) setAlarm(now time.Duration) {
	if at, ok := r.plan.Next(); ok && r.alarm != nil {
		r.alarm.timer.Reset(at - now)
	}
}

// ring is the alarm's. It may come early, and for nothing.
func (r *race) ring() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.ctx.Err() != nil {
		return // it is over, or about to be
	}
	now := time.Since(r.start)
	if !r.eligible && r.last == nil {
		if now < r.law.Delay {
			r.alarm.timer.Reset(r.law.Delay - now)
			return
		}
		r.eligible = true
		r.service.noteEligible(r.method)
		r.service.pending(r.law.Delay)
		if r.law.Probability <= 0 {
			r.refusal = policy.SuppressedProbability // the plan has no hedge at all
		}
	}
	at, ok := r.plan.Next()
	switch {
	case !ok:
	case now < at:
		r.setAlarm(now)
	case !r.plan.Waits():
		r.due(now)
	case r.service.budget.Promote(&r.waiter):
		r.granted(now)
	default:
		r.follow(r.plan.Waiting(now), now)
	}
}

// due sends the attempt that is due, if it may go, or has it wait for a token.
func (r *race) due(now time.Duration) {
	if why, ok := r.mayHedge(); !ok {
		r.refuse(why, now)
		return
	}
	if r.service.budget.Take(&r.waiter, r.plan.Late()) {
		r.launch(now)
		return
	}
	r.refusal = policy.SuppressedBudget
	if !r.listening {
		r.listening = true
		go r.listen(r.waiter.C, r.decision())
	}
	r.follow(r.plan.Waiting(now), now)
}

// mayHedge asks everything but the budget. The mode is read again, so that off
// holds for calls under way, and so does a pause.
func (r *race) mayHedge() (policy.Suppression, bool) {
	p := r.service.policy()
	if p == nil || p.Mode != policy.ModeActive || r.policy.Mode != policy.ModeActive {
		return policy.SuppressedMode, false
	}
	if law, _ := p.Method(r.name); law.Probability <= 0 {
		return policy.SuppressedProbability, false
	}
	if !r.tossed && rand.Float64() >= r.law.Probability*(1-r.law.Holdout) {
		r.heldOut = r.eligible
		return policy.SuppressedProbability, false
	}
	r.tossed = true // one coin for a call
	if !r.service.throttle.Allow() {
		return policy.SuppressedThrottle, false
	}
	r.service.pending(r.law.Delay)
	if !r.plan.Late() && r.service.silence.Holds(time.Since(r.service.start), r.law.Delay) {
		return policy.SuppressedSilence, false
	}
	return r.carrier.ready()
}

// refuse says why the due attempt may not go. Replicas come and go, and so may
// the primary's; a silence ends: it is asked for again. All else holds for the
// attempts after it too.
func (r *race) refuse(why policy.Suppression, now time.Duration) {
	r.refusal = why
	if why == policy.SuppressedReplica || why == policy.SuppressedSilence {
		r.follow(r.plan.Postponed(now), now)
		return
	}
	r.follow(r.plan.Refused(), now)
}

// granted has a token for the attempt that waited, which may not go any more.
func (r *race) granted(now time.Duration) {
	if why, ok := r.mayHedge(); !ok {
		r.giveBack()
		r.refuse(why, now)
		return
	}
	r.launch(now)
}

// giveBack returns a token that was received and not spent. Whom it lets go is
// listening.
func (r *race) giveBack() { r.service.budget.Return() }

// listen waits for tokens on the call's behalf, until the call ends.
func (r *race) listen(tokens, decided <-chan struct{}) {
	for {
		select {
		case <-tokens:
			r.mu.Lock()
			if !r.over && r.plan.Waits() {
				r.granted(time.Since(r.start))
			} else {
				r.giveBack()
			}
			r.mu.Unlock()
			continue
		case <-decided:
		case <-r.ctx.Done(): // its caller has gone, so it will be over
		}
		// Whom the token lets go, if there is one, is listening too.
		r.mu.Lock()
		r.service.budget.Leave(&r.waiter)
		r.mu.Unlock()
		return
	}
}

// launch sends the next attempt, whose token is taken.
func (r *race) launch(now time.Duration) {
	r.plan.Started(now)
	r.method.hedges.Add(1)
	r.choose()
	r.service.silence.Hedged(now + r.start.Sub(r.service.start))
	r.hedges = append(r.hedges, r.carrier.launch(try{index: r.plan.Attempts() - 1, after: now}))
	r.setAlarm(now)
}

// tried returns the replicas of the attempts other than a.
func (r *race) tried(a runner) []candidate {
	if len(r.hedges) == 0 {
		return nil
	}
	out := make([]candidate, 0, policy.MaxAttempts)
	return r.appendTried(out, a)
}

func (r *race) appendTried(out []candidate, a runner) []candidate {
	first := r.carrier.first()
	if t := first.state(); first != a && t.replica.liveReplica != nil {
		out = append(out, t.replica)
	}
	for _, h := range r.hedges {
		if t := h.state(); h != a && t.replica.liveReplica != nil {
			out = append(out, t.replica)
		}
	}
	return out
}
