package main

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// cost is what one call takes beyond the plain library's, over a carrier that does
// nothing: medians over the rounds.
type cost struct {
	Carrier string  `json:"carrier"`
	Context string  `json:"context"`
	Library string  `json:"library"`
	Nanos   float64 `json:"ns"`     // a call; a hedged call's delay is not in it
	Allocs  float64 `json:"allocs"` // a call

	AddedNanos  float64 `json:"added_ns"` // to plain
	AddedAllocs float64 `json:"added_allocs"`
	Ratio       float64 `json:"added_ratio,omitempty"` // hedged's added time to this one's
}

// caller makes one call.
type caller struct {
	library string
	call    func(context.Context) error
	stop    func()
}

func costs(quick bool) (unhedged, hedged []cost) {
	rounds, calls := 15, 5_000
	if quick {
		rounds, calls = 5, 1_000
	}
	for _, carrier := range []string{"grpc", "http"} {
		for _, ctx := range []string{"background", "deadline"} {
			unhedged = append(unhedged, compare(carrier, ctx, rounds, calls, callers(carrier, time.Second, false))...)
		}
		hedged = append(hedged, compare(carrier, "deadline", rounds, calls/50, callers(carrier, time.Millisecond, true))...)
	}
	return unhedged, hedged
}

func compare(carrier, ctxName string, rounds, calls int, all []caller) []cost {
	nanos, allocs := make([][]float64, len(all)), make([][]float64, len(all))
	for round := range rounds {
		for k := range all {
			i := (round + k) % len(all) // each goes first in turn
			ctx := context.Background()
			if ctxName == "deadline" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Hour)
				defer cancel()
			}
			took, n := measure(ctx, all[i].call, calls)
			if round > 0 { // it warms up
				nanos[i], allocs[i] = append(nanos[i], took), append(allocs[i], n)
			}
		}
	}
	var out []cost
	for i, c := range all {
		out = append(out, cost{Carrier: carrier, Context: ctxName, Library: c.library, Nanos: median(nanos[i]), Allocs: median(allocs[i])})
		if c.stop != nil {
			c.stop()
		}
	}
	for i := range out {
		out[i].AddedNanos, out[i].AddedAllocs = out[i].Nanos-out[0].Nanos, out[i].Allocs-out[0].Allocs
	}
	for i := range out {
		if i >= 3 && out[i].AddedNanos > 0 { // 0 and 1 are plain, 2 is ours
			out[i].Ratio = out[2].AddedNanos / out[i].AddedNanos
		}
	}
	return out
}

func measure(ctx context.Context, call func(context.Context) error, calls int) (nanos, allocs float64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range calls {
		if err := call(ctx); err != nil {
			fail(err)
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return float64(took) / float64(calls), float64(after.Mallocs-before.Mallocs) / float64(calls)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// callers makes calls over a stub of each library. A call that is hedged has a
// primary that never answers, and a hedge that answers at once.
func callers(carrier string, delay time.Duration, hedges bool) []caller {
	if carrier == "http" {
		return httpCallers(delay, hedges)
	}
	return grpcCallers(delay, hedges)
}

func grpcCallers(delay time.Duration, hedges bool) []caller {
	stub := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		return nil
	}
	behind := grpc.WithChainUnaryInterceptor(stub)
	dial := func(library string, options ...grpc.DialOption) caller {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
		conn, err := grpc.NewClient("passthrough:///stub", options...)
		if err != nil {
			fail(err)
		}
		req, reply := wrapperspb.String("key"), &wrapperspb.StringValue{}
		return caller{library, func(ctx context.Context) error { return conn.Invoke(ctx, method, req, reply) }, func() { _ = conn.Close() }}
	}
	if hedges {
		return hedgedGRPCCallers(delay)
	}
	c := oursFixed(delay)
	us := dial("hedged", c.DialOptions("store", behind)...)
	await(c)
	stop := us.stop
	us.stop = func() { stop(); _ = c.Close() }
	return []caller{dial("plain", behind), dial("plain again", behind), us, dial("failsafe-go", failsafeGRPC(delay), behind)}
}

// hedgedGRPCCallers go over loopback: a hedge goes to another replica, and there
// has to be one. The plain ones wait for the delay and make one call.
func hedgedGRPCCallers(delay time.Duration) []caller {
	s := startServers(2, func(ctx context.Context, hedge bool) error { return nil })
	var turn atomic.Int64
	s.handle = func(ctx context.Context, _ bool) error {
		if turn.Add(1)%2 == 1 { // the primary of a lone caller
			return stall(ctx)
		}
		return nil
	}
	c := oursFixed(delay)
	us := s.dialGRPC(c.DialOptions("store")...)
	await(c)
	peer := s.dialGRPC(failsafeGRPC(delay), roundRobin)
	plain := s.dialGRPC(roundRobin)
	late := func(conn *grpc.ClientConn) func(context.Context) error {
		return func(ctx context.Context) error {
			time.Sleep(delay)
			turn.Add(1)
			return invoke(ctx, conn)
		}
	}
	invoker := func(conn *grpc.ClientConn) func(context.Context) error {
		return func(ctx context.Context) error { return invoke(ctx, conn) }
	}
	return []caller{
		{"plain", late(plain), nil}, {"plain again", late(plain), nil}, {"hedged", invoker(us), func() { _ = c.Close() }},
		{"failsafe-go", invoker(peer), func() { _ = us.Close(); _ = peer.Close(); _ = plain.Close(); s.stop() }},
	}
}

func httpCallers(delay time.Duration, hedges bool) []caller {
	var turn atomic.Int64
	stub := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if hedges && turn.Add(1)%2 == 1 {
			if err := stall(r.Context()); err != nil {
				return nil, err
			}
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("data")), Request: r}, nil
	})
	get := func(library string, rt http.RoundTripper) caller {
		return caller{library, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://store/1", nil)
			if err != nil {
				return err
			}
			if hedges && strings.HasPrefix(library, "plain") {
				time.Sleep(delay)
				turn.Add(1)
			}
			response, err := rt.RoundTrip(r)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}, nil}
	}
	c := oursFixed(delay)
	us := get("hedged", c.Transport("store", stub, clientHTTP))
	await(c)
	us.stop = func() { _ = c.Close() }
	return []caller{
		get("plain", stub), get("plain again", stub), us,
		get("failsafe-go", failsafeHTTP(delay, stub)), get("hedgedhttp", hedgedHTTP(delay, stub)),
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stall waits for the end of an attempt that loses. One that is not hedged, such
// as the first while connections come up, is let go.
func stall(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}
