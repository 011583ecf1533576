package hedge

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/policy"
)

func newBudget(ratio, burst, start float64) *Budget {
	b := NewBudget()
	b.Set(policy.Budget{Ratio: ratio, Burst: burst, Start: start}, true)
	return b
}

// calls sends n primaries and returns how many waiters they let go.
func calls(b *Budget, n int) (letGo int) {
	for range n {
		for _, w := range b.Earn() {
			<-w.C
			letGo++
		}
	}
	return letGo
}

// The denominator is calls, not attempts, and a bucket of one token works:
// ratio 10%, start 1, burst 1.
func TestBudgetOfOneToken(t *testing.T) {
	b := newBudget(.1, 1, 1)
	calls(b, 2)
	if !b.Take(new(Waiter), false) {
		t.Fatal("2 calls in flight: the first hedge was not allowed")
	}
	var second Waiter
	if b.Take(&second, false) {
		t.Fatal("2 calls in flight: a second hedge was allowed")
	}
	b.Leave(&second)

	// Spend as they come what 100 calls earn: 10 more hedges.
	b = newBudget(.1, 1, 1)
	hedges := 0
	for range 100 {
		if b.Tokens() >= 1 && b.Take(new(Waiter), false) {
			hedges++
		}
		calls(b, 1)
	}
	if b.Take(new(Waiter), false) {
		hedges++
	}
	if hedges != 11 {
		t.Fatalf("100 calls: %d hedges, want 11", hedges)
	}
	var twelfth Waiter
	if b.Take(&twelfth, false) {
		t.Fatal("100 calls and 11 hedges: the twelfth was allowed")
	}
	if got := calls(b, 9); got != 0 {
		t.Errorf("109 calls: the twelfth hedge went")
	}
	if got := calls(b, 1); got != 1 {
		t.Errorf("110 calls: the twelfth hedge still waits")
	}
}

// A thousand calls reach their hedge point in one millisecond, limit 10%: at
// every instant the hedges stay within 10% of the calls so far and the burst,
// those that wait for a token included, and all that wait go in the end.
func TestBudgetStampede(t *testing.T) {
	const stampede, burst, callers = 1000, 10, 8
	b := newBudget(.1, burst, 0)
	var calls, hedges atomic.Int64
	check := func() {
		// Hedges first: a call that comes between the two readings only loosens.
		if h, c := hedges.Load(), calls.Load(); float64(h) > .1*float64(c)+burst {
			t.Errorf("%d hedges after %d calls, want at most 10%% of them and %d", h, c, burst)
		}
	}
	for range stampede / 2 {
		calls.Add(1)
		b.Earn()
	}
	// Half of the calls are pending when the stampede starts, half come in it.
	from := calls.Load()
	var wg sync.WaitGroup
	waiters := make([]Waiter, stampede)
	for g := range callers {
		wg.Go(func() {
			for i := g; i < stampede; i += callers {
				if i%2 == 0 {
					calls.Add(1)
					hedges.Add(int64(len(b.Earn())))
				}
				if b.Take(&waiters[i], false) {
					hedges.Add(1)
				}
				check()
			}
		})
	}
	wg.Wait()
	if got, most := hedges.Load(), (calls.Load()-from)/10+burst; got > most {
		t.Errorf("%d hedges in the stampede, want at most %d", got, most)
	}
	for range 11 * stampede {
		calls.Add(1)
		hedges.Add(int64(len(b.Earn())))
		check()
	}
	if got := hedges.Load(); got != stampede {
		t.Errorf("%d hedges in the end, want all %d", got, stampede)
	}
}

// Two minutes without a call neither save up tokens nor leave the budget stuck.
func TestBudgetIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(.1, 10, 10)
		calls(b, 10_000)
		before := b.Tokens()
		if before != 10 {
			t.Fatalf("after traffic: %v tokens, want the burst of 10", before)
		}
		time.Sleep(2 * time.Minute)
		if got := b.Tokens(); got != before {
			t.Errorf("after 2 minutes of nothing: %v tokens, want %v", got, before)
		}
		for b.Take(new(Waiter), true) {
		}
		before = b.Tokens()
		time.Sleep(2 * time.Minute)
		if got := calls(b, 10); got != 1 {
			t.Errorf("traffic again: 10 calls let %d hedges go, want the one that waits", got)
		}
		if got := b.Tokens(); got != before || math.IsNaN(got) {
			t.Errorf("%v tokens, want %v", got, before)
		}
	})
}

// New limits hold for the next decision; they clamp and never refill.
func TestBudgetSet(t *testing.T) {
	set := func(b *Budget, burst, start float64, active bool) {
		b.Set(policy.Budget{Ratio: .05, Burst: burst, Start: start}, active)
	}
	b := NewBudget()
	set(b, 40, 30, false)
	calls(b, 100)
	if got := b.Tokens(); got != 0 {
		t.Errorf("shadow: %v tokens, want none", got)
	}
	set(b, 40, 30, true)
	if got := b.Tokens(); got != 30 {
		t.Errorf("first active: %v tokens, want 30", got)
	}
	set(b, 20, 20, true)
	if got := b.Tokens(); got != 20 {
		t.Errorf("burst halved: %v tokens, want 20", got)
	}
	for range 12 {
		b.Take(new(Waiter), true)
	}
	set(b, 40, 20, true)
	if got := b.Tokens(); got != 8 {
		t.Errorf("burst doubled: %v tokens, want 8 as before", got)
	}
	set(b, 40, 30, false)
	set(b, 40, 30, true)
	if got := b.Tokens(); got != 8 {
		t.Errorf("off and on: %v tokens, want 8 as before", got)
	}
	set(b, 40, 33, true)
	if got := b.Tokens(); got != 11 {
		t.Errorf("a start of 33 after 30: %v tokens, want the 3 that were not granted yet beside 8", got)
	}
}

// Off holds at once, for those that wait too; on again, they have kept their turn.
func TestBudgetInactive(t *testing.T) {
	limits := policy.Budget{Ratio: .5, Burst: 10}
	b := newBudget(.5, 10, 0)
	var w Waiter
	if b.Take(&w, false) {
		t.Fatal("an empty budget granted a token")
	}
	b.Set(limits, false)
	if got := calls(b, 100); got != 0 || b.Tokens() != 0 {
		t.Errorf("inactive: 100 calls let %d hedges go and left %v tokens, want none", got, b.Tokens())
	}
	if b.Promote(&w) || b.Take(new(Waiter), true) {
		t.Error("inactive: a hedge was granted")
	}
	b.Set(limits, true)
	if got := calls(b, 3); got != 1 {
		t.Errorf("active again: 3 calls let %d hedges go, want 1", got)
	}
}

// A burst for calls that queue is not kept from them.
func TestBudgetReserveIsBounded(t *testing.T) {
	b := newBudget(.05, 200, 5)
	calls(b, 10_000)
	fresh := 0
	for b.Take(new(Waiter), false) {
		fresh++
	}
	if fresh != 200-maxReserve {
		t.Errorf("a full bucket of 200 gave %d to fresh hedges, want all but %d", fresh, maxReserve)
	}
}

// A new client's starting tokens are free for its first hedges; what calls earn
// fills a reserve, which is for hedges that have waited and for third attempts.
func TestBudgetReserve(t *testing.T) {
	b := newBudget(.05, 20, 5)
	for i := range 5 {
		if !b.Take(new(Waiter), false) {
			t.Fatalf("new client: hedge %d waits with %v tokens", i+1, b.Tokens())
		}
	}
	calls(b, 10_000)
	fresh := 0
	var w Waiter
	for b.Take(&w, false) {
		fresh++
	}
	if fresh != 10 {
		t.Errorf("a full bucket of 20 gave %d to fresh hedges, want half", fresh)
	}
	b.Leave(&w)
	late := 0
	for b.Take(&w, true) {
		late++
	}
	if late != 5 {
		t.Errorf("the reserve of 10 gave %d to third attempts, want half", late)
	}
	b.Leave(&w)
	var stalled Waiter
	b.Take(&stalled, false)
	promoted := 0
	for !b.Promote(&stalled) {
		if promoted++; promoted > Levels {
			t.Fatalf("a stalled call got none of %v tokens after %d delays", b.Tokens(), promoted)
		}
	}
	if promoted != lateLevel {
		t.Errorf("promoted in vain %d times, want %d: it may dig below where third attempts stop", promoted, lateLevel)
	}
}

// Those who waited longest go first, then first come, first served.
func TestBudgetOrder(t *testing.T) {
	b := newBudget(1, 10, 0)
	var ws [4]Waiter
	for i := range ws {
		b.Take(&ws[i], false)
	}
	b.Promote(&ws[2])
	var late Waiter
	b.Take(&late, true)
	for i, want := range []*Waiter{&late, &ws[2], &ws[0], &ws[1], &ws[3]} {
		var got []*Waiter
		for len(got) == 0 {
			got = b.Earn()
		}
		if len(got) != 1 || got[0] != want {
			t.Fatalf("grant %d went to %p, want %p", i, got[0], want)
		}
		<-want.C
	}
}

// A token that was granted to a call that has ended meanwhile goes to the next.
func TestBudgetLeave(t *testing.T) {
	b := newBudget(1, 1, 0)
	var first, second Waiter
	b.Take(&first, true)
	b.Take(&second, true)
	b.Earn()
	if had, next := b.Leave(&first); !had || next != &second {
		t.Errorf("Leave = %v, %p, want true and the second", had, next)
	}
	<-second.C
	if had, next := b.Leave(&second); had || next != nil {
		t.Errorf("Leave of one that has received its token = %v, %p, want false and none", had, next)
	}
	if next := b.Return(); next != nil || b.Tokens() != 1 {
		t.Errorf("a returned token went to %p and left %v, want it in the bucket", next, b.Tokens())
	}
}

// Callers that earn, take, wait, are promoted and give up, all at once: no token
// is made or lost, and nobody waits for ever.
func TestBudgetConcurrent(t *testing.T) {
	const callers, rounds = 8, 1000
	b := newBudget(.05, 200, 20)
	var granted, earned atomic.Int64
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			var w Waiter
			for range rounds {
				earned.Add(1)
				b.Earn()
				if r.IntN(10) > 0 {
					continue
				}
				if b.Take(&w, r.IntN(4) == 0) {
					granted.Add(1)
					continue
				}
				for delays := 0; ; delays++ {
					earned.Add(1)
					b.Earn()
					select {
					case <-w.C:
						granted.Add(1)
					default:
						switch {
						case b.Promote(&w):
							granted.Add(1)
						case delays == 20:
							b.Leave(&w)
						default:
							continue
						}
					}
					break
				}
				if r.IntN(10) == 0 {
					b.Set(policy.Budget{Ratio: .05, Burst: 200, Start: 20}, true)
				}
			}
		})
	}
	wg.Wait()
	want := 20*token + earned.Load()*token/20 - granted.Load()*token
	s := unpack(b.word.Load())
	if int64(s.tokens) != want {
		t.Errorf("%d millionths of a token left, want %d (%d calls, %d hedges)", s.tokens, want, earned.Load(), granted.Load())
	}
	if s.waiting {
		t.Error("everybody has left, and the budget believes that somebody waits")
	}
}

func BenchmarkBudget(b *testing.B) {
	b.Run("earn+take", func(b *testing.B) {
		budget, w := newBudget(1, 200, 200), new(Waiter)
		b.ReportAllocs()
		for b.Loop() {
			budget.Earn()
			budget.Take(w, false)
		}
	})
	b.Run("earn", func(b *testing.B) {
		budget := newBudget(1e-6, 200, 0)
		b.ReportAllocs()
		for b.Loop() {
			budget.Earn()
		}
	})
	b.Run("parallel earn+take", func(b *testing.B) {
		budget := newBudget(1, 200, 200)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			w := new(Waiter)
			for pb.Next() {
				budget.Earn()
				if !budget.Take(w, false) {
					budget.Leave(w)
				}
			}
		})
	})
	b.Run("earn while 400 wait", func(b *testing.B) {
		budget := newBudget(.05, 50, 0)
		waiters := make([]Waiter, 400)
		for i := range waiters {
			budget.Take(&waiters[i], false)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, w := range budget.Earn() {
				<-w.C
				budget.Take(w, false)
			}
		}
	})
}
