package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
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
	// So many of the best of the grid, and of the best about its first, are told apart by
	// more seeds: where a p99.9 hangs on a hundred calls, the best of a hundred points is
	// mostly the luckiest.
	oracleFinalists  = 4
	oracleFinalSeeds = 8
)

var oracleProbabilities = [...]float64{1, .7, .5, .35, .25, .15}

// FindOracle looks for the delay and the probability with the least p99.9 among
// those that keep the extra load within the target: by trying, on a grid of delays
// from p50 to p99.9 without hedging in equal steps of the logarithm, by a finer one
// about the best, and by more seeds for the best of both. It is the best that one hedge
// after a fixed delay can do in a world that does not change; in one that does it is
// only a yardstick.
// It costs some 200 runs at most. It returns an error only when ctx ends.
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
	coarse, err := s.rank(ctx, pool, grid, oracleSeeds)
	if err != nil {
		return Oracle{}, err
	}
	best := coarse[0]
	var fine []point
	for i := -3.; i <= 3; i++ {
		for _, f := range []float64{.85, 1, 1.18} {
			fine = append(fine, point{
				delay:       best.delay * math.Exp(i*step/4),
				probability: min(f*best.probability, 1),
			})
		}
	}
	if fine, err = s.rank(ctx, pool, fine, oracleSeeds); err != nil {
		return Oracle{}, err
	}
	finalists := slices.Concat(coarse[:min(len(coarse), oracleFinalists)], fine[:oracleFinalists])
	if finalists, err = s.rank(ctx, pool, finalists, oracleFinalSeeds); err != nil {
		return Oracle{}, err
	}
	best = finalists[0]
	return Oracle{Delay: time.Duration(best.delay), Probability: best.probability}, nil
}

// point is a policy that the oracle tries.
type point struct{ delay, probability float64 }

// rank runs all points with so many seeds and sorts them: those that keep to the target
// by their p99.9, then the others by their extra load.
func (s *Scenario) rank(ctx context.Context, pool *Pool, points []point, seeds int) ([]point, error) {
	type score struct {
		point
		p999, extra float64
	}
	scores := make([]score, len(points))
	err := pool.Each(len(points), func(i int) error {
		p := &scores[i]
		p.point = points[i]
		row := Row{}
		for k := range seeds {
			r, err := Run(ctx, s, Policy{new: newAlways(time.Duration(p.delay), p.probability)}, oracleSeed+uint64(k))
			if err != nil {
				return err
			}
			row.Results = append(row.Results, r)
			p.extra += r.Extra() / float64(seeds)
			if p.extra > s.target { // the rest cannot help
				break
			}
		}
		p.p999 = float64(row.Pooled(.999))
		return nil
	})
	slices.SortStableFunc(scores, func(a, b score) int {
		switch within := a.extra <= s.target; {
		case within != (b.extra <= s.target):
			if within {
				return -1
			}
			return 1
		case within:
			return cmp.Compare(a.p999, b.p999)
		default:
			return cmp.Compare(a.extra, b.extra)
		}
	})
	ranked := make([]point, len(scores))
	for i := range scores {
		ranked[i] = scores[i].point
	}
	return ranked, err
}
