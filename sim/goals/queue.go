package goals

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// queueMean is the mean of what a call takes in the queues: a lognormal's, median 10 ms.
const queueMean = .0164872

// queueWorld is three servers of one worker each that are busy for a share of the time.
func queueWorld(busy float64, routing string, calls int) *sim.Scenario {
	rate := 3 * busy / queueMean
	return World(fmt.Sprintf("queue-%s-%.0f", routing, 10*busy), `
		duration %v
		warmup   100s
		arrivals poisson %.4g
		latency  lognormal 10ms 1
		replicas 3 workers 1
		routing  %s
		cancel   queued`, 100*time.Second+time.Duration(float64(calls)/rate)*time.Second, rate, routing)
}

const queueCalls = 300_000

// queueOracles are the worlds of queue's oracle.
func queueOracles(busy float64) func() []*sim.Scenario {
	return func() []*sim.Scenario { return []*sim.Scenario{queueWorld(busy, "random", queueCalls)} }
}

// queue holds replicas picked at random against the best fixed delay and the windowed percentile.
func queue(busy, belowWindowed float64) Part {
	return func(b *Bench) ([]Check, error) {
		s := queueWorld(busy, "random", Pick(b, queueCalls, 180_000))
		n := Pick(b, 12, 4)
		best, err := b.Oracle(queueWorld(busy, "random", queueCalls))
		if err != nil {
			return nil, err
		}
		hedged, err := b.Run(s, Hedged(), n, nil)
		if err != nil {
			return nil, err
		}
		windowed, err := b.Run(s, Windowed(), n, nil)
		if err != nil {
			return nil, err
		}
		p999 := Pooled(hedged, .999)
		return []Check{
			AtMost("p99.9", "ms", p999, 1.05*sim.Millis(best.P999)),
			AtMost("of-windowed", "%", percentOf(p999, windowed), 100-belowWindowed),
			AtMost("extra", "%", Of(hedged, func(r *sim.Result) float64 { return 100 * r.Extra() }), 5),
		}, nil
	}
}

// betterOfTwo holds replicas picked as the better of two against no hedging.
func betterOfTwo(busy, below float64) Part {
	return func(b *Bench) ([]Check, error) {
		s := queueWorld(busy, "better-of-two", Pick(b, queueCalls, 180_000))
		n := Pick(b, 12, 4)
		hedged, err := b.Run(s, Hedged(), n, nil)
		if err != nil {
			return nil, err
		}
		none, err := b.Run(s, None(), n, nil)
		if err != nil {
			return nil, err
		}
		return []Check{
			AtMost("of-none", "%", percentOf(Pooled(hedged, .999), none), 100-below),
			AtMost("extra", "%", Of(hedged, func(r *sim.Result) float64 { return 100 * r.Extra() }), 5),
		}, nil
	}
}

// percentOf is a p99.9 as a percentage of that of other runs.
func percentOf(p999 Figure, others sim.Row) Figure {
	whole := Pooled(others, .999).Value
	return Figure{Value: 100 * p999.Value / whole, SD: 100 * p999.SD / whole}
}
