package idempotency

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// UnaryClientInterceptor sends one key with each logical call, as
// [MetadataKey]: the key of [WithKey], or one that is in the outgoing metadata
// already.
//
// A call of a method for which guarded returns true gets a new key if it has
// none: say so only of what its servers guard, on one store for all of them, since
// a hedging interceptor takes a key for the promise that the call may be sent
// twice. nil: only keys that the application gave are sent.
//
// It stands in front of what sends a call again (hedging, retries of an
// interceptor), so that all copies have the same key. gRPC's own retries are
// always behind it.
func UnaryClientInterceptor(guarded func(fullMethod string) bool) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		key, ok := KeyFromContext(ctx)
		md, _ := metadata.FromOutgoingContext(ctx)
		sent := md.Get(MetadataKey)
		switch {
		case len(sent) > 1:
			return status.Errorf(codes.InvalidArgument, "%s is given %d times, want once", MetadataKey, len(sent))
		case len(sent) == 1 && ok && sent[0] != key:
			return status.Errorf(codes.InvalidArgument, "%s is %q in the metadata and %q by WithKey", MetadataKey, sent[0], key)
		case len(sent) == 1:
			key = sent[0]
		case ok:
			ctx = metadata.AppendToOutgoingContext(ctx, MetadataKey, key)
		case guarded != nil && guarded(method):
			key = NewKey()
			ctx = metadata.AppendToOutgoingContext(WithKey(ctx, key), MetadataKey, key)
		default:
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		if err := ValidateKey(key); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// UnaryServerInterceptor guards the calls that carry [MetadataKey]. It stands
// behind interceptors that authenticate, and in front of those whose effects
// are not to be repeated.
//
// The fingerprint is the full method and the request in protobuf's deterministic
// encoding. A reply is kept with its type, which must be linked into whatever
// replays it. grpc.SetSendCompressor does not work in a guarded handler.
func (g *Guard) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		keys := metadata.ValueFromIncomingContext(ctx, MetadataKey)
		if len(keys) == 0 {
			if g.o.Require != nil && g.o.Require(ctx, info.FullMethod) {
				return nil, statusOf(errNoKey)
			}
			return handler(ctx, req)
		}
		reply, failed, err := g.serveGRPC(ctx, req, info.FullMethod, handler, keys)
		if err != nil {
			return nil, statusOf(err)
		}
		return reply, failed
	}
}

// StreamServerInterceptor refuses streams that carry a key, or would have to:
// they are not guarded, while their client may think that they are safe to
// repeat.
func (g *Guard) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := ss.Context()
		if len(metadata.ValueFromIncomingContext(ctx, MetadataKey)) > 0 || g.o.Require != nil && g.o.Require(ctx, info.FullMethod) {
			return status.Error(codes.Unimplemented, "streams are not guarded by idempotency keys")
		}
		return handler(srv, ss)
	}
}

// statusOf makes the status of a refusal.
func statusOf(err error) error {
	r, detail := asRefusal(err)
	if r == errStore {
		// What the store says of itself is for the log.
		detail = r.title
	}
	return status.Error(r.code, detail)
}

// serveGRPC answers a call with a key. What the handler returned, now or for an
// earlier copy, are reply and failed; err is a refusal.
func (g *Guard) serveGRPC(ctx context.Context, req any, method string, handler grpc.UnaryHandler, keys []string) (reply any, failed, err error) {
	if len(keys) > 1 {
		return nil, nil, fmt.Errorf("%w: %s comes %d times, want once", errBadKey, MetadataKey, len(keys))
	}
	key := keys[0]
	if err := ValidateKey(key); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadKey, err)
	}
	request, err := encodeRequest(req)
	if err != nil {
		return nil, nil, err
	}
	call, err := g.call(ctx, key, newFingerprint([]byte("grpc"), []byte(method), request))
	if err != nil {
		return nil, nil, err
	}
	kept, ran, err := g.do(ctx, call, func(ctx context.Context) result {
		ctx = context.WithValue(ctx, incomingContext{}, key)
		rec := &streamRecorder{ServerTransportStream: grpc.ServerTransportStreamFromContext(ctx)}
		if rec.ServerTransportStream != nil {
			ctx = grpc.NewContextWithServerTransportStream(ctx, rec)
		}
		reply, failed = handler(ctx, req)
		return g.judgeGRPC(reply, failed, rec)
	})
	if err != nil || ran {
		return reply, failed, err
	}
	answer, err := decodeGRPC(kept)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errStore, err)
	}
	if answer == nil {
		return nil, nil, errNotKept
	}
	return answer.replay(ctx)
}
