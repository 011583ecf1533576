package sim

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

const (
	// timelineSpans is how finely a timeline is kept.
	timelineSpans = 120
	// timelineCalls is how many requests a p99.9 is taken of at least: with fewer than
	// three beyond it, it says nothing.
	timelineCalls = 3000
)

// Timeline is what runs did in each of equal spans of the scenario's time, the warm-up
// included, all seeds together.
type Timeline struct {
	Span  time.Duration
	spans []span
}

type span struct {
	calls, hedges uint64
	latencies     estimator.Histogram // of requests, by their start
	delays        estimator.Histogram // of calls that outlived theirs, by when they did
}

func newTimeline(s *Scenario) *Timeline {
	return &Timeline{
		Span:  (s.duration + timelineSpans - 1) / timelineSpans,
		spans: make([]span, timelineSpans),
	}
}

// at returns the span of a time; what comes after the end belongs to the last.
func (t *Timeline) at(now time.Duration) *span {
	return &t.spans[min(int(now/t.Span), len(t.spans)-1)]
}

func (t *Timeline) probe() Probe {
	return Probe{
		Sent:     func(at time.Duration, _ int) { t.at(at).calls++ },
		Hedge:    func(at, _ time.Duration) { t.at(at).hedges++ },
		Eligible: func(at, start time.Duration) { t.at(at).delays.Record(at - start) },
		Request:  func(start, took time.Duration) { t.at(start).latencies.Record(took) },
	}
}

func (t *Timeline) merge(o *Timeline) {
	for i := range t.spans {
		t.spans[i].merge(&o.spans[i])
	}
}

func (s *span) merge(o *span) {
	s.calls += o.calls
	s.hedges += o.hedges
	s.latencies.Merge(&o.latencies)
	s.delays.Merge(&o.delays)
}

// coarse returns the timeline in as many times longer spans as it takes for the
// average one to have enough requests.
func (t *Timeline) coarse() []span {
	var requests uint64
	for i := range t.spans {
		requests += t.spans[i].latencies.Count()
	}
	times := 1
	for times < len(t.spans)/4 && requests*uint64(times) < timelineCalls*uint64(len(t.spans)) {
		times++
	}
	var out []span
	for i := range t.spans {
		if i%times == 0 {
			out = append(out, span{})
		}
		out[len(out)-1].merge(&t.spans[i])
	}
	return out
}

// Moment is one span of a timeline. Times are in ms and shares in percent; NaN: there
// was nothing to measure.
type Moment struct{ Delay, Extra, P999 float64 }

// Moments are the timeline in spans that are long enough for a p99.9.
func (t *Timeline) Moments() []Moment {
	spans := t.coarse()
	moments := make([]Moment, len(spans))
	for i := range spans {
		s := &spans[i]
		moments[i] = Moment{Delay: millisAt(&s.delays, .5), Extra: math.NaN(), P999: millisAt(&s.latencies, .999)}
		if s.calls > 0 {
			moments[i].Extra = 100 * float64(s.hedges) / float64(s.calls)
		}
	}
	return moments
}

func millisAt(h *estimator.Histogram, q float64) float64 {
	d, ok := h.Quantile(q)
	if !ok {
		return math.NaN()
	}
	return Millis(d)
}

// Change is what a scenario does in the course of a run.
type Change struct {
	At   time.Duration
	Text string
}

// Changes returns what the scenario does after the start, by time.
func (s *Scenario) Changes() []Change {
	var all []Change
	for _, c := range s.changes {
		if c.at > 0 {
			all = append(all, Change{c.at, c.text})
		}
	}
	return all
}

// Duration is how long a run lasts.
func (s *Scenario) Duration() time.Duration { return s.duration }
