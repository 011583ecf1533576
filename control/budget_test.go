package control

import (
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
)

func TestBudgetOfKnownFleets(t *testing.T) {
	for _, c := range []struct {
		name    string
		calls   float64 // of one client in 10 s
		clients float64
		want    policy.Budget
	}{
		{"one client at 1,000 rps", 10000, 1, policy.Budget{Ratio: .046, Burst: 50, Start: 15}},
		{"one client at 200 rps", 2000, 1, policy.Budget{Ratio: .046, Burst: 25, Start: 15}},
		{"200 clients at 5 rps", 50, 200, policy.Budget{Ratio: .046, Burst: 10, Start: 2}},
		{"1,000 clients at 1,000 rps", 10000, 1000, policy.Budget{Ratio: .046, Burst: 50, Start: 15}},
		{"one client at one call a minute", .17, 1, policy.Budget{Ratio: .046, Burst: 10, Start: 1}},
	} {
		if got := wantBudget(.05, c.calls, c.clients); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// What one client earns and starts with in two windows is within the target of
// its calls, wherever the start is not at its least of one token.
func TestStartFitsIntoTheTarget(t *testing.T) {
	for calls := 500.; calls <= 1e6; calls *= 1.3 {
		for _, target := range []float64{.001, .01, .05, .2} {
			b := wantBudget(target, calls, 1)
			if n := 2 * calls; b.Start > minStart && b.Ratio*n+b.Start > target*n+.5 {
				t.Errorf("%.0f calls, target %v: %+v spends %.1f, want at most %.1f", n, target, b, b.Ratio*n+b.Start, target*n)
			}
		}
	}
	// Of a fleet a sixth starts within 10 s; what is eligible and what they start with fits too.
	for _, clients := range []float64{6, 60, 600} {
		for calls := 10.; calls < 1e5; calls *= 2 {
			b := wantBudget(.05, calls, clients)
			spent := steer*.05*calls*clients + b.Start*clients/6
			if b.Start > minStart && spent > .05*calls*clients*1.1 {
				t.Errorf("%v clients of %v calls: %+v spends %.1f of %.1f", clients, calls, b, spent, .05*calls*clients)
			}
		}
	}
}

func TestBudgetIgnoresJitter(t *testing.T) {
	b := unknownBudget(.05)
	rate := func(n uint64) tally { return tally{safe: n, clientTime: Window} }
	if got := nextBudget(b, .05, tally{safe: 99, clientTime: Window}, 1); got != b {
		t.Errorf("with 99 calls: %+v, want %+v", got, b)
	}
	// Two calls in 20 ms each say nothing of 100 rps.
	if got := nextBudget(b, .05, tally{safe: 400, clientTime: 4 * time.Second}, 200); got.Start > unknownStart || got.Burst != b.Burst {
		t.Errorf("after 20 ms of each of 200 clients: %+v, want at most %+v", got, b)
	}
	// A client that ended after 4,000 calls in .3 s was a fast one all the same.
	if got := nextBudget(b, .05, tally{safe: 4000, clientTime: 300 * time.Millisecond}, 1); got.Burst != 50 || got.Start != 15 {
		t.Errorf("after 4,000 calls in .3 s: %+v, want burst 50, start 15", got)
	}
	b = nextBudget(b, .05, rate(10000), 1)
	if b.Burst != 50 || b.Start != 15 {
		t.Fatalf("at 1,000 rps: %+v", b)
	}
	for _, n := range []uint64{6000, 15000, 5200, 9000} {
		if got := nextBudget(b, .05, rate(n), 1); got != b {
			t.Errorf("at %d calls in 10 s: %+v, want %+v kept", n, got, b)
		}
	}
	b = nextBudget(b, .05, rate(900), 1)
	if b.Burst != 11 || b.Start != 7 {
		t.Errorf("at 90 rps: %+v, want burst 11, start 7", b)
	}
}
