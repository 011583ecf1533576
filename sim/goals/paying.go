package goals

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// payingWorld is three queues whose replicas finish what was cancelled. Servers that
// are silent do not tell the controller, so that it tracks its target.
func payingWorld(rate float64, calls int, target float64, servers string) *sim.Scenario {
	const warmup = 100
	return World(fmt.Sprintf("paying-%g-%g-%s", rate, target, servers), `
		duration %ds
		warmup   %ds
		target   %g
		arrivals poisson %g
		latency  lognormal 10ms 1
		replicas 3 workers 1
		routing  random
		cancel   never
		servers  %s`, warmup+int(float64(calls)/rate), warmup, target, rate, servers)
}

// Calls a second that keep three workers half busy, and 70% busy.
const (
	halfBusy  = 91
	veryBusy  = 127
	fullShare = .05 // the target that a service has by default
)

// payingHalf holds hedged with its default target against the best of fixed ones.
func payingHalf(b *Bench) ([]Check, error) {
	calls, seeds := Pick(b, 300_000, 100_000), Pick(b, 12, 6)
	best := math.Inf(1)
	for _, target := range Pick(b, []float64{.01, .02, .03, .04, .05}, []float64{.02, .03}) {
		row, err := b.Run(payingWorld(halfBusy, calls, target, "silent"), Hedged(), seeds, nil)
		if err != nil {
			return nil, err
		}
		best = min(best, Pooled(row, .999).Value)
	}
	row, err := b.Run(payingWorld(halfBusy, calls, fullShare, "report"), Hedged(), seeds, nil)
	if err != nil {
		return nil, err
	}
	return []Check{AtMost("half-busy-of-best", "%", against(row, best), 110)}, nil
}

// payingBusy holds hedged against no hedging, where hedges can hardly pay.
func payingBusy(b *Bench) ([]Check, error) {
	calls, seeds := Pick(b, 900_000, 200_000), Pick(b, 12, 6)
	world := payingWorld(veryBusy, calls, fullShare, "report")
	none, err := b.Run(world, None(), seeds, nil)
	if err != nil {
		return nil, err
	}
	row, err := b.Run(world, Hedged(), seeds, nil)
	if err != nil {
		return nil, err
	}
	locked := 0.0
	for i, r := range row.Results {
		if r.P50 > 2*none.Results[i].P50 {
			locked++
		}
	}
	return []Check{
		AtMost("busy-of-none", "%", against(row, Pooled(none, .999).Value), 105),
		AtMost("busy-locked-up", "", Figure{Value: locked}, 0),
	}, nil
}

// against is the pooled p99.9 in percent of another one.
func against(row sim.Row, p999 float64) Figure {
	f := Pooled(row, .999)
	return Figure{Value: 100 * f.Value / p999, SD: 100 * f.SD / p999}
}

// metastable is how long it takes until queues are as before a burst of arrivals at
// 1.3 times what the replicas can do.
func metastable(b *Bench) ([]Check, error) {
	const begin, end, last = 60, 65, 120
	var checks []Check
	for _, busy := range []float64{.52, .6, .7} {
		world := World(fmt.Sprintf("metastable-%g", busy), `
			duration %ds
			warmup   20s
			arrivals poisson %g
			latency  exponential 10ms
			replicas 3 workers 1
			routing  random
			cancel   never
			at %ds   arrivals poisson 390
			at %ds   arrivals poisson %g`, last, 300*busy, begin, end, 300*busy)
		seeds := Pick(b, 12, 4)
		seen := make([]perSecond, seeds)
		_, err := b.Run(world, Hedged(), seeds, func(i int) sim.Probe {
			seen[i] = make(perSecond, last+1)
			return sim.Probe{Answer: seen[i].answer}
		})
		if err != nil {
			return nil, err
		}
		worst := 0.0
		for _, s := range seen {
			normal := s[20:begin].mean()
			at := end
			for at < last && s[at:at+1].mean() > 2*normal {
				at++
			}
			worst = max(worst, float64(at-end))
		}
		checks = append(checks, AtMost(fmt.Sprintf("back-at-%g", busy), "s", Figure{Value: worst}, 12))
	}
	return checks, nil
}

// perSecond is what calls took, by the second in which they began.
type perSecond []struct {
	calls int
	took  time.Duration
}

func (s perSecond) answer(a sim.Answer) {
	if at := int(a.Start / time.Second); at < len(s) {
		s[at].calls++
		s[at].took += a.Took
	}
}

// mean is what a call took in these seconds.
func (s perSecond) mean() float64 {
	calls, took := 0, time.Duration(0)
	for _, x := range s {
		calls += x.calls
		took += x.took
	}
	return took.Seconds() / float64(max(calls, 1))
}
