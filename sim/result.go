package sim

import (
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// spendWindow is the span over which extra load is held against the target.
const spendWindow = 10 * time.Second

// Result is what one run measured after its warm-up. A request is what a caller
// waits for: one call, or as many as the scenario's fan-out.
type Result struct {
	Seed     uint64
	Requests int // answered
	Over     int // of Requests: longer than the scenario's bound
	Failed   int // calls that ended in a failure; they count as answered
	Calls    uint64
	Eligible uint64 // of Calls: pending at their delay
	Hedges   uint64
	Worst    float64       // most hedges per call in any 10 s
	Busy     float64       // mean share of the workers that work; NaN: they have no limit
	Delay    time.Duration // in force at the end at the first client; 0: none
	Unwell   float64       // mean number of replicas that hedged keeps out of normal service

	P50, P99, P999 time.Duration
	Pooled         estimator.Histogram // of latencies

	warmup    time.Duration
	bound     time.Duration
	latencies []time.Duration
	seconds   []second
	looks     int // at Unwell
}

type second struct{ calls, hedges uint32 }

func newResult(sc *Scenario) *Result {
	return &Result{
		warmup:  sc.warmup,
		bound:   sc.bound,
		seconds: make([]second, int((sc.duration-sc.warmup)/time.Second)+1),
	}
}

// Extra is hedges per call; NaN without calls.
func (r *Result) Extra() float64 { return float64(r.Hedges) / float64(r.Calls) }

func (r *Result) primary(now time.Duration) {
	if now >= r.warmup {
		r.Calls++
		r.seconds[(now-r.warmup)/time.Second].calls++
	}
}

func (r *Result) hedge(now time.Duration) {
	if now < r.warmup {
		return
	}
	r.Hedges++
	if at := int((now - r.warmup) / time.Second); at < len(r.seconds) {
		r.seconds[at].hedges++
	}
}

func (r *Result) eligible(start time.Duration) {
	if start >= r.warmup {
		r.Eligible++
	}
}

// unwell takes a sample of how many replicas are out of service, every tickEvery.
func (r *Result) unwell(now time.Duration, n int) {
	if now >= r.warmup {
		r.Unwell += float64(n)
		r.looks++
	}
}

func (r *Result) failed(start time.Duration) {
	if start >= r.warmup {
		r.Failed++
	}
}

func (r *Result) answered(start, took time.Duration) {
	if start >= r.warmup {
		r.latencies = append(r.latencies, took)
	}
}

// finishLoad is called at the end of the scenario's duration.
func (r *Result) finishLoad(w *World) {
	r.Busy = math.NaN()
	if w.sc.workers > 0 {
		var work time.Duration
		for i := range w.replicas {
			work += w.replicas[i].work
		}
		r.Busy = work.Seconds() / (w.sc.duration.Seconds() * float64(w.sc.workers*len(w.replicas)))
	}
	r.Delay = w.clients[0].agent.method(0).Delay
}

// finish is called when all requests are answered.
func (r *Result) finish() {
	all := r.latencies
	r.Requests = len(all)
	for _, d := range all {
		if d > r.bound {
			r.Over++
		}
		r.Pooled.Record(d)
	}
	slices.Sort(all)
	r.P50, r.P99, r.P999 = quantile(all, .5), quantile(all, .99), quantile(all, .999)
	r.latencies = nil
	if r.looks > 0 {
		r.Unwell /= float64(r.looks)
	}
	r.Worst = r.worst()
	r.seconds = nil
}

// quantile of sorted latencies: that of rank ceil(q n).
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))*(1-1e-12))), 1)-1]
}

// worst is the most hedges per call in ten whole seconds that follow each other;
// of a shorter run, in all of it.
func (r *Result) worst() float64 {
	whole := len(r.seconds) - 1
	span := min(int(spendWindow/time.Second), whole)
	var sum second
	worst := 0.0
	for i := range whole {
		sum.calls += r.seconds[i].calls
		sum.hedges += r.seconds[i].hedges
		if i >= span {
			sum.calls -= r.seconds[i-span].calls
			sum.hedges -= r.seconds[i-span].hedges
		}
		if i >= span-1 && sum.calls > 0 {
			worst = max(worst, float64(sum.hedges)/float64(sum.calls))
		}
	}
	return worst
}
