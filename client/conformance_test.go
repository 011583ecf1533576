package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// end is how an attempt ends: after a time from its own start, with a code, and
// with the values of the pushback trailer.
type end struct {
	after    time.Duration
	code     codes.Code
	pushback []string
}

// The codes of the scenarios: UNAVAILABLE is non-fatal, ABORTED is fatal.
const (
	soft = codes.Unavailable
	hard = codes.Aborted
)

var nonFatal = func(p *policy.Policy) { p.Default.NonFatal = []uint32{uint32(soft)} }

// scenario is one call: how its attempts end, and what must come of it. The delay
// is 10 ms, up to three attempts, with tokens enough and six replicas.
type scenario struct {
	change   func(*policy.Policy)
	deadline time.Duration // 0: none
	request  int           // bytes
	opts     []grpc.CallOption
	ends     []end

	starts []time.Duration // of its attempts
	took   time.Duration
	code   codes.Code
}

func (sc *scenario) run(t *testing.T) {
	t.Helper()
	s := testService(t, testPolicy(nonFatal))
	if sc.change != nil {
		s = testService(t, testPolicy(nonFatal, sc.change))
	}
	sc.runOn(t, s)
}

func (sc *scenario) runOn(t *testing.T, s *service) {
	t.Helper()
	n := newStub(s, func(ctx context.Context, _ string, index int, _ any) error {
		e := sc.ends[index]
		if err := sleep(ctx, e.after); err != nil {
			return status.FromContextError(err).Err()
		}
		if e.pushback != nil {
			ctx.Value(trailerKey{}).(metadata.MD).Set(hedge.PushbackKey, e.pushback...)
		}
		if e.code == codes.OK {
			return nil
		}
		return status.Error(e.code, "as the scenario says")
	}, "a", "b", "c", "d", "e", "f")
	ctx := t.Context()
	if sc.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sc.deadline)
		defer cancel()
	}
	start := time.Now()
	err := n.unary(ctx, testMethod, wrapperspb.String(strings.Repeat("x", sc.request)), &wrapperspb.StringValue{}, nil, n.invoke, sc.opts...)
	took := time.Since(start)
	synctest.Wait()
	if !slices.Equal(n.times, sc.starts) || took != sc.took || status.Code(err) != sc.code {
		t.Errorf("attempts at %v, and %v after %v\nwant    at %v, and %v after %v", n.times, status.Code(err), took, sc.starts, sc.code, sc.took)
	}
	if visits := n.visits(); len(visits) != len(unique(visits)) {
		t.Errorf("attempts went to %v, want no replica twice", visits)
	}
	if n.outstanding() != 0 {
		t.Errorf("%d attempts outstanding after the call", n.outstanding())
	}
}

func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func at(milliseconds ...int) (out []time.Duration) {
	for _, m := range milliseconds {
		out = append(out, time.Duration(m)*ms)
	}
	return out
}

const long = time.Hour

// TestConformance holds the client to gRFC A6, sentence by sentence. What is
// decided otherwise is in docs/adr.
func TestConformance(t *testing.T) {
	four := func(p *policy.Policy) { p.Default.MaxAttempts = 4 }
	throttled := func(p *policy.Policy) { p.Throttle = policy.Throttle{MaxTokens: 1, TokenRatio: .1} }
	rows := []struct {
		quote     string
		scenarios []scenario
	}{{
		`When a method has chosen a hedgingPolicy, the original RPC is sent immediately, as with a standard non-hedged call. After hedgingDelay has elapsed without a successful response, the second RPC will be issued. If neither RPC has received a response after hedgingDelay has elapsed again, a third RPC is sent, and so on, up to maxAttempts.`,
		[]scenario{
			{change: four, ends: []end{{after: 9 * ms}}, starts: at(0), took: 9 * ms},
			{change: four, ends: []end{{after: long}, {after: 9 * ms}}, starts: at(0, 10), took: 19 * ms},
			{change: four, ends: []end{{after: long}, {after: long}, {after: long}, {after: 50 * ms}}, starts: at(0, 10, 20, 30), took: 80 * ms},
		},
	}, {
		`[...] higher values will be treated as equal to the maximum value by the client implementation. / Values greater than 5 are treated as 5 without being considered a validation error.`,
		[]scenario{{
			change: func(p *policy.Policy) { p.Default.MaxAttempts = 9 },
			ends:   []end{{after: 100 * ms}, {after: long}, {after: long}, {after: long}, {after: long}},
			starts: at(0, 10, 20, 30, 40), took: 100 * ms,
		}},
	}, {
		`As with retries, gRPC call deadlines apply to the entire chain of hedged requests. Once a deadline has passed, the operation fails regardless of in-flight RPCS, and regardless of the hedging configuration.`,
		[]scenario{
			{deadline: 15 * ms, ends: []end{{after: long}, {after: long}}, starts: at(0, 10), took: 15 * ms, code: codes.DeadlineExceeded},
			{deadline: 5 * ms, ends: []end{{after: long}}, starts: at(0), took: 5 * ms, code: codes.DeadlineExceeded},
			{deadline: 15 * ms, ends: []end{{2 * ms, soft, nil}, {after: long}, {after: long}}, starts: at(0, 2, 12), took: 15 * ms, code: codes.DeadlineExceeded},
		},
	}, {
		`When a non-error response is received (in response to any of the hedged requests), all outstanding hedged requests are canceled and the response is returned to the client application layer.`,
		[]scenario{
			{ends: []end{{after: 25 * ms}, {after: long}, {after: long}}, starts: at(0, 10, 20), took: 25 * ms},
			{ends: []end{{after: long}, {after: 12 * ms}, {after: long}}, starts: at(0, 10, 20), took: 22 * ms},
		},
	}, {
		`If a non-fatal status code is received from a hedged request, then the next hedged request in line is sent immediately, shortcutting its hedging delay. / Subsequent hedged requests will resume at hedgingDelay.`,
		[]scenario{
			{ends: []end{{5 * ms, soft, nil}, {after: long}, {after: ms}}, starts: at(0, 5, 15), took: 16 * ms},
			{ends: []end{{after: long}, {3 * ms, soft, nil}, {after: ms}}, starts: at(0, 10, 13), took: 14 * ms},
		},
	}, {
		`If any other status code is received, all outstanding RPCs are canceled and the error is returned to the client application layer.`,
		[]scenario{
			{ends: []end{{5 * ms, hard, nil}}, starts: at(0), took: 5 * ms, code: hard},
			{ends: []end{{after: long}, {3 * ms, hard, nil}}, starts: at(0, 10), took: 13 * ms, code: hard},
		},
	}, {
		`If all instances of a hedged RPC fail, there are no additional retry attempts. / Hedged RPCs are returned to the client application when all outstanding and pending requests have either received a response or been canceled. / [...] ensure that failures are relayed to the client application logic when no more hedged requests will be possible and all outstanding requests have returned.`,
		[]scenario{
			{ends: []end{{ms, soft, nil}, {ms, soft, nil}, {ms, soft, nil}}, starts: at(0, 1, 2), took: 3 * ms, code: soft},
			{ends: []end{{50 * ms, soft, nil}, {5 * ms, soft, nil}, {5 * ms, soft, nil}}, starts: at(0, 10, 15), took: 50 * ms, code: soft},
		},
	}, {
		`If the pushback says not to retry, no further hedged requests will be sent. / If the value for pushback is negative or unparseble, then it will be seen as the server asking the client not to retry at all. / The value is to be an ASCII encoded signed 32-bit integer with no unnecessary leading zeros [...]`,
		append([]scenario{
			// Those that run go on.
			{ends: []end{{after: 60 * ms}, {5 * ms, soft, []string{"-1"}}}, starts: at(0, 10), took: 60 * ms},
		}, each([][]string{{"-1"}, {"-0"}, {"abc"}, {""}, {"007"}, {"+5"}, {" 5"}, {"1.5"}, {"0x5"}, {"2147483648"}, {"5", "5"}, {"99999999999999999999"}},
			func(values []string) scenario {
				return scenario{ends: []end{{3 * ms, soft, values}}, starts: at(0), took: 3 * ms, code: soft}
			})...),
	}, {
		`If the pushback says to retry after a given delay, the next hedged request (if any) will be issued after the given delay has elapsed. / Subsequent hedged requests will resume at n + hedgingDelay.`,
		[]scenario{
			{ends: []end{{3 * ms, soft, []string{"200"}}, {after: long}, {after: ms}}, starts: at(0, 203, 213), took: 214 * ms},
			{ends: []end{{3 * ms, soft, []string{"0"}}, {after: ms}}, starts: at(0, 3), took: 4 * ms},
			{ends: []end{{3 * ms, soft, []string{"4"}}, {after: ms}}, starts: at(0, 7), took: 8 * ms},
			{ends: []end{{after: 100 * ms}, {3 * ms, soft, []string{"20"}}, {after: long}}, starts: at(0, 10, 33), took: 100 * ms},
			{ends: []end{{after: 100 * ms}, {3 * ms, soft, []string{"2147483647"}}}, starts: at(0, 10), took: 100 * ms},
		},
	}, {
		`If the client has already exhausted its maxAttempts, the call will not be retried even if the server says to retry after a given delay.`,
		[]scenario{{
			ends:   []end{{ms, soft, nil}, {ms, soft, nil}, {ms, soft, []string{"200"}}},
			starts: at(0, 1, 2), took: 3 * ms, code: soft,
		}},
	}, {
		`The first outgoing RPC will always be sent, but subsequent hedged RPCs will only be sent if token_count is greater than the threshold. / Neither retry attempts or hedged RPCs block when token_count is less than or equal to the threshold. [...] The hedged request is cancelled, and if there are no other already-sent hedged RPCs the failure is returned to the client application.`,
		[]scenario{
			{change: throttled, ends: []end{{ms, soft, nil}}, starts: at(0), took: ms, code: soft},
			{change: throttled, ends: []end{{after: 50 * ms}, {ms, soft, nil}}, starts: at(0, 10), took: 50 * ms},
		},
	}, {
		`New RPCs which do not fit in the available buffer space (either due to the total available buffer space, or due to the per-RPC limit) will not be retryable, but the original RPC will still be sent.`,
		[]scenario{
			{request: 257 << 10, ends: []end{{after: 50 * ms}}, starts: at(0), took: 50 * ms},
			{request: 255 << 10, ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 10), took: 11 * ms},
			{request: 100, opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(100)}, ends: []end{{after: 50 * ms}}, starts: at(0), took: 50 * ms},
			{request: 100, opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(200)}, ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 10), took: 11 * ms},
		},
	}, {
		`If the 'method' field is empty, matches all methods in the service; [service config:] the most specific name wins: a method, its service, the default.`,
		[]scenario{
			{change: methodConfig(testMethod), ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 30), took: 31 * ms},
			{change: methodConfig("/hedged.test.Store/"), ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 30), took: 31 * ms},
			{change: methodConfig("/hedged.test.Store/", testMethod), ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 40), took: 41 * ms},
			{change: methodConfig("/hedged.test.Other/"), ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 10), took: 11 * ms},
			{change: methodConfig("/hedged.test.Store/Ge"), ends: []end{{after: 50 * ms}, {after: ms}}, starts: at(0, 10), took: 11 * ms},
		},
	}}
	for _, row := range rows {
		for i, sc := range row.scenarios {
			synctest.Test(t, func(t *testing.T) {
				sc.run(t)
				if t.Failed() {
					t.Fatalf("scenario %d of: %s", i, row.quote)
				}
			})
		}
	}
}

func each[T any](values []T, f func(T) scenario) (out []scenario) {
	for _, v := range values {
		out = append(out, f(v))
	}
	return out
}

// methodConfig gives the first name a delay of 30 ms, the second one of 40 ms.
func methodConfig(names ...string) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.Methods = map[string]policy.Method{}
		for i, name := range names {
			m := p.Default
			m.Delay = time.Duration(30+10*i) * ms
			p.Methods[name] = m
		}
	}
}

// "For each server name, the gRPC client maintains a token_count [...] Every
// outgoing RPC (regardless of service or method invoked) will effect token_count":
// all connections to a service share one throttle, other services have their own,
// and new limits hold for the next decision, of calls under way too.
func TestConformanceThrottle(t *testing.T) {
	fail := scenario{ends: []end{{ms, soft, nil}, {ms, soft, nil}, {ms, soft, nil}}, starts: at(0, 1, 2), took: 3 * ms, code: soft}
	failAlone := scenario{ends: []end{{ms, soft, nil}}, starts: at(0), took: ms, code: soft}
	succeed := scenario{ends: []end{{after: ms}}, starts: at(0), took: ms}
	refused := scenario{ends: []end{{ms, codes.InvalidArgument, nil}}, starts: at(0), took: ms, code: codes.InvalidArgument}
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(nonFatal, func(p *policy.Policy) { p.Throttle = policy.Throttle{MaxTokens: 10, TokenRatio: .5} })
		s := testService(t, p)
		steps := []*scenario{
			&fail,      // 10 to 7: each runOn is another connection
			&refused,   // "This avoids conflating server failure with responses to malformed requests"
			&refused,   //
			&failAlone, // to 6: a hedge is due at 7, goes, to 5: see below
		}
		steps[3] = &scenario{ends: []end{{ms, soft, nil}, {ms, soft, nil}}, starts: at(0, 1), took: 2 * ms, code: soft}
		for i, sc := range steps {
			sc.runOn(t, s)
			if t.Failed() {
				t.Fatalf("step %d", i)
			}
		}
		failAlone.runOn(t, s) // 5 to 4, "less than or equal to the threshold"
		succeed.runOn(t, s)   // to 4.5
		failAlone.runOn(t, s)
		fail.runOn(t, testService(t, p)) // another service
		for range 6 {
			succeed.runOn(t, s) // to 6.5
		}
		steps[3].runOn(t, s)

		s.throttle.Set(policy.Throttle{}) // updated live
		fail.runOn(t, s)
	})
}

// "[grpc-previous-rpc-attempts] will not be present on the first RPC, will be 1 for
// the second RPC, and so on", though the caller forwards what it was sent itself.
func TestConformancePreviousAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), func(ctx context.Context, _ string, index int, _ any) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			want := "[] [] [kept]"
			if index > 0 {
				want = fmt.Sprintf("[%d] [%d] [kept]", index, index)
			}
			if got := fmt.Sprint(md[previousAttemptsKey], md[hedgedAttemptKey], md["other"]); got != want {
				t.Errorf("attempt %d carries %s, want %s", index, got, want)
			}
			return sleep(ctx, 35*ms)
		}, "a", "b", "c")
		in := metadata.Pairs(previousAttemptsKey, "4", "other", "kept", hedgedAttemptKey, "4")
		forwarded := metadata.NewOutgoingContext(metadata.NewIncomingContext(t.Context(), in), in)
		if _, err := n.call(forwarded); err != nil || len(n.visits()) != 3 {
			t.Errorf("%v from %v, want three attempts", err, n.visits())
		}
		if in[hedgedAttemptKey] == nil {
			t.Error("the caller's metadata was written to")
		}
	})
}

// "If the pick result type was DROP, the RPC will fail immediately, without any
// retries. If the pick result type was TRANSIENT_FAILURE, the RPC will be handled
// by the configured [...] policy", under which there is no replica to hedge with.
func TestConformanceDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(nonFatal)), nil, "a", "b", "c")
		calls := 0
		start := time.Now()
		err := n.unary(t.Context(), testMethod, wrapperspb.String(""), &wrapperspb.StringValue{}, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				calls++
				return status.Error(soft, "dropped") // by a picker in front of ours
			})
		if status.Code(err) != soft || calls != 1 || time.Since(start) != 0 {
			t.Errorf("%v after %d attempts and %v, want the drop at once", err, calls, time.Since(start))
		}
	})
}

// "[...] these transparent retries do not count toward the limit of configured RPC
// attempts", and "do not count as failures when deciding whether to throttle".
func TestConformanceTransparentRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy(nonFatal, func(p *policy.Policy) { p.Throttle = policy.Throttle{MaxTokens: 1, TokenRatio: .1} }))
		n := newStub(s, func(ctx context.Context, _ string, index int, _ any) error {
			if index < 2 {
				return sleep(ctx, long)
			}
			return nil
		}, "a", "b", "c")
		_, err := n.callThrough(t.Context(), func(ctx context.Context, _ int) {
			// grpc picks, finds the connection gone, and picks again.
			for range 3 {
				picked, err := n.balancer.current.Load().Pick(balancer.PickInfo{FullMethodName: testMethod, Ctx: ctx})
				if err != nil {
					t.Error(err)
					return
				}
				picked.Done(balancer.DoneInfo{})
			}
		}, n.invoke)
		if err != nil || !slices.Equal(n.times, at(0, 10, 20)) {
			t.Errorf("%v from attempts at %v, want three", err, n.times)
		}
		if got, want := n.counts().Hedges, uint64(2); got != want {
			t.Errorf("%d hedges, want %d", got, want)
		}
	})
}

// history is a call that was drawn at random.
type history struct {
	max      int
	delay    time.Duration
	deadline time.Duration
	ends     []end
}

func drawHistory(random *rand.Rand) history {
	// Nanoseconds at random, so that no two things happen at one instant.
	upTo := func(d time.Duration) time.Duration { return 1 + time.Duration(random.Int64N(int64(d))) }
	h := history{max: 2 + random.IntN(4), delay: ms * time.Duration(1+random.IntN(20)), deadline: long}
	if random.IntN(4) == 0 {
		h.deadline = upTo(100 * ms)
	}
	for range h.max {
		e := end{after: upTo(60 * ms)}
		switch random.IntN(8) {
		case 0, 1, 2:
			e.code = soft
		case 3:
			e.code = hard
		}
		if e.code != codes.OK && random.IntN(3) == 0 {
			e.pushback = [][]string{{"-1"}, {"abc"}, {"0"}, {"7"}, {"30"}, {"1", "2"}}[random.IntN(6)]
		}
		h.ends = append(h.ends, e)
	}
	return h
}

// model is gRFC A6 for one call, as simple as it can be said.
func (h *history) model() scenario {
	out := scenario{}
	due, floor := time.Duration(0), time.Duration(0)
	stopped := false
	running := map[int]time.Duration{} // attempt -> its end
	for {
		next, endsAt := -1, time.Duration(0)
		for i, e := range running {
			if next < 0 || e < endsAt {
				next, endsAt = i, e
			}
		}
		sends := !stopped && len(out.starts) < h.max
		switch {
		case min(pick(sends, due), pick(next >= 0, endsAt)) >= h.deadline:
			out.took, out.code = h.deadline, codes.DeadlineExceeded
			return out
		case sends && (next < 0 || due < endsAt):
			i := len(out.starts)
			running[i] = due + h.ends[i].after
			out.starts = append(out.starts, due)
			due = max(due+h.delay, floor)
			continue
		}
		e := h.ends[next]
		delete(running, next)
		out.took, out.code = endsAt, e.code
		if e.code != soft {
			return out
		}
		switch push := hedge.ParsePushback(e.pushback); {
		case push.Stops():
			stopped = true
		case e.pushback != nil:
			var wait int
			_, _ = fmt.Sscan(e.pushback[0], &wait) // it parses, or it stops
			floor = max(floor, endsAt+time.Duration(wait)*ms)
			due = floor
		default:
			due = max(endsAt, floor)
		}
		if len(running) == 0 && (stopped || len(out.starts) == h.max) {
			return out
		}
	}
}

// pick returns d, or for ever.
func pick(ok bool, d time.Duration) time.Duration {
	if ok {
		return d
	}
	return 1<<63 - 1
}

// TestAgainstModel holds the real client, with its timers, budget and balancer, to
// the model over histories drawn at random: the same attempts at the same instants,
// and the same outcome.
func TestAgainstModel(t *testing.T) {
	const histories = 100_000 / raceSlowdown
	const seed = 20_261_201
	random := rand.New(rand.NewPCG(seed, seed))
	for left := histories; left > 0 && !t.Failed(); left -= 1000 {
		synctest.Test(t, func(t *testing.T) {
			for i := range 1000 {
				h := drawHistory(random)
				sc := h.model()
				sc.ends, sc.deadline = h.ends, h.deadline
				s := testService(t, testPolicy(nonFatal, func(p *policy.Policy) { p.Default.Delay, p.Default.MaxAttempts = h.delay, h.max }))
				sc.runOn(t, s)
				s.close()
				if t.Failed() {
					t.Fatalf("history %d of seed %d: %+v", histories-left+i, seed, h)
				}
			}
		})
	}
}

// Whatever a server writes into its trailers and a caller into its metadata, a call
// ends, and makes no more attempts than it may.
func FuzzMetadata(f *testing.F) {
	f.Add(hedge.PushbackKey, "20", previousAttemptsKey, "3")
	f.Add(hedge.PushbackKey, "-1", hedgedAttemptKey, "x")
	f.Add(keyMetadata, "", keyMetadata, "key")
	f.Add("grpc-status", "0", ":path", "/")
	f.Fuzz(func(t *testing.T, trailer, value, key, own string) {
		synctest.Test(t, func(t *testing.T) {
			n := newStub(testService(t, testPolicy(nonFatal)), func(ctx context.Context, _ string, index int, _ any) error {
				ctx.Value(trailerKey{}).(metadata.MD).Append(trailer, value)
				if md, _ := metadata.FromOutgoingContext(ctx); index > 0 && !slices.Contains(md[hedgedAttemptKey], fmt.Sprint(index)) {
					t.Errorf("attempt %d carries %v", index, md)
				}
				return status.Error(soft, "down")
			}, "a", "b", "c")
			md := metadata.Pairs(key, own)
			_, err := n.call(metadata.NewOutgoingContext(metadata.NewIncomingContext(t.Context(), md), md))
			if status.Code(err) != soft || len(n.visits()) > 3 {
				t.Errorf("%v after %d attempts", err, len(n.visits()))
			}
		})
	})
}
