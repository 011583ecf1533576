package goals

import (
	"fmt"
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

// independent1 does the same where the target is about as small as the share of calls
// beyond the objective, which a coin then decides. Of 2% that stall exactly 2% must be
// hedged to make their p99.9 short, which leaves nothing to chance.
func independent1(b *Bench) ([]Check, error) {
	var checks []Check
	for _, m := range []struct {
		name, model string
		target      float64
		p99, p999   float64 // ms
	}{
		{"stalls", "uniform 5ms 15ms\nstall call 2% 1s", .02, 25.1, 29.7},
		{"lognormal", "lognormal 10ms 1", .01, 89.5, 127},
		{"pareto", "pareto 1.5 2ms", .01, 31.6, 50.9},
	} {
		for _, o := range []struct {
			name     string
			quantile float64
			best     float64
		}{{"p99", .99, m.p99}, {"p99.9", .999, m.p999}} {
			s := World(fmt.Sprintf("independent-%s-%s", m.name, o.name),
				"duration %v\nwarmup 30s\narrivals poisson 1000\ntarget %g\nobjective %g\nlatency %s",
				30*time.Second+Pick(b, 300*time.Second, 100*time.Second), m.target, o.quantile, m.model)
			row, err := b.Run(s, Hedged(), Pick(b, 12, 2), nil)
			if err != nil {
				return nil, err
			}
			name := m.name + "-" + o.name
			checks = append(checks,
				AtMost(name, "ms", Pooled(row, o.quantile), 1.05*o.best),
				AtMost(name+"-extra", "%", Of(row, func(r *sim.Result) float64 { return 100 * r.Extra() }), 100*m.target))
		}
	}
	return checks, nil
}
