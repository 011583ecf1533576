package sim

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// Run runs a scenario once under a policy. It returns an error only when ctx ends.
func Run(ctx context.Context, s *Scenario, p Policy, seed uint64) (*Result, error) {
	return Observe(ctx, s, p, seed, Probe{})
}

// Row is one policy's results over all seeds.
type Row struct {
	Policy   Policy
	Results  []*Result // by seed
	Timeline *Timeline // of all; only Compare makes one
}

// Compare runs a scenario under each policy with the seeds base, base+1, ... as
// many as the pool lets at a time. progress, unless nil, is told of each run that
// ended. It returns an error only when ctx ends.
func Compare(ctx context.Context, pool *Pool, s *Scenario, policies []Policy, seeds int, base uint64, progress func()) ([]Row, error) {
	rows := make([]Row, len(policies))
	for i := range rows {
		rows[i] = Row{Policy: policies[i], Results: make([]*Result, seeds), Timeline: newTimeline(s)}
	}
	var merging sync.Mutex
	err := pool.Each(len(policies)*seeds, func(i int) error {
		row := &rows[i/seeds]
		t := newTimeline(s)
		r, err := Observe(ctx, s, row.Policy, base+uint64(i%seeds), t.probe())
		if err != nil {
			return err
		}
		row.Results[i%seeds] = r
		merging.Lock()
		row.Timeline.merge(t)
		merging.Unlock()
		if progress != nil {
			progress()
		}
		return nil
	})
	return rows, err
}

// Spread is a figure over seeds.
type Spread struct {
	Median, Least, Most, SD float64
}

// Spread returns a figure's spread over the row's seeds.
func (r *Row) Spread(figure func(*Result) float64) Spread {
	v := make([]float64, len(r.Results))
	for i, res := range r.Results {
		v[i] = figure(res)
	}
	return SpreadOf(v)
}

// SpreadOf returns the spread of figures, one at least. It sorts them.
func SpreadOf(v []float64) Spread {
	slices.Sort(v)
	n := len(v)
	mean := 0.0
	for _, x := range v {
		mean += x / float64(n)
	}
	s := Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Least: v[0], Most: v[n-1]}
	for _, x := range v {
		s.SD += (x - mean) * (x - mean)
	}
	if n > 1 {
		s.SD = math.Sqrt(s.SD / float64(n-1))
	}
	return s
}

// Pooled is a quantile of the latencies of all seeds together, as exact as
// estimator.Histogram; 0 without any.
func (r *Row) Pooled(q float64) time.Duration {
	var all estimator.Histogram
	for _, res := range r.Results {
		all.Merge(&res.Pooled)
	}
	d, _ := all.Quantile(q)
	return d
}

// Millis is a time in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
