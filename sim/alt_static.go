package sim

import (
	"slices"
	"time"

	"github.com/hedged-project/hedged/policy"
)

func newNone(*World) law { return none{} }

// none does not hedge.
type none struct{ quietLaw }

func (none) join(*client) agent { return quietAgent{} }

// always hedges every call after one and the same delay with one probability, and
// has no budget: what the oracle looks for.
type always struct {
	quietLaw
	quietAgent
	m policy.Method
}

func newAlways(d time.Duration, probability float64) func(*World) law {
	m := twoAttempts(d)
	m.Probability = probability
	return func(*World) law { return &always{m: m} }
}

func (l *always) join(*client) agent         { return l }
func (l *always) method(int32) policy.Method { return l.m }
func (l *always) take(*call) answer          { return goes }

// learnCalls is how many plain calls a fixed delay is measured on.
const learnCalls = 4000

// fixed measures the p95 of the first calls and hedges after it from then on, as
// the tail-at-scale article's readers do. What it spends afterwards is up to the
// service: there is no budget.
type fixed struct {
	always
	learnt []time.Duration
	target float64
}

func newFixed(w *World) law { return &fixed{target: w.sc.target} }

func (l *fixed) join(*client) agent { return l }

func (l *fixed) ended(_ *call, i int, took time.Duration, how outcome) {
	if l.m.Delay > 0 || i > 0 || how != completed {
		return
	}
	l.learnt = append(l.learnt, took)
	if len(l.learnt) == learnCalls {
		slices.Sort(l.learnt)
		l.m = twoAttempts(quantile(l.learnt, 1-l.target))
		l.learnt = nil
	}
}
