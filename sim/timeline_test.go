package sim

import (
	"math"
	"testing"
	"time"
)

// A timeline has what happened where it happened: the delay and the p99.9 follow a
// step, and hedges in all spans add up to those of the runs.
func TestTimeline(t *testing.T) {
	t.Parallel()
	s := world(t, "duration 60s\nwarmup 0s\narrivals poisson 500\nlatency lognormal 10ms 0.5\nstall call 1%% 500ms\nat 30s slowdown 3\nat 0s network 1ms")
	hedged, err := FindPolicy("hedged")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Compare(t.Context(), NewPool(), s, []Policy{Policies()[0], hedged}, 3, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var hedges, calls uint64
	for _, r := range rows[1].Results {
		hedges += r.Hedges
		calls += r.Calls
	}
	for i := range rows[1].Timeline.spans {
		hedges -= rows[1].Timeline.spans[i].hedges
		calls -= rows[1].Timeline.spans[i].calls
	}
	if hedges != 0 || calls != 0 {
		t.Errorf("%d hedges and %d calls are not in the timeline", int64(hedges), int64(calls))
	}
	m := rows[1].Timeline.Moments()
	if len(m) != 30 { // 90,000 requests in spans of 3,000
		t.Fatalf("got %d moments, want 30", len(m))
	}
	before, after := m[12], m[27]
	if r := after.Delay / before.Delay; r < 2.2 || r > 3.5 {
		t.Errorf("delay %.1f ms before the step and %.1f after, want some three times as long", before.Delay, after.Delay)
	}
	if before.P999 > 100 || after.P999 < before.P999 || before.Extra < 3 || before.Extra > 6 {
		t.Errorf("got %+v before the step and %+v after", before, after)
	}
	if plain := rows[0].Timeline.Moments()[12]; !math.IsNaN(plain.Delay) || plain.Extra != 0 || plain.P999 < 500 {
		t.Errorf("without hedging got %+v", plain)
	}
	if got := s.Changes(); len(got) != 1 || got[0] != (Change{30 * time.Second, "slowdown 3"}) {
		t.Errorf("got changes %v, want one", got)
	}
}
