package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"

	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
)

// A replica breaks, a call starts its reconnecting, and meanwhile the resolver puts
// another one in its place: that one is dialled, and calls succeed.
func TestReplicaIsReplacedWhileItReconnects(t *testing.T) {
	s := testService(t, testPolicy())
	c := newCluster(t, s, func(_ context.Context, replica string, _ bool) ([]byte, error) { return []byte(replica), nil }, "a", "b")
	only := func(i int) { c.resolver.UpdateState(resolver.State{Endpoints: c.endpoints[i : i+1]}) }
	call := func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		got, err := c.call(ctx, grpc.WaitForReady(true))
		return string(got), err
	}
	c.connect(t)
	only(0)
	if got, err := call(t.Context()); got != "a" || err != nil {
		t.Fatalf("got %q, %v, want a's answer", got, err)
	}
	c.servers["a"].Stop()
	waiting := make(chan error, 1)
	go func() {
		got, err := call(context.Background())
		if err == nil && got != "b" {
			err = fmt.Errorf("an answer of %q", got)
		}
		waiting <- err
	}()
	only(1)
	if err := <-waiting; err != nil {
		t.Errorf("the call that was waiting: %v", err)
	}
	for range 10 {
		if got, err := call(t.Context()); got != "b" || err != nil {
			t.Errorf("got %q, %v, want b's answer", got, err)
		}
	}
}

// Idle for an hour against a server with gRPC's stock keepalive policy, a client
// keeps its two streams: no ping of it is one too many.
func TestIdleClientKeepsItsStreams(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		time.Sleep(time.Hour)
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.sources) != 1 || len(d.streams) != 1 {
			t.Errorf("%d report streams in an hour and %d policy streams, want one of each", len(d.sources), len(d.streams))
		}
	})
}

// Calls that were hedged leave nothing behind: no goroutine, no timer, no memory.
func TestHedgedCallsLeaveNothing(t *testing.T) {
	const calls = 10_000 / raceSlowdown
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay, p.Default.MaxAttempts = ms, 2 }))
		n := newStub(s, stallFirst, "a", "b", "c")
		batch := func() uint64 {
			for range calls {
				if _, err := n.call(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			n.sent, n.times = nil, nil
			synctest.Wait()
			runtime.GC()
			runtime.GC() // what the first one freed of pools
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		batch()
		goroutines := runtime.NumGoroutine()
		before := batch()
		after := batch()
		if grown := int64(after) - int64(before); grown > calls {
			t.Errorf("the heap grew by %d bytes in %d calls", grown, calls)
		}
		if got := runtime.NumGoroutine(); got > goroutines {
			t.Errorf("%d goroutines, %d before", got, goroutines)
		}
		if c := n.counts(); c.Hedges != 3*calls {
			t.Errorf("%d hedges, want one for each call", c.Hedges)
		}
	})
}

// A report of 10 methods, 12 replicas each and 100 calls to each of these takes less
// than 12 KB on the wire.
func TestReportIsSmall(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newService(orders, func() {})
	for i := range 10 {
		m := s.method(fmt.Sprintf("/shop.orders.v1.Orders/Method%d", i))
		for j := range 12 {
			seen := m.replica(fmt.Sprintf("10.0.%d.7:50051", j))
			for range 100 {
				s.noteCall(m, true)
				seen.primary.completed.Record(articleLatency(random))
			}
		}
	}
	r := s.drain(time.Now())
	r.Service = orders
	if size := proto.Size(wire.FrameToProto(r)); size > 12_000 {
		t.Errorf("%d bytes, want at most 12,000", size)
	} else {
		t.Logf("%d bytes", size)
	}
}

// articleLatency is uniform from 5 to 15 ms, and a second for one call in a hundred.
func articleLatency(random *rand.Rand) time.Duration {
	if random.IntN(100) == 0 {
		return time.Second
	}
	return 5*ms + time.Duration(random.Int64N(int64(10*ms)))
}
