package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/policy"
)

// The application is told of every attempt: what became of it, for how long it
// ran, and which one was its call's, with the values of the caller's context.
func TestOnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		s := testService(t, testPolicy(nonFatal))
		var mu sync.Mutex
		var told []Attempt
		s.onAttempt = func(ctx context.Context, a Attempt) {
			if ctx.Value(key{}) != "trace" || ctx.Err() != nil {
				t.Errorf("its context has %v and ends with %v", ctx.Value(key{}), ctx.Err())
			}
			mu.Lock()
			told = append(told, a)
			mu.Unlock()
		}
		n := newStub(s, func(ctx context.Context, replica string, index int, reply any) error {
			switch index {
			case 0:
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			case 1:
				_ = sleep(ctx, 2*ms)
				return status.Error(soft, "down")
			}
			return answer(ctx, 3*ms, replica, reply)
		}, "a", "b", "c")
		start := time.Now()
		if _, err := n.call(context.WithValue(t.Context(), key{}, "trace")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		slices.SortFunc(told, func(a, b Attempt) int { return a.Index - b.Index })
		if len(told) != 3 {
			t.Fatalf("told of %d attempts, want 3", len(told))
		}
		for i, want := range []Attempt{
			{Start: start, Took: 15 * ms, Cancelled: true},
			{Start: start.Add(10 * ms), Took: 2 * ms},
			{Start: start.Add(12 * ms), Took: 3 * ms, Answered: true, Won: true},
		} {
			want.Service, want.Method, want.Index, want.Replica = s.key, testMethod, i, n.visits()[i]
			want.Err = told[i].Err
			if !told[i].Start.Equal(want.Start) || (told[i].Err == nil) != want.Won {
				t.Errorf("attempt %d: start %v, error %v", i, told[i].Start, told[i].Err)
			}
			told[i].Start = want.Start
			if told[i] != want {
				t.Errorf("attempt %d: told %+v, want %+v", i, told[i], want)
			}
		}
		told = nil
		n.safety = &safety{listed: func(string) bool { return false }, files: new(noFiles)}
		n.try = func(context.Context, string, int, any) error { return status.Error(codes.NotFound, "no") }
		_, err := n.call(context.WithValue(t.Context(), key{}, "trace"))
		if len(told) != 1 || !errors.Is(told[0].Err, err) || !told[0].Answered || !told[0].Won {
			t.Errorf("told %+v of a call that is not hedged", told)
		}
	})
}

// A call that was hedged is recorded under A96's name, one that was not is not; a
// method is named only where its call says that it is static.
func TestHedgesMetric(t *testing.T) {
	serve := func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}
	m := &metricsHandler{}
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.connect(t)
	c.balancer.Load().metrics = m
	for _, opts := range [][]grpc.CallOption{nil, {grpc.StaticMethod()}} {
		if _, err := c.call(t.Context(), opts...); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"grpc.client.call.hedges other " + c.conn.CanonicalTarget(), "grpc.client.call.hedges " + testMethod + " " + c.conn.CanonicalTarget()}
	if !slices.Equal(m.seen, want) {
		t.Errorf("recorded %q, want %q", m.seen, want)
	}
}

type metricsHandler struct {
	estats.UnimplementedMetricsRecorder
	seen []string
}

func (m *metricsHandler) RecordInt64Histo(h *estats.Int64HistoHandle, n int64, labels ...string) {
	if n == 1 {
		m.seen = append(m.seen, strings.Join(append([]string{h.Descriptor().Name}, labels...), " "))
	}
}

// attemptHandler is a stats handler as OpenTelemetry's is.
type attemptHandler struct {
	mu         sync.Mutex
	begun, end int
	errors     []codes.Code
}

func (h *attemptHandler) HandleRPC(_ context.Context, s stats.RPCStats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s := s.(type) {
	case *stats.Begin:
		h.begun++
	case *stats.End:
		h.end++
		h.errors = append(h.errors, status.Code(s.Error))
	}
}
func (*attemptHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*attemptHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*attemptHandler) HandleConn(context.Context, stats.ConnStats)                       {}

// A stats handler sees each attempt begin and end; an interceptor before ours is
// called once for a call, one behind it once for each attempt.
func TestOthersSeeAttempts(t *testing.T) {
	serve := func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}
	h := &attemptHandler{}
	var before, behind int
	var mu sync.Mutex
	count := func(n *int) grpc.UnaryClientInterceptor {
		return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			mu.Lock()
			*n++
			mu.Unlock()
			// It derives from the context, as others do.
			ctx, cancel := context.WithCancel(context.WithValue(ctx, n, n))
			defer cancel()
			return invoker(ctx, method, req, reply, cc, opts...)
		}
	}
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.dial(t, grpc.WithStatsHandler(h), grpc.WithChainUnaryInterceptor(count(&before), c.unary, count(&behind), c.watch))
	c.connect(t)
	mu.Lock()
	h.mu.Lock()
	before, behind, h.begun, h.end, h.errors = 0, 0, 0, 0, nil
	h.mu.Unlock()
	mu.Unlock()
	if _, err := c.call(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (string, bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return "attempts", h.end == 2
	})
	slices.Sort(h.errors)
	if before != 1 || behind != 2 || h.begun != 2 || !slices.Equal(h.errors, []codes.Code{codes.OK, codes.Canceled}) {
		t.Errorf("%d calls before ours, %d behind it, %d attempts that ended with %v; want 1, 2, and 2 with OK and Canceled", before, behind, h.begun, h.errors)
	}
}

// The page says what is not hedged and why, and no name can forge a line of it.
func TestDebugHandler(t *testing.T) {
	c := newClient(t, Options{Controller: idleController{}, ID: "client-1"})
	s := c.service(orders)
	s.renew(time.Now())
	s.apply(activePolicy(7))
	s.noteCall(s.method("/shop.Orders/Put"), false)
	s.method("/shop.Orders/Put").suppressed[policy.SuppressedUnsafe].Add(3)
	c.DialOptions("billing")
	w := httptest.NewRecorder()
	c.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, want := range []string{
		"client client-1", "service default/orders: active by policy 1.7, 5.0 tokens", "/shop.Orders/Put", "15ms",
		"3 not hedged: unsafe", "service default/billing: no policy",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Body)
		}
	}
	for i, text := range advice {
		if text == "" {
			t.Errorf("no advice for %v", policy.Suppression(i))
		}
	}
}

// A resolver's service config does not switch hedging off, and what it asked for is
// refused aloud: once in the log, and in the statistics.
func TestResolversConfigIsRefusedAloud(t *testing.T) {
	var log bytes.Buffer
	s := testService(t, testPolicy())
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	c := newCluster(t, s, func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}, "a", "b", "c")
	c.connect(t)
	state := resolver.State{Endpoints: c.endpoints}
	state.ServiceConfig = c.resolver.CC().ParseServiceConfig(`{"loadBalancingConfig":[{"pick_first":{}}],
		"methodConfig":[{"name":[{"service":"hedged.test.Store"}],"timeout":"1s","waitForReady":true}]}`)
	for range 2 {
		c.resolver.UpdateState(state)
		for range 3 {
			if err := c.conn.Invoke(t.Context(), testMethod, wrapperspb.String("key"), &wrapperspb.BytesValue{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const want = "the resolver's service config is not used: its load balancing, if any, would switch hedging off; " +
		"timeout, waitForReady of /hedged.test.Store/: give call options instead"
	if got := s.stats().RefusedConfig; got != want {
		t.Errorf("statistics say %q, want %q", got, want)
	}
	if n := strings.Count(log.String(), "is not used"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, &log)
	}
	if got := s.method(testMethod).counts(); got.Hedges < 6 {
		t.Errorf("%d hedges, want one for each call at least", got.Hedges)
	}
}
