package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/hedged-project/hedged/control"
)

// A probe sees what the result counts, and changes nothing about the run.
func TestProbe(t *testing.T) {
	t.Parallel()
	s := world(t, "duration 20s\nwarmup 0s\narrivals poisson 500\nlatency lognormal 10ms 0.5\nstall call 1%% 500ms\nnetwork 1ms")
	hedged, err := FindPolicy("hedged")
	if err != nil {
		t.Fatal(err)
	}
	var sent, eligible, hedges, answers, requests, wins, published, looks int
	var alone, plain []time.Duration
	r, err := Observe(t.Context(), s, hedged, 3, Probe{
		Sent:     func(time.Duration, int) { sent++ },
		Eligible: func(time.Duration, time.Duration) { eligible++ },
		Hedge:    func(time.Duration, time.Duration) { hedges++ },
		Answer: func(a Answer) {
			answers++
			if a.Won {
				wins++
			}
			if a.Took > a.Alone && a.Alone > 0 {
				t.Errorf("%+v: hedging made it longer", a)
			}
			alone = append(alone, a.Alone)
		},
		Request: func(start, took time.Duration) { requests++ },
		Decided: func(_ time.Duration, d *control.Decision, status func() control.Status) {
			looks++
			if d.Publish {
				published++
			}
			if got := status(); got.Target != .05 {
				t.Errorf("target %v, want .05", got.Target)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	same := play(t, s, hedged, 3)
	if same.P999 != r.P999 || same.Hedges != r.Hedges || same.Calls != r.Calls {
		t.Errorf("a run that was observed differs: %+v and %+v", same, r)
	}
	if sent != int(r.Calls) || eligible != int(r.Eligible) || hedges != int(r.Hedges) || answers != r.Requests || requests != answers {
		t.Errorf("saw %d calls, %d eligible, %d hedges, %d answers, the result %+v", sent, eligible, hedges, answers, r)
	}
	if wins == 0 || published < 2 || looks < 80 {
		t.Errorf("%d wins, %d policies in %d ticks", wins, published, looks)
	}
	// What primaries take is what calls take where nobody hedges.
	if _, err := Observe(t.Context(), s, Policies()[0], 3, Probe{Answer: func(a Answer) { plain = append(plain, a.Took) }}); err != nil {
		t.Fatal(err)
	}
	if got, want := quantileOf(alone, .999), quantileOf(plain, .999); got != want {
		t.Errorf("p99.9 of primaries %v, without hedging %v", got, want)
	}
}

func quantileOf(latencies []time.Duration, q float64) time.Duration {
	slices.Sort(latencies)
	return quantile(latencies, q)
}
