package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

func observed(p *policy.Policy) { p.Default.Observe = 1 }

// takes is replicas that answer attempt i after its time, the last for the rest.
func takes(times ...time.Duration) tryFunc {
	return func(ctx context.Context, replica string, index int, reply any) error {
		return answer(ctx, times[min(index, len(times)-1)], replica, reply)
	}
}

// told drains what was counted of the stub's method.
func (n *stub) told() *report.Method {
	if m := n.service.drain(time.Now()).Methods[testMethod]; m != nil {
		return m
	}
	return &report.Method{}
}

// pairOf fails the test unless m has one pair, of these latencies.
func pairOf(t *testing.T, m *report.Method, primary, hedge time.Duration) {
	t.Helper()
	if want := estimator.NewPair(primary, hedge); len(m.Pairs) != 1 || m.Pairs[0] != want {
		t.Errorf("pairs %v, want %v", m.Pairs, want)
	}
}

// The caller has its answer when the first attempt has, and the other runs to its
// end, whatever the caller does meanwhile.
func TestObservedLoserRunsToItsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		primary, hedge time.Duration
		took           time.Duration
		want           Counts
	}{
		"hedge wins":   {500 * ms, 3 * ms, 13 * ms, Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, Wins: 1}},
		"primary wins": {15 * ms, 500 * ms, 15 * ms, Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newStub(testService(t, testPolicy(observed)), takes(tt.primary, tt.hedge), "a", "b")
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				if _, err := n.call(ctx); err != nil || time.Since(start) != tt.took {
					t.Errorf("%v after %v, want an answer after %v", err, time.Since(start), tt.took)
				}
				cancel()
				synctest.Wait()
				if m := n.told(); m.Observed != 1 || len(m.Pairs) != 0 || n.outstanding() != 1 {
					t.Errorf("%d observed, pairs %v, %d outstanding; want one that runs on", m.Observed, m.Pairs, n.outstanding())
				}
				time.Sleep(time.Second)
				pairOf(t, n.told(), tt.primary, tt.hedge)
				if c := n.counts(); c != tt.want {
					t.Errorf("counts %+v, want %+v", c, tt.want)
				}
				if n.outstanding() != 0 || n.service.observed.Load() != 0 {
					t.Errorf("%d attempts outstanding, %d observed", n.outstanding(), n.service.observed.Load())
				}
			})
		})
	}
}

// A caller that gives up waits for nobody; what it started is measured all the same.
func TestCallerGivesUpAnObservedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed)), takes(300*ms, 200*ms), "a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(15*ms, cancel)
		start := time.Now()
		if _, err := n.call(ctx); status.Code(err) != codes.Canceled || time.Since(start) != 15*ms {
			t.Errorf("%v after %v, want it cancelled after 15ms", err, time.Since(start))
		}
		time.Sleep(time.Second)
		pairOf(t, n.told(), 300*ms, 200*ms)
	})
}

// Without a hedge there is nothing to observe: the caller's end is the primary's.
func TestUnhedgedCallIsNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed)), takes(time.Hour), "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*ms, cancel)
		if _, err := n.call(ctx); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if m := n.told(); m.Observed != 0 || n.outstanding() != 0 {
			t.Errorf("%d observed, %d outstanding; want none", m.Observed, n.outstanding())
		}
		wantDone := newStub(testService(t, testPolicy(observed)), takes(5*ms), "a", "b")
		if got, err := wantDone.call(t.Context()); err != nil || got != wantDone.visits()[0] {
			t.Errorf("%q, %v; want the primary's answer", got, err)
		}
	})
}

// A hedge that had to wait for a token tells of longer calls than others.
func TestHedgeThatWaitedIsNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed, func(p *policy.Policy) {
			p.Budget = policy.Budget{Ratio: .5, Burst: 10}
		})), takes(100*ms, 3*ms), "a", "b")
		for range 4 {
			if _, err := n.call(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _, _ = n.call(t.Context()) })
		}
		wg.Wait()
		time.Sleep(time.Second)
		if m := n.told(); m.Hedges == 0 || m.Observed >= m.Hedges {
			t.Errorf("%d observed of %d hedges, want those that waited left out", m.Observed, m.Hedges)
		}
	})
}

// A loser that takes too long is cut, and is known to take longer; so does one whose
// caller's deadline ends.
func TestObservedLoserIsCut(t *testing.T) {
	for name, tt := range map[string]struct {
		deadline, cut time.Duration
	}{
		"limit":    {time.Hour, observeLimit + 13*ms},
		"deadline": {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newStub(testService(t, testPolicy(observed)), takes(24*time.Hour, 3*ms), "a", "b")
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				if _, err := n.call(ctx); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				m := n.told()
				pairOf(t, m, tt.cut, 3*ms)
				if n.outstanding() != 0 || n.counts().Failures != 0 {
					t.Errorf("%d outstanding, counts %+v", n.outstanding(), n.counts())
				}
			})
		})
	}
}

// A failure is no latency.
func TestFailedObserverTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed)), func(ctx context.Context, replica string, index int, reply any) error {
			if index == 0 {
				return errors.Join(sleep(ctx, 50*ms), status.Error(codes.Unavailable, "down"))
			}
			return answer(ctx, 3*ms, replica, reply)
		}, "a", "b")
		if _, err := n.call(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if m := n.told(); m.Observed != 1 || len(m.Pairs) != 0 || n.service.observed.Load() != 0 {
			t.Errorf("%d observed, pairs %v, %d under observation", m.Observed, m.Pairs, n.service.observed.Load())
		}
	})
}

// The third attempt is of no use once the call is over.
func TestThirdAttemptIsNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed)), takes(500*ms, 40*ms, time.Hour), "a", "b", "c")
		if _, err := n.call(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n.outstanding() != 1 {
			t.Errorf("%d outstanding, want the primary alone", n.outstanding())
		}
		time.Sleep(time.Second)
		pairOf(t, n.told(), 500*ms, 40*ms)
	})
}

// However many calls stall, few are observed at a time, and none is left over.
func TestObserversAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newStub(testService(t, testPolicy(observed, func(p *policy.Policy) { p.Default.MaxAttempts = 2 })), takes(time.Second, 3*ms), "a", "b")
		var wg sync.WaitGroup
		for range 150 {
			wg.Go(func() {
				if _, err := n.call(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if m := n.told(); m.Observed != maxObserved || m.Hedges != 150 || n.outstanding() != maxObserved {
			t.Errorf("%d observed of %d hedges, %d outstanding; want %d", m.Observed, m.Hedges, n.outstanding(), maxObserved)
		}
		time.Sleep(2 * time.Second)
		if m := n.told(); len(m.Pairs) != maxObserved || n.service.observed.Load() != 0 {
			t.Errorf("%d pairs, %d still under observation", len(m.Pairs), n.service.observed.Load())
		}
		for range report.MaxPairs + 10 {
			n.service.method(testMethod).pair(estimator.Pair{})
		}
		if m := n.told(); len(m.Pairs) != report.MaxPairs {
			t.Errorf("%d pairs in a report, want at most %d", len(m.Pairs), report.MaxPairs)
		}
	})
}

// The caller has its request and reply for itself when the call is over, and what
// options asked for is the winner's.
func TestObservedCallLeavesTheCallersData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan string, 1)
		n := newStub(testService(t, testPolicy(observed)), takes(100*ms, 3*ms), "a", "b")
		request, reply := wrapperspb.String("key"), &wrapperspb.StringValue{}
		var trailer metadata.MD
		invoke := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			err := n.invoke(ctx, method, req, reply, cc, opts...)
			if _, hedge := metadata.FromOutgoingContext(ctx); !hedge {
				late <- req.(*wrapperspb.StringValue).Value // the primary's, when it ends
			}
			return err
		}
		if err := n.unary(t.Context(), testMethod, request, reply, nil, invoke, grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		winner := n.visits()[1]
		request.Value, reply.Value = "other", "other"
		time.Sleep(time.Second)
		if late := <-late; late != "key" || reply.Value != "other" || len(trailer["replica"]) != 1 || trailer["replica"][0] != winner {
			t.Errorf("the loser read %q; the reply became %q and the trailer %v", late, reply.Value, trailer)
		}
	})
}
