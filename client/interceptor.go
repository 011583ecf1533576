package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/hedged-project/hedged/policy"
)

// interceptor is what all calls of one connection share.
type interceptor struct {
	service *service
	safety  *safety
	alarms  alarms
}

// unaryInterceptor returns the interceptor that measures a connection's unary
// calls for s and hedges those that may run twice. Streams pass by it.
//
// A request of a protobuf type may be put to another use as soon as its call has
// returned, as without hedging; one of another type must not be written to
// afterwards, as a hedge that lost may still be reading it.
func (c *Client) unaryInterceptor(s *service) grpc.UnaryClientInterceptor {
	in := &interceptor{service: s, safety: c.safety}
	return in.unary
}

func (in *interceptor) unary(ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	s := in.service
	p := s.policy()
	safe := in.safety.safe(fullMethod) || keyed(ctx)
	c := &call{
		interceptor: in,
		request:     request{ctx, fullMethod, req, reply, cc, invoker, opts},
		method:      s.method(fullMethod),
		policy:      p,
		safe:        safe,
		start:       time.Now(),
	}
	c.primary.call = c
	s.noteCall(c.method, safe)

	mode := policy.ModeOff
	if p != nil {
		mode = p.Mode
		c.law, _ = p.Method(fullMethod)
	}
	if safe && mode == policy.ModeActive {
		s.budget.Earn() // whom it lets go is listening
	}
	if !safe || mode == policy.ModeOff || c.law.Delay <= 0 {
		return c.plain()
	}
	return c.hedged()
}
