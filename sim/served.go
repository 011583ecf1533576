package sim

import (
	"github.com/hedged-project/hedged/report"
)

// arrived counts an attempt that reached its replica.
func (w *World) arrived(c *call, i int) {
	s := w.servedOf(c, i)
	s.Attempts++
	if i > 0 {
		s.Hedges++
	}
}

// wasted counts an attempt that leaves its replica after its caller gave it up.
func (w *World) wasted(c *call, i int) {
	s := w.servedOf(c, i)
	s.Cancelled++
	s.Wasted += w.now - c.attempts[i].reached
}

func (w *World) servedOf(c *call, i int) *report.Served {
	return &w.replicas[c.attempts[i].replica].served[c.method]
}

// reportServed hands the daemon what the replicas saw since the last time, as often
// as clients report.
func (l *ours) reportServed() {
	w := l.w
	if w.sc.silent || l.only != nil || w.now < l.servedAt {
		return
	}
	l.servedAt = w.now + w.sc.cadence
	for i := range w.replicas {
		methods := map[string]*report.Method{}
		for m, seen := range w.replicas[i].served {
			if seen != (report.Served{}) {
				methods[l.methods[m]] = &report.Method{Served: seen}
			}
		}
		clear(w.replicas[i].served)
		l.service.Add(epoch.Add(w.now), &report.Report{
			Source:   report.Source{ID: l.names[i], Kind: report.Server, Replica: l.names[i]},
			Service:  l.key,
			Interval: w.sc.cadence,
			Methods:  methods,
		})
	}
}
