package goals

import (
	"time"

	"github.com/hedged-project/hedged/sim"
)

// independent5 holds latencies that know nothing of each other against the least p99
// and p99.9 that one hedge can reach with 5% extra load, as two policies. These
// follow from the distributions alone.
func independent5(b *Bench) ([]Check, error) {
	var checks []Check
	for _, m := range []struct {
		name, model string
		p99, p999   float64 // ms
	}{
		{"stalls", "uniform 5ms 15ms\nstall call 1% 1s", 15, 28.7},
		{"lognormal", "lognormal 10ms 1", 66.7, 93.1},
		{"pareto", "pareto 1.5 2ms", 19.2, 28.7},
	} {
		s := World("independent-"+m.name, "duration %v\nwarmup 30s\narrivals poisson 1000\nlatency %s",
			30*time.Second+Pick(b, 300*time.Second, 100*time.Second), m.model)
		row, err := b.Run(s, Hedged(), Pick(b, 12, 4), nil)
		if err != nil {
			return nil, err
		}
		checks = append(checks,
			AtMost(m.name+"-p99.9", "ms", Pooled(row, .999), 1.05*m.p999),
			AtMost(m.name+"-p99", "ms", Pooled(row, .99), 1.05*m.p99),
			AtMost(m.name+"-extra", "%", Of(row, func(r *sim.Result) float64 { return 100 * r.Extra() }), 5))
	}
	return checks, nil
}
