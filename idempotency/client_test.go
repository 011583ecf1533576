package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/storetest"
)

func always(string) bool { return true }

// invoke passes a call through the interceptor and returns the keys that two
// attempts behind it carry.
func invoke(ctx context.Context, guarded func(string) bool) (sent [2][]string, err error) {
	attempt := 0
	behind := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		sent[attempt] = md.Get(idempotency.MetadataKey)
		attempt++
		return nil
	}
	twice := func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return errors.Join(behind(ctx, m, req, reply, cc, opts...), behind(ctx, m, req, reply, cc, opts...))
	}
	err = idempotency.UnaryClientInterceptor(guarded)(ctx, "/a/B", nil, nil, nil, twice)
	return sent, err
}

func TestClientInterceptor(t *testing.T) {
	ctx := context.Background()
	inMetadata := metadata.AppendToOutgoingContext(ctx, idempotency.MetadataKey, "m")
	tests := []struct {
		name    string
		guarded func(string) bool
		ctx     context.Context
		key     string // "*": a new one; "": none
		code    codes.Code
	}{
		{"nothing is guarded", nil, ctx, "", codes.OK},
		{"another method is guarded", func(m string) bool { return m != "/a/B" }, ctx, "", codes.OK},
		{"the method is guarded", always, ctx, "*", codes.OK},
		{"the caller gave a key", always, idempotency.WithKey(ctx, "c"), "c", codes.OK},
		{"the caller gave a key to a method that is not guarded", nil, idempotency.WithKey(ctx, "c"), "c", codes.OK},
		{"the key is in the metadata", always, inMetadata, "m", codes.OK},
		{"both are the same", always, idempotency.WithKey(inMetadata, "m"), "m", codes.OK},
		{"both differ", always, idempotency.WithKey(inMetadata, "c"), "", codes.InvalidArgument},
		{"two are in the metadata", always, metadata.AppendToOutgoingContext(inMetadata, idempotency.MetadataKey, "n"), "", codes.InvalidArgument},
		{"the key is bad", nil, idempotency.WithKey(ctx, "ä"), "", codes.InvalidArgument},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sent, err := invoke(test.ctx, test.guarded)
			if status.Code(err) != test.code {
				t.Fatalf("the call ended with %v, want %v", err, test.code)
			}
			first, second := strings.Join(sent[0], ","), strings.Join(sent[1], ",")
			if first != second {
				t.Errorf("the attempts carry %q and %q, want one key", first, second)
			}
			if test.key == "*" && len(first) == 32 {
				return
			}
			if first != test.key {
				t.Errorf("the attempts carry %q, want %q", first, test.key)
			}
		})
	}
	one, _ := invoke(ctx, always)
	two, _ := invoke(ctx, always)
	if one[0][0] == two[0][0] {
		t.Errorf("two calls share the key %s", one[0][0])
	}
}

// Through a real connection: gRPC's own retries carry the same key, so that a
// write whose answer was lost has its effect once.
func TestRetriesCarryTheKey(t *testing.T) {
	var (
		mu   sync.Mutex
		keys []string
	)
	g, err := idempotency.New(idempotency.NewMemory(10), idempotency.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cc := storetest.DialGRPC(t, g, func(ctx context.Context, _ string, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		mu.Lock()
		defer mu.Unlock()
		key, _ := idempotency.IncomingKey(ctx)
		if keys = append(keys, key); len(keys) < 3 {
			return nil, status.Error(codes.Unavailable, "again")
		}
		return wrapperspb.String("saved"), nil
	},
		grpc.WithChainUnaryInterceptor(idempotency.UnaryClientInterceptor(always)),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4,
			"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	var reply wrapperspb.StringValue
	if err := cc.Invoke(t.Context(), "/storetest.Orders/A", wrapperspb.String("b"), &reply); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("the attempts carry %q, want one key three times", keys)
	}
}

// A stream with a key is refused: it would run unguarded.
func TestStreamsWithAKeyAreRefused(t *testing.T) {
	g, err := idempotency.New(idempotency.NewMemory(1), idempotency.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cc := storetest.DialGRPC(t, g, nil)
	for key, want := range map[string]codes.Code{"": codes.OK, "k": codes.Unimplemented} {
		ctx := t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, idempotency.MetadataKey, key)
		}
		stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/storetest.Orders/Stream")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err = stream.RecvMsg(new(wrapperspb.StringValue)); errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != want {
			t.Errorf("a stream with key %q ended with %v, want %v", key, err, want)
		}
	}
}

// roundTripper is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	posts := func(r *http.Request) bool { return r.Method == http.MethodPost }
	tests := []struct {
		name          string
		guarded       func(*http.Request) bool
		method        string
		given, header string
		sent          string // "*": a new one
		fails         bool
	}{
		{name: "nothing is guarded", method: "POST"},
		{name: "a guarded request", guarded: posts, method: "POST", sent: "*"},
		{name: "another request", guarded: posts, method: "GET"},
		{name: "the caller's key", method: "POST", given: `a"b`, sent: `"a\"b"`},
		{name: "the caller's header", guarded: posts, method: "POST", given: "c", header: "h", sent: "h"},
		{name: "a bad key", method: "POST", given: "a b", fails: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var sent string
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = r.Header.Get(idempotency.Header)
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			})
			ctx := t.Context()
			if test.given != "" {
				ctx = idempotency.WithKey(ctx, test.given)
			}
			body := &closeCounter{}
			r, err := http.NewRequestWithContext(ctx, test.method, "http://a/", body)
			if err != nil {
				t.Fatal(err)
			}
			if test.header != "" {
				r.Header.Set(idempotency.Header, test.header)
			}
			resp, err := idempotency.NewTransport(base, test.guarded).RoundTrip(r)
			if test.fails {
				if err == nil || body.closed != 1 {
					t.Errorf("the request ended with %v, its body closed %d times, want an error and once", err, body.closed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if test.sent == "*" && len(sent) == 34 {
				test.sent = sent
			}
			if sent != test.sent {
				t.Errorf("sent %q, want %q", sent, test.sent)
			}
			if r.Header.Get(idempotency.Header) != test.header {
				t.Error("the caller's request was changed")
			}
		})
	}
}

type closeCounter struct{ closed int }

func (c *closeCounter) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closeCounter) Close() error             { c.closed++; return nil }

func BenchmarkClientInterceptor(b *testing.B) {
	done := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	for name, guarded := range map[string]func(string) bool{"without": nil, "new": always} {
		b.Run(name, func(b *testing.B) {
			intercept := idempotency.UnaryClientInterceptor(guarded)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := intercept(ctx, "/a/B", nil, nil, nil, done); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
