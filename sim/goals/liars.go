package goals

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/sim"
)

// liarsWorld is a fleet of so many clients, some of which lie.
func liarsWorld(name string, clients int, lie string, seconds int) *sim.Scenario {
	return World(fmt.Sprintf("liars-%s-%d", name, clients), `
		duration %ds
		warmup   20s
		clients  %d
		arrivals poisson 1000
		latency  lognormal 10ms 0.5
		stall    call 1%% 500ms
		%s`, 20+seconds, clients, lie)
}

// liars holds the delay of a fleet in which one client in twenty lies against that of
// the same fleet without.
func liars(b *Bench) ([]Check, error) {
	seeds, seconds := Pick(b, 12, 3), Pick(b, 60, 20)
	var moved []float64
	var checks []Check
	var rows []sim.Row
	for _, clients := range []int{20, 200} {
		honest, row, err := delays(b, liarsWorld("none", clients, "", seconds), seeds)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
		for _, lie := range []string{"x0.01", "x100", "random", "counts"} {
			lied, row, err := delays(b, liarsWorld(lie, clients, "liars 5% "+lie, seconds), seeds)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
			moves := make([]float64, seeds)
			for i := range moves {
				moves[i] = off(lied[i], honest[i])
			}
			moved = append(moved, moves...)
			checks = append(checks, AtMost(fmt.Sprintf("moved-%s-%d", lie, clients), "%", median(moves), 10))
		}
		// Clients that are unlike others and honest count for the load all the same.
		for _, far := range []string{"5%", "30%"} {
			_, row, err := delays(b, liarsWorld("far-"+far, clients, "replicas 10\nzones "+far+" far 10ms", seconds), seeds)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	var extra, worst float64
	for _, row := range rows {
		extra = max(extra, Worst(row, func(r *sim.Result) float64 { return 100 * r.Extra() }).Value)
		worst = max(worst, Worst(row, func(r *sim.Result) float64 { return 100 * r.Worst }).Value)
	}
	return append([]Check{
		AtMost("moved", "%", median(moved), 10),
		AtMost("moved-p95", "%", Figure{Value: slices.Sorted(slices.Values(moved))[len(moved)*95/100]}, 10),
		AtMost("extra", "%", Figure{Value: extra}, 5),
		AtMost("worst-10s", "%", Figure{Value: worst}, 5),
	}, checks...), nil
}

// off is by how many percent x differs from want.
func off(x, want float64) float64 { return 100 * math.Abs(x/want-1) }

func median(x []float64) Figure {
	sorted := slices.Sorted(slices.Values(x))
	mean, squares := 0.0, 0.0
	for i, v := range sorted {
		d := v - mean
		mean += d / float64(i+1)
		squares += d * (v - mean)
	}
	return Figure{Value: sorted[len(sorted)/2], SD: math.Sqrt(squares / max(1, float64(len(sorted)-1)))}
}

// delays returns each seed's mean over time of the delay, on a log scale.
func delays(b *Bench, s *sim.Scenario, seeds int) ([]float64, sim.Row, error) {
	sum, n := make([]float64, seeds), make([]float64, seeds)
	row, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe {
		return sim.Probe{Decided: func(at time.Duration, d *control.Decision, _ func() control.Status) {
			if m := d.Policy.Methods["/sim.World/Call"]; m.Delay > 0 && at >= 20*time.Second {
				sum[i] += math.Log(float64(m.Delay))
				n[i]++
			}
		}}
	})
	for i := range sum {
		sum[i] = math.Exp(sum[i] / n[i])
	}
	return sum, row, err
}
