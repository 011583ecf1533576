package client

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for UseCompressor
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/policy"
)

// stallPrimary answers hedges only.
func stallPrimary(data string) serveFunc {
	return func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []byte(data), nil
	}
}

type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(t)}, nil
}
func (token) RequireTransportSecurity() bool { return false }

// Credentials, compressor and size limits of a call are those of its hedges too.
func TestCallOptionsHoldForHedges(t *testing.T) {
	serve := stallPrimary(strings.Repeat("x", 1000))
	c := newCluster(t, testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 })),
		func(ctx context.Context, replica string, hedge bool) ([]byte, error) {
			if md, _ := metadata.FromIncomingContext(ctx); strings.Join(md["authorization"], " ") != "secret" {
				return nil, status.Errorf(codes.Unauthenticated, "credentials %q", md["authorization"])
			}
			return serve(ctx, replica, hedge)
		}, "a", "b", "c")
	zipped := &compressed{}
	c.dial(t, grpc.WithChainUnaryInterceptor(c.unary, c.watch), grpc.WithStatsHandler(zipped))
	c.connect(t)
	opts := []grpc.CallOption{grpc.PerRPCCredentials(token("secret")), grpc.UseCompressor("gzip")}
	if got, err := c.call(t.Context(), opts...); err != nil || len(got) != 1000 {
		t.Errorf("got %d bytes, %v, want 1000", len(got), err)
	}
	_, err := c.call(t.Context(), append(opts, grpc.MaxCallRecvMsgSize(500))...)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a reply beyond the limit: %v, want ResourceExhausted", err)
	}
	_, err = c.call(t.Context(), append(opts, grpc.MaxCallSendMsgSize(1))...)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request beyond the limit: %v, want ResourceExhausted", err)
	}
	if got := zipped.hedges.Load(); got < 2 {
		t.Errorf("%d hedges were compressed, want those of two calls", got)
	}
}

// compressed is a stats handler that counts the hedges that were compressed.
type compressed struct{ hedges atomic.Int64 }

func (h *compressed) HandleRPC(_ context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutHeader); ok && len(out.Header[hedgedAttemptKey]) > 0 && out.Compression == "gzip" {
		h.hedges.Add(1)
	}
}
func (*compressed) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*compressed) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*compressed) HandleConn(context.Context, stats.ConnStats)                       {}

// plainCodec carries messages that are no protobuf messages.
type plainCodec struct{}

func (plainCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (plainCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (plainCodec) Name() string                       { return "hedged-test-json" }

func init() { encoding.RegisterCodec(plainCodec{}) }

// Replies that are not protobuf are hedged like any other.
func TestRepliesThatAreNotProto(t *testing.T) {
	c := newCluster(t, testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 })), stallPrimary("data"), "a", "b", "c")
	c.connect(t)
	type text struct{ Value string }
	type data struct{ Value []byte }
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var got data
		err := c.conn.Invoke(ctx, testMethod, &text{"key"}, &got, grpc.CallContentSubtype(plainCodec{}.Name()))
		if err != nil || string(got.Value) != "data" {
			t.Errorf("got %q, %v, want data", got.Value, err)
		}
		cancel()
	}
	if got := c.service.method(testMethod).counts(); got.Hedges < 20 {
		t.Errorf("%d hedges, want one for each call", got.Hedges)
	}
}
