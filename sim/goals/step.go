package goals

import (
	"fmt"
	"slices"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/sim"
)

const (
	stepAt    = 40 * time.Second
	stepAfter = 30 * time.Second // over which the tail counts
)

// stepWorld is a service whose latencies all change by a factor.
func stepWorld(name string, clients int, before, after float64) *sim.Scenario {
	return calm(name, clients, stepAt+stepAfter+time.Second,
		fmt.Sprintf("at 0s slowdown %g\nat %v slowdown %g", before, stepAt, after))
}

// timeline counts calls and those of them that outlive their delay by the slot in
// which they start.
type timeline struct {
	slot            time.Duration
	calls, eligible []int
}

func newTimeline(slot, duration time.Duration) *timeline {
	n := int(duration/slot) + 1
	return &timeline{slot: slot, calls: make([]int, n), eligible: make([]int, n)}
}

// settled is how long after from five seconds begin in each of which the eligible rate
// is within half of the target and half as much again.
func (t *timeline) settled(from time.Duration, target float64) time.Duration {
	const seconds = 5
	window := int(time.Second / t.slot)
	first := int(from / t.slot)
	inside := func(i int) bool {
		rate := float64(sum(t.eligible[i:i+window])) / float64(sum(t.calls[i:i+window]))
		return rate >= .5*target && rate <= 1.5*target
	}
	last := len(t.calls) - seconds*window
	for i := first; i < last; i++ {
		all := true
		for k := 0; k < seconds && all; k++ {
			all = inside(i + k*window)
		}
		if all {
			return time.Duration(i-first) * t.slot
		}
	}
	return time.Duration(last-first) * t.slot
}

// stepped is what a step did to a world in one run.
type stepped struct {
	settled time.Duration
	tail    estimator.Histogram
	paused  time.Duration // because everything looked frozen
}

// step runs a world with a step at stepAt.
func step(b *Bench, s *sim.Scenario, seeds int) ([]stepped, error) {
	seen := make([]stepped, seeds)
	lines := make([]*timeline, seeds)
	_, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe {
		t := newTimeline(50*time.Millisecond, stepAt+stepAfter+time.Second)
		lines[i] = t
		last := time.Duration(0)
		return sim.Probe{
			Sent:     func(at time.Duration, _ int) { t.calls[at/t.slot]++ },
			Eligible: func(_, start time.Duration) { t.eligible[start/t.slot]++ },
			Answer: func(a sim.Answer) {
				if a.Start >= stepAt && a.Start < stepAt+stepAfter {
					seen[i].tail.Record(a.Took)
				}
			},
			Decided: func(at time.Duration, d *control.Decision, _ func() control.Status) {
				if frozen(d) {
					seen[i].paused += at - last
				}
				last = at
			},
		}
	})
	for i, t := range lines {
		seen[i].settled = t.settled(stepAt, s.Target())
	}
	return seen, err
}

// frozen reports whether hedging pauses because everything is slow.
func frozen(d *control.Decision) bool {
	for _, m := range d.Policy.Methods {
		if m.Reason.Code == policy.ReasonFreeze {
			return true
		}
	}
	return false
}

func stepChecks(b *Bench, name string, before, after, median, worst, tail float64) ([]Check, error) {
	var checks []Check
	for _, clients := range []int{1, 200} {
		seen, err := step(b, stepWorld(name, clients, before, after), Pick(b, 12, 5))
		if err != nil {
			return nil, err
		}
		var settled []float64
		var all estimator.Histogram
		for i := range seen {
			settled = append(settled, seen[i].settled.Seconds())
			all.Merge(&seen[i].tail)
		}
		p999, _ := all.Quantile(.999)
		checks = append(checks, AtMost(fmt.Sprintf("settled-%d", clients), "s", medianOf(settled), median))
		if worst > 0 {
			checks = append(checks, AtMost(fmt.Sprintf("worst-%d", clients), "s", largest(settled), worst))
		}
		checks = append(checks, AtMost(fmt.Sprintf("p99.9-%d", clients), "ms", Figure{Value: sim.Millis(p999)}, tail))
	}
	return checks, nil
}

func stepUp(b *Bench) ([]Check, error)   { return stepChecks(b, "step-up", 1, 3, 1.2, 3, 150) }
func stepDown(b *Bench) ([]Check, error) { return stepChecks(b, "step-down", 3, 1, 1.6, 0, 60) }

// medianOf and largest are figures over runs, or over what was seen in them.
func medianOf(v []float64) Figure { return over(v, func(s sim.Spread) float64 { return s.Median }) }
func largest(v []float64) Figure  { return over(v, func(s sim.Spread) float64 { return s.Most }) }

func over(v []float64, figure func(sim.Spread) float64) Figure {
	s := sim.SpreadOf(slices.Clone(v))
	return Figure{Value: figure(s), SD: s.SD}
}
