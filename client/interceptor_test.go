package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/policy"
)

// A method that may not run twice is never hedged: its calls are only measured,
// and those that would have been eligible are counted as unsafe.
func TestUnsafeIsNeverHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy())
		n := newStub(s, func(ctx context.Context, replica string, _ int, reply any) error {
			return answer(ctx, time.Second, replica, reply)
		}, "a", "b", "c")
		n.safety = &safety{listed: func(string) bool { return false }, files: new(noFiles)}
		tokens := s.budget.Tokens()
		if _, err := n.call(t.Context()); err != nil || len(n.visits()) != 1 {
			t.Errorf("got %v from %v, want one attempt", err, n.visits())
		}
		want := Counts{Calls: 1}
		want.Suppressed[policy.SuppressedUnsafe] = 1
		if c := n.counts(); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
		if got := s.budget.Tokens(); got != tokens {
			t.Errorf("%v tokens, want %v: an unsafe call earns none", got, tokens)
		}
		wantOne(t, "primary completed", &s.method(testMethod).replica(n.visits()[0]).primary.completed, time.Second)
	})
}

// A call that carries an idempotency key may run twice, whatever its method; one
// with two keys, or an empty one, may not.
func TestKeyedCallIsHedged(t *testing.T) {
	for _, c := range []struct {
		keys     []string
		attempts int
	}{
		{[]string{"keys", "a-key"}, 1}, // another header
		{[]string{keyMetadata, "a-key"}, 2},
		{[]string{keyMetadata, ""}, 1},
		{[]string{keyMetadata, "a-key", keyMetadata, "another"}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newStub(testService(t, testPolicy()), stallFirst, "a", "b")
			n.safety = &safety{listed: func(string) bool { return false }, files: new(noFiles)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = n.call(metadata.AppendToOutgoingContext(ctx, c.keys...)) // a primary alone stalls to the deadline
			if got := len(n.visits()); got != c.attempts {
				t.Errorf("%q: %d attempts, want %d", c.keys, got, c.attempts)
			}
			synctest.Wait()
		})
	}
}

// Without a policy a call is made once and plainly, and measured.
func TestNoPolicyNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, nil), func(ctx context.Context, replica string, _ int, reply any) error {
			return answer(ctx, time.Second, replica, reply)
		}, "a", "b", "c")
		if _, err := n.call(t.Context()); err != nil || len(n.visits()) != 1 {
			t.Errorf("got %v from %v, want one attempt", err, n.visits())
		}
		if c, want := n.counts(), (Counts{Calls: 1, Safe: 1}); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
	})
}

// Every hedge that was decided on was either seen by a server or counted as
// unsent, exactly; hedges that race the primary's answer and their caller's
// cancellation included.
func TestHedgesAreCountedExactly(t *testing.T) {
	const calls, workers = 2_000, 50
	serve := func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		return nil, sleep(ctx, rand.N(2*ms))
	}
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.connect(t)
	before := s.method(testMethod).counts()

	var left atomic.Int64
	left.Store(calls)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				ctx, cancel := context.WithCancel(context.Background())
				stop := func() bool { return false }
				if i%8 == 0 {
					stop = time.AfterFunc(ms+rand.N(ms/2), cancel).Stop
				}
				if _, err := c.call(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				stop()
				cancel()
			}
		})
	}
	running.Wait()

	// A loser's headers may still be on their way when its call is over, and so may
	// the end of an attempt that sent none, which no header tells of.
	deadline := time.After(30 * time.Second)
	for {
		got := s.method(testMethod).counts().minus(before)
		want := got.Hedges - got.CancelledUnsent
		if uint64(c.hedges.Load()) == want && uint64(c.seen.Load()) <= got.Calls+want {
			if got.Hedges == 0 || got.Calls != calls {
				t.Errorf("counts %+v, want hedges in %d calls", got, calls)
			}
			return
		}
		select {
		case <-c.header:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("servers saw %d hedges of %d attempts, want %d: %+v", c.hedges.Load(), c.seen.Load(), want, got)
		}
	}
}

// benchmarkStub answers at once, over the real picker or (for the interceptor
// alone) without one.
func benchmarkStub(ctx context.Context, b *testing.B, change func(*policy.Policy), invoker grpc.UnaryInvoker) {
	in := testInterceptor(testService(b, testPolicy(func(p *policy.Policy) { p.Default.Delay = time.Second }, change)))
	req, reply := wrapperspb.String("key"), &wrapperspb.StringValue{}
	b.ReportAllocs()
	for b.Loop() {
		if err := in.unary(ctx, testMethod, req, reply, nil, invoker); err != nil {
			b.Fatal(err)
		}
	}
}

func noPolicyChange(*policy.Policy) {}

func stubInvoker(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}

// The price of an unhedged call, over an invoker that does nothing.
func BenchmarkUnhedgedCall(b *testing.B) {
	b.Run("background", func(b *testing.B) { benchmarkStub(context.Background(), b, noPolicyChange, stubInvoker) })
	b.Run("deadline", func(b *testing.B) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		benchmarkStub(ctx, b, noPolicyChange, stubInvoker)
	})
	b.Run("off", func(b *testing.B) {
		benchmarkStub(context.Background(), b, func(p *policy.Policy) { p.Mode = policy.ModeOff }, stubInvoker)
	})
}

// The price of the picker with it.
func BenchmarkPick(b *testing.B) {
	n := newStub(testService(b, nil), nil, "a", "b", "c")
	p := n.balancer.current.Load()
	benchmarkStub(context.Background(), b, noPolicyChange, func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		picked, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
		if err == nil {
			picked.Done(balancer.DoneInfo{BytesSent: true})
		}
		return err
	})
}

// A call of which every attempt but the hedge stalls: the alarm's delay of 1 ms
// is in it.
func BenchmarkHedgedCall(b *testing.B) {
	p := testPolicy(func(p *policy.Policy) { p.Default.Delay = ms })
	n := newStub(testService(b, p), func(ctx context.Context, _ string, index int, _ any) error {
		if index == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, "a", "b", "c")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.call(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
