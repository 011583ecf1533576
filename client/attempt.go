package client

import (
	"context"
	"reflect"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hedged-project/hedged/hedge"
)

// Metadata of a hedge: how many attempts went before it, as gRFC A6 has it, and
// the same under a name that only hedges carry, by which servers count them.
const (
	previousAttemptsKey = "grpc-previous-rpc-attempts"
	hedgedAttemptKey    = "hedged-attempt"
)

// attempt is one try of a call, and the context it runs under, by which the
// picker knows it. The primary runs on the caller's goroutine and writes the
// caller's reply; a hedge has a goroutine, a reply and call options of its own,
// of which the caller sees only the winner's.
type attempt struct {
	context.Context
	scope *scope // where Context has no end of its own; else nil
	call  *call
	try         // the picker writes its replica, sent, stranded and pushback
	err   error // written at its end, read once it has won

	*received // a hedge's, or any of a stream; nil for the primary of a unary call

	flow *flow // of a stream; else nil
}

// received is what a hedge gets in the caller's stead. Its attempt's goroutine
// writes it until the attempt ends; the caller's reads it when it has won.
type received struct {
	reply   any
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
}

// attemptKey is the context key of the attempt that a pick is for.
type attemptKey struct{}

// Done is part of context.Context.
func (a *attempt) Done() <-chan struct{} {
	if a.scope != nil {
		return a.scope.Done()
	}
	return a.Context.Done()
}

// Err is part of context.Context.
func (a *attempt) Err() error {
	if a.scope != nil {
		return a.scope.Err()
	}
	return a.Context.Err()
}

// Value answers for the attempt itself, and for the rest as the call's context does.
func (a *attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	if a.scope != nil {
		// It knows only what package context asks, so that what is derived from the
		// attempt ends with the scope without a goroutine.
		if v := a.scope.Value(key); v != nil {
			return v
		}
	}
	return a.Context.Value(key)
}

// attemptOf returns the attempt that a pick is for, or nil. An interceptor may
// use an attempt's context for a call of its own, to another method.
func attemptOf(info balancer.PickInfo) *attempt {
	a, ok := info.Ctx.Value(attemptKey{}).(*attempt)
	if !ok || a.call.fullMethod != info.FullMethodName {
		return nil
	}
	return a
}

// done takes what grpc says of a picked attempt at its end.
func (a *attempt) done(info balancer.DoneInfo) {
	if info.Err == nil && !info.BytesSent {
		// "If the SubConn is not ready, this will be called with a nil
		// parameter" (balancer.PickResult). grpc picks again.
		a.unpick()
		return
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.sent = info.BytesSent
	if info.Err != nil {
		a.pushback = hedge.ParsePushback(info.Trailer[hedge.PushbackKey])
	}
}

// unpick takes a pick back that led to no connection.
func (a *attempt) unpick() {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.replica, a.sent = candidate{}, false
}

// unmarked returns ctx without what marks a hedge: whoever forwards the metadata of
// a hedge that it was sent makes a call of its own. A6: "it will not be present on
// the first RPC".
func unmarked(ctx context.Context) context.Context {
	// Looking at what is outgoing would copy it.
	if metadata.ValueFromIncomingContext(ctx, previousAttemptsKey) == nil &&
		metadata.ValueFromIncomingContext(ctx, hedgedAttemptKey) == nil {
		return ctx
	}
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return ctx
	}
	md.Delete(previousAttemptsKey)
	md.Delete(hedgedAttemptKey)
	return metadata.NewOutgoingContext(ctx, md)
}

// hedgeContext is the call's context with a hedge's metadata. A6: "a value equal to
// the number of preceding [...] attempts", "1 for the second RPC, and so on".
func hedgeContext(ctx context.Context, index int) context.Context {
	n := strconv.Itoa(index)
	return metadata.AppendToOutgoingContext(ctx, previousAttemptsKey, n, hedgedAttemptKey, n)
}

// run is a hedge's goroutine.
func (a *attempt) run(req any) {
	c := a.call
	a.err = c.invoker(a, c.fullMethod, req, a.reply, c.cc, a.options(c.opts)...)
	c.ended(a, c.judge(a.reply, a.err), a.err)
}

// options returns opts with the places that the attempt fills replaced by its
// own, and without OnFinish, which is due once for a call: two attempts that
// share a place overwrite each other's, and race.
func (a *attempt) options(opts []grpc.CallOption) []grpc.CallOption {
	own := make([]grpc.CallOption, 0, len(opts))
	for _, o := range opts {
		switch o.(type) {
		case grpc.HeaderCallOption:
			o = grpc.HeaderCallOption{HeaderAddr: &a.header}
		case grpc.TrailerCallOption:
			o = grpc.TrailerCallOption{TrailerAddr: &a.trailer}
		case grpc.PeerCallOption:
			o = grpc.PeerCallOption{PeerAddr: &a.peer}
		case grpc.OnFinishCallOption:
			continue
		}
		own = append(own, o)
	}
	return own
}

// deliver gives the caller what the attempt received. Only the caller's
// goroutine may call it, once the primary's invoker has returned.
func (a *attempt) deliver(reply any, opts []grpc.CallOption) {
	if a.err == nil && a.flow == nil {
		moveMessage(reply, a.reply)
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		}
	}
}

// withoutFinish returns opts without OnFinish; opts itself when it has none.
func withoutFinish(opts []grpc.CallOption) []grpc.CallOption {
	for i, o := range opts {
		if _, ok := o.(grpc.OnFinishCallOption); !ok {
			continue
		}
		rest := append(make([]grpc.CallOption, 0, len(opts)-1), opts[:i]...)
		for _, o := range opts[i+1:] {
			if _, ok := o.(grpc.OnFinishCallOption); !ok {
				rest = append(rest, o)
			}
		}
		return rest
	}
	return opts
}

// finish runs the caller's OnFinish options.
func finish(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(err)
		}
	}
}

// messageType returns m's protobuf type, or nil when it has none.
func messageType(m any) protoreflect.MessageType {
	if p, ok := m.(proto.Message); ok {
		return p.ProtoReflect().Type()
	}
	return nil
}

// newMessage returns an empty message of m's type, which for a protobuf message
// is messageType's. It does not look into m, which another attempt may be
// writing. False: m is nothing that could be copied into, no pointer or nil.
func newMessage(m any, t protoreflect.MessageType) (any, bool) {
	v := reflect.ValueOf(m)
	switch {
	case v.Kind() != reflect.Pointer || v.IsNil():
		return nil, false
	case t != nil:
		return t.New().Interface(), true
	}
	return reflect.New(v.Type().Elem()).Interface(), true
}

// moveMessage makes dst what src is; src, of the same type, is not used again.
func moveMessage(dst, src any) {
	if d, ok := dst.(proto.Message); ok {
		proto.Reset(d)
		proto.Merge(d, src.(proto.Message))
		return
	}
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

// defaultReplay is the largest request that is sent more than once, as gRPC has it
// where grpc.MaxRetryRPCBufferSize does not say.
const defaultReplay = 256 << 10

// fits reports whether the request may be kept for further attempts. A6: "New RPCs
// which do not fit in the available buffer space [...] will not be retryable, but
// the original RPC will still be sent." A request that is no proto message is not
// copied, so it takes no space.
func (c *call) fits() bool {
	p, ok := c.req.(proto.Message)
	if !ok {
		return true
	}
	limit := defaultReplay
	for _, o := range c.opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			limit = o.MaxRetryRPCBufferSize
		}
	}
	return proto.Size(p) <= limit
}

// copyRequest returns a request for hedges, which may still be reading theirs
// after the call has returned and the caller has put its own to another use.
// Requests that are no proto messages are shared.
func copyRequest(req any) any {
	if p, ok := req.(proto.Message); ok {
		return proto.Clone(p)
	}
	return req
}
