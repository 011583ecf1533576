package storetest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/idempotency"
)

// RunGuard runs the faults that were met in the field against a guard on the
// store, through HTTP and gRPC. Each test opens an empty store.
func RunGuard(t *testing.T, open func(t *testing.T) idempotency.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, p protocol, s idempotency.Store)
	}{
		{"of 50 copies at once one runs and the others are refused", parallelRefused},
		{"of 50 copies at once one runs and the others wait for its answer", parallelWaiting},
		{"a key reused on another resource is refused", otherResource},
		{"a key reused with another body is refused", otherBody},
		{"callers have keys of their own", callers},
		{"an answer above the limit is whole, then refused", tooLarge},
		{"final refusals are kept", finalKept},
		{"final refusals are released when told so", finalReleased},
		{"what is temporary is released", temporaryReleased},
	}
	for _, p := range protocols {
		for _, test := range tests {
			t.Run(p.name+"/"+test.name, func(t *testing.T) { test.test(t, p, open(t)) })
		}
	}
	t.Run("HTTP/an answer is repeated line by line", func(t *testing.T) { headerLines(t, open(t)) })
	t.Run("gRPC/an answer is repeated with its metadata", func(t *testing.T) { metadataValues(t, open(t)) })
}

// request is one copy of a call, in either protocol.
type request struct {
	resource  string // a path or method
	user, key string
	body      string
}

// answer is what a copy got: the words of both protocols.
type answer struct {
	outcome  string // a name of outcomes
	body     string
	replayed bool
}

// handler is the service behind the guard. It returns an outcome and a body.
type handler func(ctx context.Context, resource, body string) (outcome, answer string)

// send sends a copy; it may be called from any goroutine.
type send func(request) answer

type protocol struct {
	name  string
	serve func(t *testing.T, g *idempotency.Guard, h handler) send
}

var protocols = []protocol{{"HTTP", serveHTTP}, {"gRPC", serveGRPC}}

// outcomes are the same words in both protocols.
var outcomes = []struct {
	name   string
	status int
	code   codes.Code
}{
	{"ok", http.StatusOK, codes.OK},
	{"conflict", http.StatusConflict, codes.FailedPrecondition}, // the handler's own
	{"unavailable", http.StatusServiceUnavailable, codes.Unavailable},
	{"mismatch", http.StatusUnprocessableEntity, codes.InvalidArgument},
	{"in progress", http.StatusConflict, codes.Aborted},
	{"not kept", http.StatusGone, codes.AlreadyExists},
}

type userContext struct{}

func userOf(ctx context.Context) (string, error) {
	user, _ := ctx.Value(userContext{}).(string)
	return user, nil
}

func newGuard(t *testing.T, s idempotency.Store, o idempotency.Options) *idempotency.Guard {
	t.Helper()
	o.Caller = userOf
	g, err := idempotency.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func serveHTTP(t *testing.T, g *idempotency.Guard, h handler) send {
	guarded := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, max(0, r.ContentLength))
		r.Body.Read(body) //nolint:errcheck // a test's body is in memory
		outcome, text := h(r.Context(), r.URL.Path, string(body))
		for _, o := range outcomes {
			if o.name == outcome {
				w.WriteHeader(o.status)
				break
			}
		}
		w.Write([]byte(text))
	}))
	return func(req request) answer {
		r := httptest.NewRequest(http.MethodPost, "/"+req.resource, strings.NewReader(req.body))
		r.Header.Set(idempotency.Header, `"`+req.key+`"`)
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), userContext{}, req.user)))
		a := answer{outcome: http.StatusText(w.Code), body: w.Body.String(), replayed: w.Header().Get(idempotency.Replayed) == "true"}
		for _, o := range outcomes {
			if o.status == w.Code && (o.name != "in progress" || w.Header().Get("Retry-After") != "") {
				a.outcome = o.name
			}
		}
		return a
	}
}

type text = wrapperspb.StringValue

func serveGRPC(t *testing.T, g *idempotency.Guard, h handler) send {
	cc := DialGRPC(t, g, func(ctx context.Context, resource string, req *text) (*text, error) {
		outcome, body := h(ctx, resource, req.GetValue())
		for _, o := range outcomes {
			if o.name == outcome && o.code != codes.OK {
				return nil, status.Error(o.code, body)
			}
		}
		return wrapperspb.String(body), nil
	})
	return func(req request) answer {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "user", req.user, idempotency.MetadataKey, req.key)
		var (
			reply  text
			header metadata.MD
		)
		err := cc.Invoke(ctx, "/storetest.Orders/"+req.resource, wrapperspb.String(req.body), &reply, grpc.Header(&header))
		a := answer{outcome: status.Code(err).String(), body: reply.GetValue(), replayed: len(header.Get(idempotency.Replayed)) == 1}
		if err != nil {
			a.body = status.Convert(err).Message()
		}
		for _, o := range outcomes {
			if o.code == status.Code(err) {
				a.outcome = o.name
			}
		}
		return a
	}
}

// DialGRPC serves storetest.Orders with the methods A and B behind the guard, in
// memory, and returns a connection to it. The caller's name is the metadata
// "user".
func DialGRPC(t testing.TB, g *idempotency.Guard, serve func(ctx context.Context, method string, req *text) (*text, error), opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if user := metadata.ValueFromIncomingContext(ctx, "user"); len(user) == 1 {
			ctx = context.WithValue(ctx, userContext{}, user[0])
		}
		return next(ctx, req)
	}
	desc := grpc.ServiceDesc{ServiceName: "storetest.Orders", HandlerType: (*any)(nil)}
	for _, method := range []string{"A", "B"} {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{
			MethodName: method,
			Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				req := new(text)
				if err := dec(req); err != nil {
					return nil, err
				}
				info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/storetest.Orders/" + method}
				return interceptor(ctx, req, info, func(ctx context.Context, req any) (any, error) {
					return serve(ctx, method, req.(*text))
				})
			},
		})
	}
	desc.Streams = []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, Handler: func(any, grpc.ServerStream) error { return nil }}}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(authenticate, g.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(g.StreamServerInterceptor()))
	server.RegisterService(&desc, nil)
	listener := bufconn.Listen(1 << 20)
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) }) //nolint:errcheck // it ends by Stop
	opts = append(opts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient("passthrough:///orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		serving.Wait()
	})
	return cc
}

// counter is a handler that counts its runs and says which it is.
type counter struct {
	runs    atomic.Int64
	outcome atomic.Value // string; empty: ok
	size    int          // of the body; 0: it names the run
}

func (c *counter) handle(_ context.Context, resource, body string) (outcome, answer string) {
	n := c.runs.Add(1)
	outcome, _ = c.outcome.Load().(string)
	if outcome == "" {
		outcome = "ok"
	}
	if c.size > 0 {
		return outcome, strings.Repeat("x", c.size)
	}
	return outcome, resource + " " + body + " run " + string(rune('0'+n))
}
