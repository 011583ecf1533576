package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/policy"
)

// What ended a call's attempts does not end the next call's: a scope that was
// ended serves no other. One that was not does, and so may be derived from again.
func TestScopeServesOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stalls bool
		n := newStub(testService(t, testPolicy()), func(ctx context.Context, replica string, index int, reply any) error {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if index == 0 && stalls {
				<-derived.Done()
				return derived.Err()
			}
			return answer(derived, ms, replica, reply)
		}, "a", "b")
		for i := range 10 {
			stalls = i%2 == 0
			if got, err := n.call(context.Background()); err != nil {
				t.Fatalf("call %d: got %q, %v, want an answer", i, got, err)
			}
			if want := i/2*3 + 2 + i%2; len(n.visits()) != want {
				t.Fatalf("call %d: %d attempts so far, want %d", i, len(n.visits()), want)
			}
		}
	})
}

// A call's context has its caller's values and deadline, and its scope's end.
func TestAttemptIsAContext(t *testing.T) {
	type key struct{}
	var all scopes
	s := all.get()
	a := &attempt{Context: context.WithValue(context.Background(), key{}, "value"), scope: s}
	before := runtime.NumGoroutine()
	derived, cancel := context.WithCancel(context.WithValue(a, attemptKey{}, nil))
	defer cancel()
	if n := runtime.NumGoroutine(); n != before {
		t.Errorf("deriving from it started %d goroutines", n-before)
	}
	if a.Value(key{}) != "value" || a.Value(attemptKey{}) != any(a) || a.Err() != nil || derived.Err() != nil {
		t.Errorf("value %v, error %v, want its caller's value and no end", a.Value(key{}), a.Err())
	}
	s.cancel()
	<-derived.Done()
	if !errors.Is(a.Err(), context.Canceled) || !errors.Is(derived.Err(), context.Canceled) {
		t.Errorf("errors %v and %v, want Canceled", a.Err(), derived.Err())
	}

	kept := all.get()
	kept.calls = maxScopeCalls
	all.put(kept)
	if kept.Err() == nil {
		t.Error("a scope that has served its calls lives on")
	}
}

// The price of a call that is not hedged, with everything on but the network: two
// allocations, or four with a caller's deadline, and no goroutine.
func TestUnhedgedCallAllocates(t *testing.T) {
	n := newStub(testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = time.Minute })), nil, "a", "b", "c")
	picker := n.balancer.current.Load()
	req, reply := wrapperspb.String("key"), &wrapperspb.StringValue{}
	invoke := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		picked, err := picker.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
		if err == nil {
			picked.Done(balancer.DoneInfo{BytesSent: true})
		}
		return err
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		want float64
	}{"background": {context.Background(), 2}, "deadline": {limited, 4}} {
		before := runtime.NumGoroutine()
		got := testing.AllocsPerRun(200, func() {
			if err := n.unary(tt.ctx, testMethod, req, reply, nil, invoke); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.want && raceSlowdown == 1 { // the race detector allocates too
			t.Errorf("%s: %v allocations, want at most %v", name, got, tt.want)
		}
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%s: %d goroutines, %d before", name, after, before)
		}
	}
}
