package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// call is one unary call on its way. hedge.Plan decides when an attempt is due
// and when the call is over; call brings it the events (the alarm at the delay,
// the end of an attempt, a token), asks throttle, budget and balancer on its
// behalf, and counts.
//
// The primary runs on the caller's goroutine. A call that is not hedged starts no
// goroutine; a hedge has one, and so has a call while it waits for a token.
type call struct {
	*interceptor
	request
	method *method
	policy *policy.Policy // in force at its start; nil: none
	law    policy.Method  // of policy, for this method
	safe   bool
	start  time.Time

	shared    context.Context // of all attempts; it ends with the call
	cancel    context.CancelFunc
	replyType protoreflect.MessageType // nil: no protobuf message

	primary attempt

	mu       sync.Mutex // guards what follows
	plan     hedge.Plan
	hedges   []*attempt
	last     *attempt // ended last, of those that a replica could be found for
	winner   *attempt // its outcome is the call's; nil while the call is under way
	decided  chan struct{}
	alarm    *alarm
	balancer *replicaBalancer // of the last pick; nil before the first

	tossed    bool // the coin fell: hedge
	eligible  bool
	refusal   policy.Suppression // why the last due attempt could not go
	waiter    hedge.Waiter
	listening bool // a goroutine listens to waiter.C
	copied    any  // of the request, for hedges
	spare     any  // reply, for the next hedge
}

// request is what the caller asked for.
type request struct {
	ctx        context.Context
	fullMethod string
	req, reply any
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	opts       []grpc.CallOption
}

// plain makes the call as if there were no hedging, and measures it. What would
// have been eligible is known at its end.
func (c *call) plain() error {
	c.primary.Context = c.ctx
	err := c.invoker(&c.primary, c.fullMethod, c.req, c.reply, c.cc, c.opts...)
	took := time.Since(c.start)
	result := outcomeOf(c.ctx, err)

	c.mu.Lock()
	c.primary.record(result, took)
	c.primary.tell(c.service.throttle, result, hedge.Judge(&c.law, uint32(result.code)))
	c.mu.Unlock()
	if result.counts() {
		c.method.failures.Add(1)
	}
	switch {
	case c.law.Delay <= 0:
	case !c.safe:
		if took >= c.law.Delay {
			c.method.suppressed[policy.SuppressedUnsafe].Add(1)
		}
	case took >= c.law.Delay:
		c.service.noteEligible(c.method)
		c.method.suppressed[policy.SuppressedMode].Add(1)
	default:
		c.service.notePrompt()
	}
	return err
}

// hedged makes the call, with hedges when they are due and may go.
func (c *call) hedged() error {
	c.shared, c.cancel = context.WithCancel(c.ctx)
	c.primary.Context = c.shared
	c.plan = hedge.NewPlan(&c.law)
	c.plan.Started(0)
	c.replyType = messageType(c.reply)
	c.alarm = c.alarms.start(c, c.law.Delay)

	err := c.invoker(&c.primary, c.fullMethod, c.req, c.reply, c.cc, withoutFinish(c.opts)...)
	c.ended(&c.primary, err)
	winner := c.await()

	if winner.index > 0 {
		winner.deliver(c.reply, c.opts)
		if outcomeOf(c.shared, winner.err).answered() {
			c.method.wins.Add(1)
		}
	}
	err = c.callersError(winner.err)
	finish(c.opts, err)
	return err
}

// await returns the attempt whose outcome is the call's. Only the caller's
// goroutine waits, after its own attempt has ended; when its context ends first,
// it does not wait for hedges that are slow to notice.
func (c *call) await() *attempt {
	c.mu.Lock()
	if c.winner == nil {
		c.decided = make(chan struct{})
		c.mu.Unlock()
		select {
		case <-c.decided:
		case <-c.ctx.Done():
		}
		c.mu.Lock()
		if c.winner == nil {
			c.plan.Refused()
			c.commit(&attempt{call: c, err: status.FromContextError(c.ctx.Err()).Err()})
		}
	}
	defer c.mu.Unlock()
	return c.winner
}

// callersError returns err as a call without hedging would have ended: what came
// of the caller's own context has that context's code.
func (c *call) callersError(err error) error {
	if err == nil || c.ctx.Err() == nil {
		return err
	}
	want := status.FromContextError(c.ctx.Err()).Code()
	if code := codeOf(err); code == want || code != codes.Canceled && code != codes.DeadlineExceeded {
		return err
	}
	return status.Error(want, c.ctx.Err().Error())
}

// ended takes the end of an attempt, on that attempt's goroutine.
func (c *call) ended(a *attempt, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start)
	a.err = err
	if a.index > 0 && !a.sent {
		c.method.cancelledUnsent.Add(1)
	}
	result := outcomeOf(c.shared, err)
	a.record(result, now-a.after)

	verdict := hedge.Judge(&c.law, uint32(result.code))
	switch {
	case a.stranded:
		verdict = hedge.NonFatal
	case c.ctx.Err() != nil && verdict == hedge.NonFatal:
		verdict = hedge.Fatal // the caller has ended it
	}
	if !a.stranded {
		c.last = a
		a.tell(c.service.throttle, result, verdict)
	}
	c.follow(c.plan.Ended(now, verdict, a.pushback), now)
}

// follow does what the plan says.
func (c *call) follow(action hedge.Action, now time.Duration) {
	switch {
	case c.winner != nil:
	case action == hedge.Commit:
		c.commit(c.last)
	case action == hedge.AttemptNow:
		c.due(now)
	default:
		if c.listening && !c.plan.Waits() {
			c.service.budget.Leave(&c.waiter) // a server pushed back
		}
		c.setAlarm(now)
	}
}

// commit ends the call with the outcome of winner, and cancels what still runs.
func (c *call) commit(winner *attempt) {
	c.winner = winner
	c.alarms.stop(c.alarm)
	c.alarm = nil
	c.cancel()
	if c.decided != nil {
		close(c.decided)
	}
	switch {
	case !c.eligible:
		c.service.notePrompt()
	case c.plan.Attempts() == 1:
		c.method.suppressed[c.refusal].Add(1)
	}
	if outcomeOf(c.ctx, winner.err).counts() {
		c.method.failures.Add(1)
	}
}

// setAlarm sets the alarm for when time alone will matter next.
func (c *call) setAlarm(now time.Duration) {
	if at, ok := c.plan.Next(); ok && c.alarm != nil {
		c.alarm.timer.Reset(at - now)
	}
}

// ring is the alarm's. It may come early, and for nothing.
func (c *call) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.winner != nil || c.shared.Err() != nil {
		return // it is over, or about to be
	}
	now := time.Since(c.start)
	if !c.eligible && c.last == nil {
		if now < c.law.Delay {
			c.alarm.timer.Reset(c.law.Delay - now)
			return
		}
		c.eligible = true
		c.service.noteEligible(c.method)
		if c.law.Probability <= 0 {
			c.refusal = policy.SuppressedProbability // the plan has no hedge at all
		}
	}
	at, ok := c.plan.Next()
	switch {
	case !ok:
	case now < at:
		c.setAlarm(now)
	case !c.plan.Waits():
		c.due(now)
	case c.service.budget.Promote(&c.waiter):
		c.granted(now)
	default:
		c.follow(c.plan.Waiting(now), now)
	}
}

// due sends the attempt that is due, if it may go, or has it wait for a token.
func (c *call) due(now time.Duration) {
	if why, ok := c.mayHedge(); !ok {
		c.refuse(why, now)
		return
	}
	if c.service.budget.Take(&c.waiter, c.plan.Late()) {
		c.launch(now)
		return
	}
	c.refusal = policy.SuppressedBudget
	if !c.listening {
		c.listening = true
		go c.listen(c.waiter.C)
	}
	c.follow(c.plan.Waiting(now), now)
}

// mayHedge asks everything but the budget. The mode is read again, so that off
// holds for calls under way, and so does a pause.
func (c *call) mayHedge() (policy.Suppression, bool) {
	p := c.service.policy()
	if p == nil || p.Mode != policy.ModeActive || c.policy.Mode != policy.ModeActive {
		return policy.SuppressedMode, false
	}
	if law, _ := p.Method(c.fullMethod); law.Probability <= 0 {
		return policy.SuppressedProbability, false
	}
	if !c.tossed && rand.Float64() >= c.law.Probability {
		return policy.SuppressedProbability, false
	}
	c.tossed = true // one coin for a call
	if !c.service.throttle.Allow() {
		return policy.SuppressedThrottle, false
	}
	if !c.untried() {
		return policy.SuppressedReplica, false
	}
	if c.spare == nil {
		spare, ok := newMessage(c.reply, c.replyType)
		if !ok {
			return policy.SuppressedUnsafe, false // two attempts would write one reply
		}
		c.spare = spare
	}
	return 0, true
}

// refuse says why the due attempt may not go, nor any after it.
func (c *call) refuse(why policy.Suppression, now time.Duration) {
	c.refusal = why
	c.follow(c.plan.Refused(), now)
}

// granted has a token for the attempt that waited, which may not go any more.
func (c *call) granted(now time.Duration) {
	if why, ok := c.mayHedge(); !ok {
		c.giveBack()
		c.refuse(why, now)
		return
	}
	c.launch(now)
}

// giveBack returns a token that was received and not spent. Whom it lets go is
// listening.
func (c *call) giveBack() { c.service.budget.Return() }

// listen waits for tokens on the call's behalf, until the call ends.
func (c *call) listen(tokens <-chan struct{}) {
	for {
		select {
		case <-tokens:
			c.mu.Lock()
			if c.winner == nil && c.plan.Waits() {
				c.granted(time.Since(c.start))
			} else {
				c.giveBack()
			}
			c.mu.Unlock()
		case <-c.shared.Done():
			// The call is over, or will be: its caller has gone. Whom the token
			// lets go, if there is one, is listening too.
			c.mu.Lock()
			c.service.budget.Leave(&c.waiter)
			c.mu.Unlock()
			return
		}
	}
}

// launch sends the next attempt, whose token is taken.
func (c *call) launch(now time.Duration) {
	if c.copied == nil {
		c.copied = copyRequest(c.req)
	}
	c.plan.Started(now)
	c.method.hedges.Add(1)
	index := c.plan.Attempts() - 1
	a := &attempt{
		Context:  hedgeContext(c.shared, index),
		call:     c,
		index:    index,
		after:    now,
		received: &received{reply: c.spare},
	}
	c.spare = nil
	c.hedges = append(c.hedges, a)
	c.setAlarm(now)
	go a.run(c.copied)
}

// tried returns the replicas of the attempts other than a.
func (c *call) tried(a *attempt) []candidate {
	if len(c.hedges) == 0 {
		return nil
	}
	out := make([]candidate, 0, policy.MaxAttempts)
	if a != &c.primary && c.primary.replica.liveReplica != nil {
		out = append(out, c.primary.replica)
	}
	for _, h := range c.hedges {
		if h != a && h.replica.liveReplica != nil {
			out = append(out, h.replica)
		}
	}
	return out
}

// untried reports whether a replica that no attempt has tried is ready now.
// Before the primary's pick there is nothing to race.
func (c *call) untried() bool {
	if c.primary.replica.liveReplica == nil {
		return false
	}
	p := c.balancer.current.Load()
	if p == nil {
		return false
	}
	tried := append(make([]candidate, 0, policy.MaxAttempts), c.primary.replica)
	for _, h := range c.hedges {
		tried = append(tried, h.replica)
	}
	return hedge.Untried(p.candidates(c.policy), tried)
}
