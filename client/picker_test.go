package client

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/policy"
)

// A fourth replica that nobody knows anything of joins under load: hedges reach
// it as often as the others, neither preferred nor shunned.
func TestNewReplicaGetsItsShareOfHedges(t *testing.T) {
	const calls = 4000
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 }))
		n := newStub(s, stallFirst, "a", "b", "c")
		spread := func() map[string]float64 {
			n.sent = nil
			done := make(chan struct{})
			for range calls {
				time.Sleep(ms / 5) // some 65 in flight
				go func() {
					_, _ = n.call(t.Context())
					done <- struct{}{}
				}()
			}
			for range calls {
				<-done
			}
			m := s.method(testMethod)
			hedges := map[string]float64{}
			for _, name := range []string{"a", "b", "c", "d"} {
				h := drained(&m.replica(name).hedge.completed)
				hedges[name] = float64(h) / calls
			}
			return hedges
		}
		spread()
		n.setReady("a", "b", "c", "d")
		for name, share := range spread() {
			if math.Abs(share-.25) > .04 {
				t.Errorf("%s got %.3f of the hedges, want about 1/4", name, share)
			}
		}
	})
}

// A hedge that was decided on finds no replica left, as the only other one went
// away: that attempt fails at once, and the call goes on.
func TestHedgeWithoutReplicaFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, testPolicy())
		n := newStub(s, func(ctx context.Context, replica string, _ int, reply any) error {
			return answer(ctx, time.Second, replica, reply)
		}, "a", "b")
		// The hedge is decided on while b is ready, and picks once it is not.
		invoke := n.invoke
		got, err := n.callThrough(t.Context(), func(ctx context.Context, index int) {
			if index > 0 {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.setReady(n.sent[0])
			}
		}, invoke)
		if err != nil || got != n.visits()[0] || len(n.visits()) != 1 {
			t.Errorf("got %q, %v from %v, want the primary's answer", got, err, n.visits())
		}
		if c, want := n.counts(), (Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, CancelledUnsent: 1}); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
	})
}

// A pick whose connection turns out not to be ready is taken back.
func TestPickThatIsNotReadyIsTakenBack(t *testing.T) {
	n := newStub(testService(t, nil), nil, "a", "b")
	c := &call{request: request{fullMethod: testMethod}}
	h := &attempt{Context: context.Background(), call: c, try: try{index: 1}}
	c.carrier, c.primary.call, c.hedges = c, c, []runner{h}

	p := n.balancer.current.Load()
	info := balancer.PickInfo{FullMethodName: testMethod, Ctx: h}
	first, err := p.Pick(info)
	if err != nil || !h.sent || h.replica.liveReplica == nil || n.outstanding() != 1 {
		t.Fatalf("pick: %v, sent %v to %v, %d outstanding", err, h.sent, h.replica, n.outstanding())
	}
	first.Done(balancer.DoneInfo{})
	if h.sent || h.replica.liveReplica != nil || n.outstanding() != 0 {
		t.Errorf("sent %v to %v, %d outstanding after a pick that came to nothing", h.sent, h.replica, n.outstanding())
	}
	second, err := p.Pick(info)
	if err != nil {
		t.Fatal(err)
	}
	// The stream could not be begun: no server sees this attempt.
	second.Done(balancer.DoneInfo{Err: status.Error(codes.Unavailable, "closing")})
	if h.sent || h.replica.liveReplica == nil {
		t.Errorf("sent %v to %v, want unsent, and the replica tried", h.sent, h.replica)
	}
}

// What carries no attempt goes to the less loaded of two replicas.
func TestPickWithoutAttempt(t *testing.T) {
	n := newStub(testService(t, nil), nil, "a", "b")
	p := n.balancer.current.Load()
	var done []func(balancer.DoneInfo)
	for range 10 {
		got, err := p.Pick(balancer.PickInfo{FullMethodName: "/p.S/Stream", Ctx: context.Background()})
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, got.Done)
	}
	if a, b := p.replicas[0].outstanding.Load(), p.replicas[1].outstanding.Load(); a != 5 || b != 5 {
		t.Errorf("%d and %d outstanding, want 5 each", a, b)
	}
	for _, f := range done {
		f(balancer.DoneInfo{BytesSent: true})
	}
	if n.outstanding() != 0 {
		t.Errorf("%d outstanding, want 0", n.outstanding())
	}
}

// An interceptor that uses a call's context for a call of another method does
// not pick on that call's behalf.
func TestPickForAnotherMethodIsNotTheCalls(t *testing.T) {
	n := newStub(testService(t, nil), nil, "a", "b")
	c := &call{request: request{fullMethod: testMethod}}
	a := &attempt{Context: context.Background(), call: c}
	if _, err := n.balancer.current.Load().Pick(balancer.PickInfo{FullMethodName: "/auth.Tokens/Get", Ctx: a}); err != nil {
		t.Fatal(err)
	}
	if a.replica.liveReplica != nil {
		t.Errorf("the call's attempt is at %v, want nowhere", a.replica)
	}
}

// With two replicas of which one is in probation, the primary goes to the one in
// service and the hedge to the other: slow is better than stalled.
func TestHedgeToProbation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPolicy(func(p *policy.Policy) {
			p.Replicas = map[string]policy.Replica{"a": {State: policy.ReplicaProbation}}
		})
		for range 50 {
			n := newStub(testService(t, p), stallFirst, "a", "b")
			if _, err := n.call(t.Context()); err != nil || !slices.Equal(n.visits(), []string{"b", "a"}) {
				t.Fatalf("got %v from %v, want the primary at b and the hedge at a", err, n.visits())
			}
			synctest.Wait()
		}
	})
}

// A policy that changes a replica's standing holds for the next pick.
func TestStandingFollowsThePolicy(t *testing.T) {
	n := newStub(testService(t, nil), nil, "a", "b")
	p := n.balancer.current.Load()
	probation := testPolicy(func(p *policy.Policy) {
		p.Replicas = map[string]policy.Replica{"b": {State: policy.ReplicaProbation, Share: .02}}
	})
	for _, pol := range []*policy.Policy{nil, probation, probation, testPolicy(), probation} {
		want := policy.ReplicaServing
		if pol == probation {
			want = policy.ReplicaProbation
		}
		if got, _ := p.candidates(pol)[1].Standing(); got != want {
			t.Errorf("b is %v, want %v", got, want)
		}
	}
}
