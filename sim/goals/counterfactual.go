package goals

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/sim"
)

// counterfactualTime is 300,000 calls, and time to begin.
const counterfactualTime = 310 * time.Second

// counterfactualWorld is calls whose copies are alike to some degree.
func counterfactualWorld(name, latency string, correlation float64) *sim.Scenario {
	return World(fmt.Sprintf("counterfactual-%s-%g", name, correlation), `
		duration    %v
		arrivals    poisson 1000
		latency     %s
		correlation %g
		replicas    10`, counterfactualTime, latency, correlation)
}

// claim is what the controller says at a run's end of what hedging buys, and what is true.
type claim struct {
	said            control.Counterfactual
	alone, took     estimator.Histogram // of all calls since hedging began
	hedged          bool
	calls, eligible float64
}

func (c *claim) probe() sim.Probe {
	return sim.Probe{
		Decided: func(at time.Duration, d *control.Decision, status func() control.Status) {
			for _, m := range d.Policy.Methods {
				c.hedged = c.hedged || m.Delay > 0
			}
			if at > counterfactualTime-time.Second {
				c.said = status().Methods[0].Counterfactual
			}
		},
		Answer: func(a sim.Answer) {
			if !c.hedged {
				return
			}
			c.calls++
			if a.Eligible {
				c.eligible++
			}
			c.alone.Record(a.Alone)
			c.took.Record(a.Took)
		},
	}
}

// off is how much the p99.9 without hedging is off, and the saving of p99.9.
func (c *claim) off() (unhedged, saving float64) {
	alone, _ := c.alone.Quantile(.999)
	took, _ := c.took.Quantile(.999)
	said := c.said.P999.Value
	return float64(said)/float64(alone) - 1, float64(said-c.said.HedgedP999.Value)/float64(alone-took) - 1
}

// counterfactual holds what the controller says of the tail without hedging, while
// it hedges and cancels, against what every primary would have taken.
func counterfactual(b *Bench) ([]Check, error) {
	var checks []Check
	var all []claim
	worst := 0.0 // of the mean savings of a world
	for _, w := range []struct {
		name, latency string
		most          float64
	}{
		{"lognormal", "lognormal 10ms 1", 6},
		{"pareto", "pareto 1.5 2ms", 10},
	} {
		squares, n := 0.0, 0.0
		for _, correlation := range []float64{0, .5} {
			claims := make([]claim, Pick(b, 12, 3))
			_, err := b.Run(counterfactualWorld(w.name, w.latency, correlation), Hedged(), len(claims), func(i int) sim.Probe { return claims[i].probe() })
			if err != nil {
				return nil, err
			}
			mean := 0.0
			for i := range claims {
				unhedged, saving := claims[i].off()
				squares += unhedged * unhedged
				mean += saving / float64(len(claims))
				n++
			}
			worst = max(worst, math.Abs(mean))
			all = append(all, claims...)
		}
		checks = append(checks, AtMost("rmse-"+w.name, "%", Figure{Value: 100 * math.Sqrt(squares/n)}, w.most))
	}
	var observed, heldOut, calls, eligible float64
	for i := range all {
		observed += float64(all[i].said.Observed)
		heldOut += float64(all[i].said.HeldOut)
		calls += all[i].calls
		eligible += all[i].eligible
	}
	return append(checks,
		AtMost("observed", "%", Figure{Value: 100 * observed / calls}, 1),
		AtMost("held-out", "%", Figure{Value: 100 * heldOut / eligible}, .5),
		AtMost("saving-off", "%", Figure{Value: 100 * worst}, 10),
	), nil
}
