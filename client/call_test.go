package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

const ms = time.Millisecond

// stallFirst is replicas that never answer a primary, and a hedge in 3 ms.
func stallFirst(ctx context.Context, replica string, index int, reply any) error {
	if index == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return answer(ctx, 3*ms, replica, reply)
}

func TestHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), stallFirst, "a", "b")
		start := time.Now()
		got, err := n.call(t.Context())
		if err != nil || got != n.visits()[1] || n.visits()[0] == n.visits()[1] {
			t.Errorf("got %q, %v from attempts at %v; want the answer of a hedge to the other replica", got, err, n.visits())
		}
		if took := time.Since(start); took != 13*ms {
			t.Errorf("took %v, want 13ms: the hedge's 3ms after the delay of 10ms", took)
		}
		synctest.Wait()
		want := Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, Wins: 1}
		if c := n.counts(); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
		// The primary took longer than the 13 ms after which it was cancelled;
		// the hedge took 3 ms of its own.
		m := n.service.method(testMethod)
		wantOne(t, "primary censored", &m.replica(n.visits()[0]).primary.censored, 13*ms)
		wantOne(t, "hedge completed", &m.replica(n.visits()[1]).hedge.completed, 3*ms)
		if n.outstanding() != 0 {
			t.Errorf("%d attempts outstanding, want 0", n.outstanding())
		}
	})
}

func wantOne(t *testing.T, what string, r *estimator.Recorder, want time.Duration) {
	t.Helper()
	var h estimator.Histogram
	r.Drain(&h)
	got, _ := h.Quantile(.5)
	if h.Count() != 1 || got < want*97/100 || got > want*103/100 {
		t.Errorf("%s: %d samples around %v, want 1 of %v", what, h.Count(), got, want)
	}
}

func TestPrimaryWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), func(ctx context.Context, replica string, index int, reply any) error {
			return answer(ctx, 15*ms, replica, reply)
		}, "a", "b")
		got, err := n.call(t.Context())
		if err != nil || got != n.visits()[0] || len(n.visits()) != 2 {
			t.Errorf("got %q, %v from attempts at %v; want the primary's answer", got, err, n.visits())
		}
		synctest.Wait()
		want := Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1}
		if c := n.counts(); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
		m := n.service.method(testMethod)
		wantOne(t, "primary completed", &m.replica(n.visits()[0]).primary.completed, 15*ms)
		wantOne(t, "hedge censored", &m.replica(n.visits()[1]).hedge.censored, 5*ms)
	})
}

// The first attempt fails fast with a non-fatal code while the budget is empty
// and the deadline is 15 s away: that code comes back at once. So it does when
// the throttle, the mode, the coin or the lack of a replica holds the hedge.
func TestLastFailureComesBackAtOnce(t *testing.T) {
	tests := map[string]struct {
		policy   func(*policy.Policy)
		replicas []string
	}{
		"budget":      {func(p *policy.Policy) { p.Budget = policy.Budget{Ratio: 0, Burst: 10} }, []string{"a", "b"}},
		"shadow":      {func(p *policy.Policy) { p.Mode = policy.ModeShadow }, []string{"a", "b"}},
		"probability": {func(p *policy.Policy) { p.Default.Probability = 0 }, []string{"a", "b"}},
		"replica":     {func(p *policy.Policy) {}, []string{"a"}},
		"throttle":    {func(p *policy.Policy) { p.Throttle = policy.Throttle{MaxTokens: 1, TokenRatio: .1} }, []string{"a", "b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPolicy(tt.policy, func(p *policy.Policy) { p.Default.NonFatal = []uint32{uint32(codes.Unavailable)} })
				n := newStub(testService(t, p), func(context.Context, string, int, any) error {
					return status.Error(codes.Unavailable, "down")
				}, tt.replicas...)
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				start := time.Now()
				_, err := n.call(ctx)
				if took := time.Since(start); status.Code(err) != codes.Unavailable || took != 0 {
					t.Errorf("got %v after %v, want Unavailable at once", err, took)
				}
				if c := n.counts(); c.Hedges != 0 || c.Failures != 1 {
					t.Errorf("counts %+v, want no hedge and a failure", c)
				}
			})
		})
	}
}

// A queued hedge does not keep a call alive whose attempts have all failed.
func TestFailureWhileWaitingForToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) {
			p.Budget = policy.Budget{Burst: 10}
			p.Default.NonFatal = []uint32{uint32(codes.Unavailable)}
		})
		n := newStub(testService(t, p), func(ctx context.Context, _ string, _ int, _ any) error {
			_ = sleep(ctx, 15*ms)
			return status.Error(codes.Unavailable, "down")
		}, "a", "b")
		start := time.Now()
		_, err := n.call(t.Context())
		if took := time.Since(start); status.Code(err) != codes.Unavailable || took != 15*ms {
			t.Errorf("got %v after %v, want Unavailable after 15ms", err, took)
		}
		if c := n.counts(); c.Suppressed[policy.SuppressedBudget] != 1 {
			t.Errorf("counts %+v, want suppressed by budget", c)
		}
	})
}

func TestNonFatalFailureStartsTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) {
			p.Default.Delay = time.Second
			p.Default.NonFatal = []uint32{uint32(codes.Unavailable)}
		})
		n := newStub(testService(t, p), func(ctx context.Context, replica string, index int, reply any) error {
			if index == 0 {
				_ = sleep(ctx, 5*ms)
				return status.Error(codes.Unavailable, "down")
			}
			return answer(ctx, 5*ms, replica, reply)
		}, "a", "b", "c")
		start := time.Now()
		got, err := n.call(t.Context())
		if took := time.Since(start); err != nil || got != n.visits()[1] || took != 10*ms {
			t.Errorf("got %q, %v after %v, want the second attempt's answer after 10ms", got, err, took)
		}
	})
}

func TestFatalFailureEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), func(ctx context.Context, replica string, index int, reply any) error {
			if index == 1 {
				return status.Error(codes.PermissionDenied, "no")
			}
			return answer(ctx, time.Second, replica, reply)
		}, "a", "b", "c")
		start := time.Now()
		_, err := n.call(t.Context())
		if took := time.Since(start); status.Code(err) != codes.PermissionDenied || took != 10*ms {
			t.Errorf("got %v after %v, want the hedge's PermissionDenied after 10ms", err, took)
		}
	})
}

// Three replicas, three attempts: three different replicas, at 0, d and 2d.
func TestThreeAttemptsGoToThreeReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			n := newStub(testService(t, testPolicy()), func(ctx context.Context, replica string, index int, reply any) error {
				if index < 2 {
					<-ctx.Done()
					return ctx.Err()
				}
				return answer(ctx, ms, replica, reply)
			}, "a", "b", "c")
			if got, err := n.call(t.Context()); err != nil || got != n.visits()[2] {
				t.Fatalf("got %q, %v, want the third attempt's answer", got, err)
			}
			synctest.Wait()
			if !slices.Equal(n.times, []time.Duration{0, 10 * ms, 20 * ms}) {
				t.Fatalf("attempts at %v, want 0, 10ms and 20ms", n.times)
			}
			if got := slices.Sorted(slices.Values(n.visits())); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Fatalf("attempts went to %v, want each of a, b, c once", got)
			}
			if c := n.counts(); c.Hedges != 2 || c.Wins != 1 || c.Eligible != 1 {
				t.Fatalf("counts %+v, want 2 hedges, 1 win, 1 eligible", c)
			}
		}
	})
}

// A lone replica is never hedged, and its primary goes on.
func TestLoneReplicaIsNotHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), func(ctx context.Context, replica string, _ int, reply any) error {
			return answer(ctx, time.Second, replica, reply)
		}, "a")
		if got, err := n.call(t.Context()); err != nil || got != "a" || len(n.visits()) != 1 {
			t.Errorf("got %q, %v from %v, want one attempt", got, err, n.visits())
		}
		want := Counts{Calls: 1, Safe: 1, Eligible: 1}
		want.Suppressed[policy.SuppressedReplica] = 1
		if c := n.counts(); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
	})
}

// A suppressed call counts one reason, whatever it met on the way.
func TestSuppressed(t *testing.T) {
	tests := map[string]struct {
		policy func(*policy.Policy)
		want   policy.Suppression
	}{
		"shadow":      {func(p *policy.Policy) { p.Mode = policy.ModeShadow }, policy.SuppressedMode},
		"off":         {func(p *policy.Policy) { p.Mode = policy.ModeOff }, policy.SuppressedMode},
		"probability": {func(p *policy.Policy) { p.Default.Probability = 0 }, policy.SuppressedProbability},
		"coin":        {func(p *policy.Policy) { p.Default.Probability = 1e-300 }, policy.SuppressedProbability},
		"budget":      {func(p *policy.Policy) { p.Budget = policy.Budget{Burst: 10} }, policy.SuppressedBudget},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newStub(testService(t, testPolicy(tt.policy)), func(ctx context.Context, replica string, _ int, reply any) error {
					return answer(ctx, time.Second, replica, reply)
				}, "a", "b", "c")
				if _, err := n.call(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				want := Counts{Calls: 1, Safe: 1, Eligible: 1}
				want.Suppressed[tt.want] = 1
				if c := n.counts(); c != want {
					t.Errorf("counts %+v, want %+v", c, want)
				}
			})
		})
	}
}

// Off holds for calls under way: before their delay, and while they wait for a
// token that comes only then.
func TestOffHoldsForCallsUnderWay(t *testing.T) {
	for name, at := range map[string]time.Duration{"before the delay": 5 * ms, "between hedges": 15 * ms} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testService(t, testPolicy())
				n := newStub(s, func(ctx context.Context, replica string, _ int, reply any) error {
					return answer(ctx, time.Second, replica, reply)
				}, "a", "b", "c")
				time.AfterFunc(at, func() {
					s.apply(testPolicy(func(p *policy.Policy) { p.Generation.Number, p.Mode = 2, policy.ModeOff }))
				})
				if _, err := n.call(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c, want := n.counts(), uint64(at/(10*ms)); c.Hedges != want {
					t.Errorf("%d hedges, want the %d before off", c.Hedges, want)
				}
			})
		})
	}
	t.Run("in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := testPolicy(func(p *policy.Policy) { p.Budget = policy.Budget{Ratio: 1, Burst: 10} })
			s := testService(t, p)
			n := newStub(s, func(ctx context.Context, replica string, _ int, reply any) error {
				return answer(ctx, time.Second, replica, reply)
			}, "a", "b", "c")
			s.budget.Set(policy.Budget{Burst: 10}, true) // earns nothing
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = n.call(t.Context()) })
			time.Sleep(15 * ms)
			// A token comes in the same instant as off, and off has been said.
			s.inForce.Store(testPolicy(func(p *policy.Policy) { p.Mode = policy.ModeOff }))
			s.budget.Set(policy.Budget{Ratio: 1, Burst: 10}, true)
			s.budget.Earn()
			calls.Wait()
			if c := n.counts(); c.Hedges != 0 || c.Suppressed[policy.SuppressedMode] != 1 {
				t.Errorf("counts %+v, want no hedge, suppressed by mode", c)
			}
			if got := s.budget.Tokens(); got != 1 {
				t.Errorf("%v tokens, want the unspent 1 back", got)
			}
		})
	})
}

// A pause of hedging holds for calls under way, too: in a freeze all of them wait for
// a token.
func TestPauseHoldsForCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy())
		n := newStub(s, func(ctx context.Context, replica string, _ int, reply any) error {
			return answer(ctx, time.Second, replica, reply)
		}, "a", "b", "c")
		time.AfterFunc(5*ms, func() {
			s.apply(testPolicy(func(p *policy.Policy) { p.Generation.Number, p.Default.Probability = 2, 0 }))
		})
		if _, err := n.call(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := n.counts(); c.Hedges != 0 || c.Suppressed[policy.SuppressedProbability] != 1 {
			t.Errorf("counts %+v, want no hedge, suppressed by probability", c)
		}
	})
}

// When nothing comes back, further calls send no hedge, and the controller is told at
// once; what comes back ends it.
func TestSilenceHoldsHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy(func(p *policy.Policy) { p.Budget.Ratio = .5 }))
		thaw := make(chan struct{})
		n := newStub(s, func(ctx context.Context, replica string, index int, reply any) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-thaw:
				return answer(ctx, ms, replica, reply)
			}
		}, "a", "b", "c")
		var calls sync.WaitGroup
		call := func() { _, _ = n.call(t.Context()) }
		for range 4 { // hedges at 10, 12, 14 and 16 ms, third attempts from 20 ms on
			calls.Go(call)
			time.Sleep(2 * ms)
		}
		time.Sleep(5 * ms)
		if c := n.counts(); c.Hedges != 2 || s.runaway.Load() {
			t.Errorf("at 13 ms: %d hedges, told %v; want 2 and no word", c.Hedges, s.runaway.Load())
		}
		calls.Go(call)
		time.Sleep(30 * ms)
		if c := n.counts(); c.Hedges != 8 || !s.runaway.Load() || !s.silence.Silent() {
			t.Errorf("at 43 ms: %d hedges, told %v; want 8, of the calls that had one before 20 ms, and word", c.Hedges, s.runaway.Load())
		}
		close(thaw)
		calls.Wait()
		if s.silence.Silent() {
			t.Error("silent though calls were answered")
		}
	})
}

// A hedge without a token waits its turn and goes when later calls have earned one.
func TestHedgeWaitsForToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) { p.Budget = policy.Budget{Ratio: .1, Burst: 10} })
		var stalled atomic.Bool
		n := newStub(testService(t, p), func(ctx context.Context, replica string, index int, reply any) error {
			if index == 0 && !stalled.Swap(true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return answer(ctx, ms, replica, reply)
		}, "a", "b", "c")
		start := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			_, err := n.call(t.Context())
			// The stalled call and 9 more earn one token, the last at 109 ms.
			if took := time.Since(start); err != nil || took != 110*ms {
				t.Errorf("got %v after %v, want an answer after 110ms", err, took)
			}
		})
		time.Sleep(100 * ms)
		for range 9 {
			time.Sleep(ms)
			calls.Go(func() { _, _ = n.call(t.Context()) })
		}
		calls.Wait()
		if c := n.counts(); c.Hedges != 1 || c.Suppressed[policy.SuppressedBudget] != 0 {
			t.Errorf("counts %+v, want 1 hedge and no suppression", c)
		}
	})
}

// What a caller sees of its own context is what it would see without hedging,
// however many attempts are under way.
func TestCallersContext(t *testing.T) {
	tests := map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want codes.Code
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 25*ms)
		}, codes.DeadlineExceeded},
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(25*ms, cancel)
			return ctx, cancel
		}, codes.Canceled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newStub(testService(t, testPolicy()), func(ctx context.Context, _ string, index int, _ any) error {
					<-ctx.Done()
					return status.Error(codes.Canceled, "stream reset") // as a server that gave up
				}, "a", "b", "c")
				ctx, cancel := tt.end(t.Context())
				defer cancel()
				start := time.Now()
				_, err := n.call(ctx)
				if took := time.Since(start); status.Code(err) != tt.want || took != 25*ms {
					t.Errorf("got %v after %v, want %v after 25ms", err, took, tt.want)
				}
				synctest.Wait()
				want := Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 2}
				if c := n.counts(); c != want {
					t.Errorf("counts %+v, want %+v", c, want)
				}
				if n.outstanding() != 0 {
					t.Errorf("%d attempts outstanding, want 0", n.outstanding())
				}
			})
		})
	}
}

// A call of which only hedges run, which ignore cancellation, ends with its
// caller's context.
func TestCallerDoesNotWaitForDeafHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) { p.Default.NonFatal = []uint32{uint32(codes.Unavailable)} })
		n := newStub(testService(t, p), func(_ context.Context, _ string, index int, _ any) error {
			if index == 0 {
				return status.Error(codes.Unavailable, "down")
			}
			time.Sleep(time.Minute)
			return nil
		}, "a", "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), 25*ms)
		defer cancel()
		start := time.Now()
		_, err := n.call(ctx)
		if took := time.Since(start); status.Code(err) != codes.DeadlineExceeded || took != 25*ms {
			t.Errorf("got %v after %v, want DeadlineExceeded after 25ms", err, took)
		}
		time.Sleep(time.Minute) // the bubble waits for them
	})
}

// "Negative or unparsable: no more hedges"; a number delays the next attempt.
func TestPushback(t *testing.T) {
	for value, want := range map[string]time.Duration{"-1": 0, "abc": 0, "200": 200 * ms} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPolicy(func(p *policy.Policy) { p.Default.NonFatal = []uint32{uint32(codes.Unavailable)} })
				n := newStub(testService(t, p), func(ctx context.Context, _ string, index int, _ any) error {
					if index == 0 {
						ctx.Value(trailerKey{}).(metadata.MD).Set(hedge.PushbackKey, value)
						return status.Error(codes.Unavailable, "down")
					}
					return nil
				}, "a", "b", "c")
				start := time.Now()
				_, err := n.call(t.Context())
				if took := time.Since(start); took != want || (err == nil) != (want > 0) {
					t.Errorf("got %v after %v, want the end after %v", err, took, want)
				}
			})
		})
	}
}

// A pushback takes a hedge out of the queue; when its time has come it queues
// again, behind another call, and both get their token.
func TestPushbackWhileWaitingForToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) {
			p.Budget = policy.Budget{Burst: 10, Start: 1}
			p.Default.NonFatal = []uint32{uint32(codes.Unavailable)}
		})
		s := testService(t, p)
		time.AfterFunc(229*ms, s.silence.Answered) // to another call
		var pushed atomic.Bool
		n := newStub(s, func(ctx context.Context, replica string, index int, reply any) error {
			switch {
			case index == 0:
				<-ctx.Done()
				return ctx.Err()
			case !pushed.Swap(true):
				_ = sleep(ctx, 15*ms) // a third attempt has queued at 20 ms
				ctx.Value(trailerKey{}).(metadata.MD).Set(hedge.PushbackKey, "200")
				return status.Error(codes.Unavailable, "busy")
			}
			return answer(ctx, 100*ms, replica, reply)
		}, "a", "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var calls sync.WaitGroup
		call := func() {
			if _, err := n.call(ctx); err != nil || time.Since(start) != 330*ms {
				t.Errorf("got %v after %v, want an answer after 330ms", err, time.Since(start))
			}
		}
		calls.Go(call)
		time.Sleep(50 * ms)
		calls.Go(call)
		time.Sleep(180 * ms) // the first call's third attempt came back at 225 ms
		s.budget.Set(policy.Budget{Ratio: 1, Burst: 10}, true)
		for range 4 {
			s.budget.Earn()
		}
		calls.Wait()
		synctest.Wait()
		if got := s.budget.Tokens(); got != 1 { // the second call sent a third attempt too
			t.Errorf("%v tokens, want 1 of 4", got)
		}
	})
}

// 10,000 hedged calls whose losers answer late and ignore cancellation, half of
// them cancelled by their callers: each answer finds its way to nobody. A bubble
// that ends while a goroutine of its own is blocked panics, so none stays behind.
func TestDeafLosersLeaveNoGoroutine(t *testing.T) {
	const calls = 10_000
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(func(p *policy.Policy) { p.Budget.Ratio = 1 })),
			func(ctx context.Context, replica string, index int, reply any) error {
				if index == 0 {
					return answer(ctx, 12*ms, replica, reply)
				}
				time.Sleep(time.Second)
				return nil
			}, "a", "b", "c")
		var running sync.WaitGroup
		for i := range calls {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if i%2 == 0 {
					time.AfterFunc(11*ms, cancel)
				}
				if _, err := n.call(ctx); (err != nil) != (i%2 == 0) {
					t.Errorf("call %d: got %v, want an error only where the caller cancels", i, err)
				}
			})
			time.Sleep(ms / 10)
		}
		running.Wait()
		if c := n.counts(); c.Hedges < calls*9/10 {
			t.Errorf("%d hedges, want nearly all of %d calls hedged", c.Hedges, calls)
		}
		time.Sleep(time.Second + ms)
		synctest.Wait()
		if n.outstanding() != 0 {
			t.Errorf("%d attempts in flight, want 0", n.outstanding())
		}
	})
}

// The same over real connections, where the servers ignore cancellation: nothing
// of a loser is left in the client.
func TestDeafServersLeaveNoGoroutine(t *testing.T) {
	const calls, workers = 1_000, 100
	serve := func(_ context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			time.Sleep(20 * ms)
		}
		return []byte("data"), nil
	}
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.connect(t)
	baseline := runtime.NumGoroutine()

	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range calls / workers {
				ctx, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					time.AfterFunc(rand.N(3*ms), cancel)
				}
				if _, err := c.call(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("a call that nobody cancelled failed: %v", err)
				}
				cancel()
			}
		})
	}
	running.Wait()
	if n := s.method(testMethod).hedges.Load(); n < calls/4 {
		t.Errorf("%d hedges in %d calls, want most hedged", n, calls)
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > baseline+10 { // handlers that sleep yet
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before the calls", runtime.NumGoroutine(), baseline)
		}
		time.Sleep(ms)
	}
}

// Calls cancelled at an instant within 1 ms of their hedge's alarm, often the
// very same one, 100,000 times: none hangs, and nothing stays in flight. Some
// wait for a token at that instant.
func TestCancelRacesAlarm(t *testing.T) {
	const calls, workers = 100_000 / raceSlowdown, 20
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) { p.Budget = policy.Budget{Ratio: .5, Burst: 5} })
		n := newStub(testService(t, p), func(ctx context.Context, replica string, index int, reply any) error {
			if index > 0 {
				return answer(ctx, ms/2, replica, reply)
			}
			<-ctx.Done()
			return ctx.Err()
		}, "a", "b", "c")
		var running sync.WaitGroup
		for range workers {
			running.Go(func() {
				for range calls / workers {
					ctx, cancel := context.WithCancel(t.Context())
					timer := time.AfterFunc(9*ms+ms/5*time.Duration(rand.N(11)), cancel)
					_, err := n.call(ctx)
					if err != nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
						t.Errorf("got %v, want an answer or Canceled", err)
					}
					timer.Stop()
					cancel()
				}
			})
		}
		running.Wait()
		synctest.Wait()
		if n.outstanding() != 0 {
			t.Errorf("%d attempts in flight, want 0", n.outstanding())
		}
		c := n.counts()
		if c.Calls != calls || c.Hedges == 0 || c.Suppressed[policy.SuppressedBudget] == 0 {
			t.Errorf("counts %+v, want hedges and refusals", c)
		}
		if sent := uint64(len(n.visits())); sent != c.Calls+c.Hedges-c.CancelledUnsent {
			t.Errorf("%d attempts sent, want %d calls + %d hedges - %d unsent", sent, c.Calls, c.Hedges, c.CancelledUnsent)
		}
		// Nobody waits any more, and no token was lost: a full bucket fills and stays.
		for range 100 {
			if granted := n.service.budget.Earn(); len(granted) > 0 {
				t.Fatal("a call that has ended waits for a token")
			}
		}
	})
}

// A hedge that is due while no other replica is ready is asked for again after
// another delay, and again: it goes once one has come.
func TestHedgeWaitsForReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), stallFirst, "a")
		time.AfterFunc(25*ms, func() { n.setReady("a", "b") })
		start := time.Now()
		got, err := n.call(t.Context())
		if took := time.Since(start); err != nil || got != "b" || took != 33*ms {
			t.Errorf("got %q, %v after %v, want b's answer after 33ms: due at 10, 20 and 30ms", got, err, took)
		}
		if c, want := n.counts(), (Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, Wins: 1}); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
	})
}

// So is one that is due before the primary has a replica, as while a connection
// comes up; and one whose token comes while there is no other replica gives it
// back.
func TestHedgeWaitsForThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy()), stallFirst, "a", "b")
		start := time.Now()
		got, err := n.callThrough(t.Context(), func(ctx context.Context, index int) {
			if index == 0 {
				_ = sleep(ctx, 15*ms)
			}
		}, n.invoke)
		if took := time.Since(start); err != nil || got != n.visits()[1] || took != 23*ms {
			t.Errorf("got %q, %v after %v, want a hedge's answer after 23ms", got, err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy(func(p *policy.Policy) { p.Budget = policy.Budget{Ratio: 1, Burst: 10} }))
		n := newStub(s, func(ctx context.Context, replica string, index int, reply any) error {
			return answer(ctx, 35*ms, replica, reply)
		}, "a", "b")
		s.budget.Set(policy.Budget{Burst: 10}, true) // the call earns none
		time.AfterFunc(15*ms, func() { n.setReady(n.visits()[0]) })
		time.AfterFunc(16*ms, func() {
			s.budget.Set(policy.Budget{Ratio: 1, Burst: 10}, true)
			s.budget.Earn()
		})
		if _, err := n.call(t.Context()); err != nil || len(n.visits()) != 1 {
			t.Errorf("got %v from %v, want the primary's answer alone", err, n.visits())
		}
		synctest.Wait()
		if got := s.budget.Tokens(); got != 1 {
			t.Errorf("%v tokens, want the one that could not be spent", got)
		}
	})
}

// A quick reply that the application does not accept loses to any other
// attempt's good one. When none is good, the last reply is the answer, and a
// failure is not better than a reply.
func TestFastBadReplyLoses(t *testing.T) {
	good := func(_ string, reply any) bool { return reply.(*wrapperspb.StringValue).Value != "" }
	down := status.Error(codes.Unavailable, "down")
	for name, tt := range map[string]struct {
		fast, slow error  // nil: a reply
		text       string // of the slow one's
		want       string
		took       time.Duration
	}{
		"bad, good":    {nil, nil, "data", "data", 31 * ms},
		"failed, good": {down, nil, "data", "data", 31 * ms},
		"all bad":      {nil, nil, "", "", 31 * ms},
		"bad, failed":  {nil, down, "", "", 31 * ms},
		"failed, bad":  {down, nil, "", "", 31 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPolicy(func(p *policy.Policy) {
					p.Default.NonFatal = []uint32{uint32(codes.Unavailable)}
					p.Default.MaxAttempts = 2
				})
				n := newStub(testService(t, p), func(ctx context.Context, replica string, index int, reply any) error {
					if index == 0 {
						_ = sleep(ctx, ms)
						return tt.fast
					}
					if tt.slow != nil {
						_ = sleep(ctx, 30*ms)
						return tt.slow
					}
					return answer(ctx, 30*ms, tt.text, reply)
				}, "a", "b")
				n.acceptable = good
				start := time.Now()
				got, err := n.call(t.Context())
				if took := time.Since(start); err != nil || got != tt.want || took != tt.took {
					t.Errorf("got %q, %v after %v, want %q after %v", got, err, took, tt.want, tt.took)
				}
				for _, replica := range n.visits() {
					seen := n.service.method(testMethod).replica(replica)
					if got == "" && drained(&seen.primary.completed)+drained(&seen.hedge.completed) > 0 {
						t.Error("a reply that is no answer was measured as one")
					}
				}
			})
		})
	}
}
