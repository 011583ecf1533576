package sim

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/report"
)

// lie is what is false in the reports of a client that lies. It hedges by its
// policy, and by its true latencies, like any other.
type lie uint8

const (
	lieShort  lie = iota // latencies times .01
	lieLong              // times 100
	lieRandom            // each times .01 to 100, evenly on a log scale
	lieCounts            // all counts times falseCounts
)

const falseCounts = 1000

// latency is what is reported of one.
func (l lie) latency(w *World, took time.Duration) time.Duration {
	switch l {
	case lieShort:
		took /= 100
	case lieLong:
		took *= 100
	case lieRandom:
		took = time.Duration(float64(took) * math.Pow(100, 2*w.lies.Float64()-1))
	}
	return took
}

// exaggerate makes a report of a method's counts false.
func exaggerate(m *report.Method) {
	for _, n := range []*uint64{&m.Calls, &m.Safe, &m.Eligible, &m.Hedges, &m.CancelledUnsent, &m.Wins, &m.Failures} {
		*n *= falseCounts
	}
	for i := range m.Suppressed {
		m.Suppressed[i] *= falseCounts
	}
	for name, r := range m.Replicas {
		more := &report.Replica{Failed: r.Failed * falseCounts}
		more.Primary.MergeScaled(&r.Primary, falseCounts, 0)
		more.Hedge.MergeScaled(&r.Hedge, falseCounts, 0)
		m.Replicas[name] = more
	}
}
