package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// Simulated is a setting as it was run here, beside what the simulator makes of it:
// medians over the runs.
type Simulated struct {
	InFlight  int     `json:"in_flight"`
	Runs      int     `json:"runs"`
	Extra     float64 `json:"extra"` // as the client counted
	SimExtra  float64 `json:"sim_extra"`
	P999      float64 `json:"p999_ms"`
	SimP999   float64 `json:"sim_p999_ms"`
	ExtraOff  float64 `json:"extra_off"`  // Extra - SimExtra
	P999Ratio float64 `json:"p999_ratio"` // P999 / SimP999
}

// simulatedRuns of the simulator go into a median.
const simulatedRuns = 12

// simulate runs the hedged settings in the simulator, for as many calls.
func simulate(ctx context.Context, o Options, runs []Run) ([]Simulated, error) {
	hedged, err := sim.FindPolicy("hedged")
	if err != nil {
		return nil, err
	}
	out := []Simulated{}
	for _, k := range o.InFlight {
		var extra, p999 []float64
		for _, r := range runs {
			if r.InFlight == k && r.Policy == "hedged" {
				extra, p999 = append(extra, r.ExtraClient), append(p999, r.P999)
			}
		}
		if len(extra) == 0 {
			continue
		}
		// A client that the policy is not new to: what it started with is long spent.
		const warmup, mean = 30 * time.Second, 10600 * time.Microsecond
		last := time.Duration(o.Calls) * mean / time.Duration(k)
		s, err := sim.Parse("demo", fmt.Sprintf(`
			duration %v
			warmup   %v
			target   %g
			arrivals closed %d
			latency  uniform %v %v
			stall    call %g %v
			replicas %d
			routing  better-of-two`,
			warmup+max(last, time.Second), warmup, o.Target, k, fastest, slowest, stallShare, stall-(fastest+slowest)/2, nReplicas), nil)
		if err != nil {
			return nil, err
		}
		rows, err := sim.Compare(ctx, sim.NewPool(), s, []sim.Policy{hedged}, simulatedRuns, o.Seed, nil)
		if err != nil {
			return nil, err
		}
		b := Simulated{
			InFlight: k,
			Runs:     len(extra),
			Extra:    median(extra),
			SimExtra: rows[0].Spread((*sim.Result).Extra).Median,
			P999:     median(p999),
			SimP999:  rows[0].Spread(func(r *sim.Result) float64 { return ms(r.P999) }).Median,
		}
		b.ExtraOff, b.P999Ratio = b.Extra-b.SimExtra, b.P999/b.SimP999
		out = append(out, b)
	}
	return out, nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
