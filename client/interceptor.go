package client

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc"
)

// interceptor is what all calls of one connection share.
type interceptor struct {
	service *service
	safety  *safety
	alarms  alarms
	scopes  scopes

	acceptable func(fullMethod string, reply any) bool // nil: every reply
}

// interceptor returns what measures a connection's unary calls and server streams
// for s and hedges those that may run twice.
//
// A request of a protobuf type may be put to another use as soon as its call has
// returned, as without hedging; one of another type must not be written to
// afterwards, as a hedge that lost may still be reading it.
func (c *Client) interceptor(s *service) *interceptor {
	return &interceptor{service: s, safety: c.safety, acceptable: c.opts.Acceptable}
}

func (in *interceptor) unary(ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := &call{request: request{fullMethod, req, reply, cc, invoker, opts}}
	c.ctx, c.service, c.alarms, c.carrier = unmarked(ctx), in.service, &in.alarms, c
	c.safe = in.safety.safe(fullMethod) || keyed(ctx)
	c.primary.call, c.acceptable = c, in.acceptable
	if !c.begin(fullMethod) {
		return c.plain()
	}
	if c.law.Observe > 0 && rand.Float64() < c.law.Observe && c.detach() {
		return c.detached()
	}
	return c.hedged(&in.scopes)
}
