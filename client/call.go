package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// call is one unary call over gRPC, the carrier of its own race.
type call struct {
	race
	request
	cancel    context.CancelFunc       // ends every attempt
	replyType protoreflect.MessageType // nil: no protobuf message
	primary   attempt

	acceptable func(fullMethod string, reply any) bool // nil: every reply

	// Guarded by race.mu.
	balancer *replicaBalancer // of the last pick; nil before the first
	copied   any              // of the request, for hedges
	spare    any              // reply, for the next hedge

	later       context.Context // of an observed call's attempts after its first hedge; nil: none went
	cancelLater context.CancelFunc
}

// request is what the caller asked for.
type request struct {
	fullMethod string
	req, reply any
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	opts       []grpc.CallOption
}

// plain makes the call as if there were no hedging, and measures it.
func (c *call) plain() error {
	c.primary.Context = c.ctx
	err := c.invoker(&c.primary, c.fullMethod, c.req, c.reply, c.cc, c.opts...)
	c.measured(&c.primary.try, c.judge(c.reply, err), err)
	return err
}

// hedged makes the call, with hedges when they are due and may go.
func (c *call) hedged(scopes *scopes) error {
	if c.ctx.Done() == nil {
		c.primary.Context, c.primary.scope = c.ctx, scopes.get()
		c.cancel = c.primary.scope.cancel
	} else {
		c.primary.Context, c.cancel = context.WithCancel(c.ctx)
	}
	c.replyType = messageType(c.reply)
	c.run()

	c.primary.err = c.invoker(&c.primary, c.fullMethod, c.req, c.reply, c.cc, withoutFinish(c.opts)...)
	c.ended(&c.primary, c.judge(c.reply, c.primary.err), c.primary.err)

	var err error
	if winner, ok := c.await().(*attempt); ok {
		if winner.index > 0 {
			winner.deliver(c.reply, c.opts)
		}
		err = c.callersError(winner.err)
	} else {
		err = status.FromContextError(c.ctx.Err()).Err()
	}
	if len(c.hedges) == 0 && c.primary.scope != nil {
		scopes.put(c.primary.scope) // nobody was left to be ended
	} else {
		c.cancel()
	}
	c.noteHedges()
	finish(c.opts, err)
	return err
}

// detach gives the primary a request and a reply of its own, and a context that
// keeps the caller's deadline only, so that it can run on when the call is over.
// False: it cannot.
func (c *call) detach() bool {
	c.replyType = messageType(c.reply)
	reply, ok := newMessage(c.reply, c.replyType)
	if !ok || !c.fits() {
		return false
	}
	c.observable, c.copied = true, copyRequest(c.req)
	c.primary.received = &received{reply: reply}
	ctx := context.WithoutCancel(c.ctx)
	if deadline, ok := c.ctx.Deadline(); ok {
		c.primary.Context, c.cancel = context.WithDeadline(ctx, deadline)
	} else {
		c.primary.Context, c.cancel = context.WithCancel(ctx)
	}
	return true
}

// detached makes the call like hedged, its primary on a goroutine of its own.
func (c *call) detached() error {
	c.run()
	go c.primary.run(c.copied)

	var err error
	if winner, ok := c.await().(*attempt); ok {
		winner.deliver(c.reply, c.opts)
		err = c.callersError(winner.err)
	} else {
		err = status.FromContextError(c.ctx.Err()).Err()
	}
	c.mu.Lock()
	if !c.observed() {
		c.cancel()
	}
	c.mu.Unlock()
	finish(c.opts, err)
	return err
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

// first is part of carrier.
func (c *call) first() runner { return &c.primary }

// ready is part of carrier.
func (c *call) ready() (policy.Suppression, bool) {
	if !c.untried() {
		return policy.SuppressedReplica, false
	}
	if c.copied == nil && !c.fits() {
		return policy.SuppressedUnsafe, false
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
	tried := c.appendTried(make([]candidate, 0, policy.MaxAttempts), nil)
	return hedge.Untried(p.candidates(c.policy), tried)
}

// launch is part of carrier.
func (c *call) launch(t try) runner {
	if c.copied == nil {
		c.copied = copyRequest(c.req)
	}
	ctx := c.primary.Context
	if c.observing && t.index > 1 {
		if c.later == nil {
			c.later, c.cancelLater = context.WithCancel(ctx)
		}
		ctx = c.later
	}
	a := &attempt{
		Context:  hedgeContext(ctx, t.index),
		scope:    c.primary.scope,
		call:     c,
		try:      t,
		received: &received{reply: c.spare},
	}
	c.spare = nil
	go a.run(c.copied)
	return a
}

// settle is part of carrier. A unary call that has ended leaves nothing that must
// go on.
func (c *call) settle() {
	switch {
	case len(c.hedges) == 0:
	case !c.observed():
		c.cancel()
	case c.later != nil:
		c.cancelLater()
	}
}

// discard is part of carrier.
func (c *call) discard(runner) {}
