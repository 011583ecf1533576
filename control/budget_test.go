package control

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/policy"
)

func TestBudgetOfKnownFleets(t *testing.T) {
	for _, c := range []struct {
		name string
		of   fleet
		want policy.Budget
	}{
		{"one client at 1,000 rps", fleet{1, 10000, time.Hour, 1, 10000}, policy.Budget{Ratio: .0485, Burst: 50, Start: 15}},
		{"one client at 200 rps", fleet{1, 2000, time.Hour, 1, 2000}, policy.Budget{Ratio: .046, Burst: 25, Start: 15}},
		{"200 clients at 5 rps that live a minute", fleet{200, 50, time.Minute, 1, 50}, policy.Budget{Ratio: .05, Burst: 10, Start: 7}},
		{"200 clients at 5 rps that stay", fleet{200, 50, time.Hour, 1, 50}, policy.Budget{Ratio: .05, Burst: 15, Start: 15}},
		{"1,000 clients at 1,000 rps", fleet{1000, 10000, time.Minute, 1, 10000}, policy.Budget{Ratio: .05, Burst: 50, Start: 15}},
		{"one client at one call a minute", fleet{1, .17, time.Hour, 1, .17}, policy.Budget{Ratio: .046, Burst: 10, Start: 1}},
	} {
		if got := wantBudget(.05, c.of); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// What one client earns and starts with in two windows is within the target of
// its calls, wherever the start is not at its least of one token.
func TestStartFitsIntoTheTarget(t *testing.T) {
	for calls := 500.; calls <= 1e6; calls *= 1.3 {
		for _, target := range []float64{.001, .01, .05, .2} {
			b := wantBudget(target, fleet{1, calls, time.Hour, 1, calls})
			if n := 2 * calls; b.Start > minStart && b.Ratio*n+b.Start > target*n+.5 {
				t.Errorf("%.0f calls, target %v: %+v spends %.1f, want at most %.1f", n, target, b, b.Ratio*n+b.Start, target*n)
			}
		}
	}
}

// Whatever the fleet, its budget is within bounds; more of anything never makes a start less.
func TestStartGrowsWithRateCompanyAndLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.Float64Range(MinTarget, MaxTarget).Draw(t, "target")
		f := fleet{
			clients:  rapid.Float64Range(1, maxClients).Draw(t, "clients"),
			calls:    rapid.Float64Range(0, 1e7).Draw(t, "calls"),
			life:     time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "life")),
			crowding: 1,
		}
		more := fleet{
			clients:  f.clients * rapid.Float64Range(1, 10).Draw(t, "times the clients"),
			calls:    f.calls * rapid.Float64Range(1, 10).Draw(t, "times the calls"),
			life:     f.life + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more life")),
			crowding: 1,
		}
		b, above := wantBudget(target, f), wantBudget(target, more)
		if err := b.Validate(); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
		if above.Start < b.Start || above.Burst < b.Burst {
			t.Errorf("%+v: got %+v, and less for %+v: %+v", f, b, more, above)
		}
	})
}

func TestBudgetIgnoresJitter(t *testing.T) {
	b := unknownBudget(.05)
	rate := func(n uint64) tally { return tally{safe: n, clientTime: Window} }
	if got := nextBudget(b, .05, tally{safe: 99, clientTime: Window}, 1, time.Hour, 1, steerCalls); got != b {
		t.Errorf("with 99 calls: %+v, want %+v", got, b)
	}
	// Two calls in 20 ms of each that has just begun say nothing of 100 rps.
	if got := nextBudget(b, .05, tally{safe: 400, clientTime: 4 * time.Second}, 200, memory, 1, steerCalls); got.Start > unknownStart || got.Burst != b.Burst {
		t.Errorf("after 20 ms of each of 200 clients: %+v, want at most %+v", got, b)
	}
	// A client that ended after 4,000 calls in .3 s was a fast one all the same.
	if got := nextBudget(b, .05, tally{safe: 4000, clientTime: 300 * time.Millisecond}, 1, time.Hour, 1, steerCalls); got.Burst != 50 || got.Start != 15 {
		t.Errorf("after 4,000 calls in .3 s: %+v, want burst 50, start 15", got)
	}
	b = nextBudget(b, .05, rate(10000), 1, time.Hour, 1, steerCalls)
	if b.Burst != 50 || b.Start != 15 {
		t.Fatalf("at 1,000 rps: %+v", b)
	}
	for _, n := range []uint64{6000, 15000, 5200, 9000} {
		if got := nextBudget(b, .05, rate(n), 1, time.Hour, 1, steerCalls); got != b {
			t.Errorf("at %d calls in 10 s: %+v, want %+v kept", n, got, b)
		}
	}
	b = nextBudget(b, .05, rate(900), 1, time.Hour, 1, steerCalls)
	if b.Burst != 11 || b.Start != 7 {
		t.Errorf("at 90 rps: %+v, want burst 11, start 7", b)
	}
}

// Many clients earn the whole target; it takes few to change that, not a window
// without calls, nor one that a restart cut short.
func TestRatioInCompany(t *testing.T) {
	b := unknownBudget(.05)
	for _, c := range []struct {
		clients  int
		calls    uint64
		reported time.Duration // by all
		want     float64
	}{
		{9, 9000, 9 * Window, .046},
		{10, 9000, 10 * Window, .05},
		{4, 9000, 4 * Window, .05},
		{10, 99, 10 * Window, .05},
		{10, 9000, 20 * time.Second, .05},
		{2, 9000, 2 * Window, .046},
		{4, 9000, 4 * Window, .046},
	} {
		b = nextBudget(b, .05, tally{safe: c.calls, clientTime: c.reported}, c.clients, time.Hour, 1, 1000)
		if b.Ratio != c.want {
			t.Fatalf("%+v: ratio %v", c, b.Ratio)
		}
	}
	if b = nextBudget(b, .02, tally{}, 0, 0, 1, steerCalls); b.Ratio != .02 {
		t.Errorf("target .02: ratio %v of a budget of .05", b.Ratio)
	}
	if b = nextBudget(b, .1, tally{}, 0, 0, 1, steerCalls); b.Ratio != .092 {
		t.Errorf("target .1: ratio %v of a budget of .02", b.Ratio)
	}
}

// A client's calls decide how near to the target the rate is held; chance, a
// restart and clients that come one after the other do not.
func TestRunOfAClient(t *testing.T) {
	for _, c := range []struct {
		name    string
		inForce float64
		calls   uint64
		clients int
		bound   bool
		want    float64
	}{
		{"too few calls to tell", 8000, 99, 1, false, 8000},
		{"nobody there", 8000, 4000, 0, false, 8000},
		{"one client", 0, 10000, 1, false, 10000},
		{"jitter", 10000, 8100, 1, false, 10000},
		{"slower", 10000, 7900, 1, false, 7900},
		{"slower, or the window is not full", 10000, 1000, 1, true, 10000},
		{"faster, and the window is not full", 1000, 10000, 1, true, 10000},
		{"ten one after the other", 0, 40000, 10, false, 4000},
		{"200 at once", 0, 10000, 200, false, 50},
	} {
		if got := nextRun(c.inForce, tally{safe: c.calls}, c.clients, c.bound); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, run := range []float64{5000, 10000, 40000} {
		b := wantBudget(.05, fleet{1, run, time.Hour, 1, run})
		if got := restoredRun(b, .05); math.Abs(got-run) > .01*run {
			t.Errorf("restored by %+v: %v, want %v", b, got, run)
		}
	}
	if got := restoredRun(policy.Budget{Ratio: .05, Start: 15}, .05); got != 0 {
		t.Errorf("restored by a budget of many clients: %v, want 0", got)
	}
}

// The rate is held as far below the target as chance takes it above: of a window's
// calls 98 in 100 end below, for any number of them from steerLeast on.
func TestSteer(t *testing.T) {
	for calls, want := range map[float64]float64{0: .82, 50: .82, steerLeast: .82, steerCalls: .86, 10000: .907} {
		if got := steer(calls); math.Abs(got-want) > .001 {
			t.Errorf("%v calls: %v, want %v", calls, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.Float64Range(steerLeast, 1e7).Draw(t, "calls")
		rate := wantedRate(.05, calls)
		sd := math.Sqrt(rate * (1 - rate) / calls)
		if z := (.05 - rate) / sd; z < 2.05 || z > 2.37 {
			t.Errorf("%v calls: %v standard deviations below the target", calls, z)
		}
		if more := wantedRate(.05, 2*calls); more <= rate || more >= .05 {
			t.Errorf("%v calls: rate %v, and of twice as many %v", calls, rate, more)
		}
	})
}
