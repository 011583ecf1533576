package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/hedged-project/hedged/report"
)

// fleetReport is one second of a client of 100 rps on so many replicas.
func fleetReport(w *world, replicas int) *report.Report {
	m := &report.Method{Calls: 100, Safe: 100, Eligible: 4, Hedges: 4, Replicas: map[string]*report.Replica{}}
	for i := range 100 {
		name := fmt.Sprintf("replica-%d", i%replicas)
		if m.Replicas[name] == nil {
			m.Replicas[name] = &report.Replica{}
		}
		m.Replicas[name].Primary.Completed.Record(w.lognormal(10))
	}
	return &report.Report{
		Source:   report.Source{ID: "client", Incarnation: 1},
		Interval: time.Second,
		Methods:  map[string]*report.Method{testMethod: m},
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, replicas := range []int{3, 100} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			w := newWorld(configured(), 1, 0, replicas, steadyUniform)
			r := fleetReport(w, replicas)
			now := epoch
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(5 * time.Millisecond)
				w.svc.Add(now, r)
			}
		})
	}
}

// BenchmarkTick is a tick of a service of 10,000 rps; one in three closes a
// window of probation.
func BenchmarkTick(b *testing.B) {
	for _, replicas := range []int{3, 100} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			w := newWorld(configured(), 1, 0, replicas, steadyUniform)
			var reports []*report.Report
			for range 25 {
				reports = append(reports, fleetReport(w, replicas))
			}
			now := epoch
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				now = now.Add(250 * time.Millisecond)
				for _, r := range reports {
					w.svc.Add(now, r)
				}
				b.StartTimer()
				w.svc.Tick(now)
			}
		})
	}
}
