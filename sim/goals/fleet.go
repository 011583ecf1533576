package goals

import (
	"time"

	"github.com/hedged-project/hedged/sim"
)

// Alone is this project's controller and client with a controller in each client.
func Alone() sim.Policy { return named("alone") }

// fleet holds one controller for all against what each client can do for itself:
// the same law, or the windowed percentile where that does better.
func fleet(b *Bench) ([]Check, error) {
	var checks []Check
	for _, c := range []struct {
		name, latency string
		below         float64
	}{
		{"stalls", "lognormal 10ms 0.5\nstall call 1% 500ms", 85},
		{"lognormal", "lognormal 10ms 1", 20},
	} {
		s := World("fleet-"+c.name, `
			duration %v
			warmup   60s
			clients  200 life 1m
			arrivals poisson 1000
			latency  %s
			replicas 10
			routing  better-of-two`, Pick(b, 200*time.Second, 120*time.Second), c.latency)
		seeds := Pick(b, 12, 2)
		hedged, err := b.Run(s, Hedged(), seeds, nil)
		if err != nil {
			return nil, err
		}
		apart := 0.0
		for _, p := range []sim.Policy{Alone(), Windowed()} {
			row, err := b.Run(s, p, seeds, nil)
			if err != nil {
				return nil, err
			}
			if v := sim.Millis(row.Pooled(.999)); apart == 0 || v < apart {
				apart = v
			}
		}
		p999 := Pooled(hedged, .999)
		checks = append(checks,
			AtLeast(c.name+"-below", "%", Figure{Value: 100 * (1 - p999.Value/apart), SD: 100 * p999.SD / apart}, c.below),
			AtMost(c.name+"-worst-10s", "%", Worst(hedged, func(r *sim.Result) float64 { return 100 * r.Worst }), 5))
	}
	return checks, nil
}
