package sim

import (
	"context"
	"fmt"
	"math"
	"time"
)

// OracleName is the name of an Oracle's policy.
const OracleName = "oracle"

// Oracle is the best fixed delay and probability of hedging in a world.
type Oracle struct {
	Delay       time.Duration
	Probability float64
}

// Policy hedges by the oracle, without a budget.
func (o Oracle) Policy() Policy {
	return Policy{
		Name: OracleName,
		Text: fmt.Sprintf("the best fixed delay and probability of a search: %v, %.3g", o.Delay.Round(10*time.Microsecond), o.Probability),
		new:  newAlways(o.Delay, o.Probability),
	}
}

const (
	// oracleSeed is where the seeds of the search begin: far from those that the
	// policy found is then judged by.
	oracleSeed  = 1 << 40
	oracleSteps = 24
	oracleSeeds = 2
)

var oracleProbabilities = [...]float64{1, .7, .5, .35, .25, .15}

// FindOracle looks for the delay and the probability with the least p99.9 among
// those that keep the extra load within the target: by trying, on a grid of delays
// from p50 to p99.9 without hedging in equal steps of the logarithm, and by halving
// the steps about the best once. It is the best that one hedge after a fixed delay
// can do in a world that does not change; in one that does it is only a yardstick.
// It costs some 150 runs at most. It returns an error only when ctx ends.
func FindOracle(ctx context.Context, pool *Pool, s *Scenario) (Oracle, error) {
	none, err := Run(ctx, s, Policies()[0], oracleSeed)
	if err != nil {
		return Oracle{}, err
	}
	from, to := math.Log(float64(max(none.P50, 1))), math.Log(float64(max(none.P999, 2)))
	step := (to - from) / oracleSteps
	var grid []point
	for i := range oracleSteps {
		delay := math.Exp(from + float64(i)*step)
		longer, _ := none.Pooled.Exceedance(time.Duration(delay))
		for _, q := range oracleProbabilities {
			// What would cost far more than the target, or next to nothing, is not tried.
			if cost := q * longer / s.target; cost < 2 && cost > .05 {
				grid = append(grid, point{delay, q})
			}
		}
	}
	if len(grid) == 0 { // all calls take the same time
		grid = []point{{math.Exp(to), 1}}
	}
	best, err := s.best(ctx, pool, grid)
	if err != nil {
		return Oracle{}, err
	}
	var fine []point
	for i := -3.; i <= 3; i++ {
		for _, f := range []float64{.85, 1, 1.18} {
			fine = append(fine, point{
				delay:       best.delay * math.Exp(i*step/4),
				probability: min(f*best.probability, 1),
			})
		}
	}
	best, err = s.best(ctx, pool, append(fine, best))
	return Oracle{Delay: time.Duration(best.delay), Probability: best.probability}, err
}

// point is a policy that the oracle tries.
type point struct{ delay, probability float64 }

// best runs all points and returns the one with the least p99.9 that keeps to the
// target; none of them: the one with the least extra load.
func (s *Scenario) best(ctx context.Context, pool *Pool, points []point) (point, error) {
	p999, extra := make([]float64, len(points)), make([]float64, len(points))
	err := pool.Each(len(points), func(i int) error {
		p := points[i]
		row := Row{}
		for k := range uint64(oracleSeeds) {
			r, err := Run(ctx, s, Policy{new: newAlways(time.Duration(p.delay), p.probability)}, oracleSeed+k)
			if err != nil {
				return err
			}
			row.Results = append(row.Results, r)
			extra[i] += r.Extra() / oracleSeeds
			if extra[i] > s.target { // the rest cannot help
				break
			}
		}
		p999[i] = float64(row.Pooled(.999))
		return nil
	})
	best := 0
	for i := range points {
		within, was := extra[i] <= s.target, extra[best] <= s.target
		if within && (!was || p999[i] < p999[best]) || !within && !was && extra[i] < extra[best] {
			best = i
		}
	}
	return points[best], err
}
