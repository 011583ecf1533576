package daemon

import (
	"maps"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// maxMethodSeries bounds the methods of one service that have metrics of their
// own; the rest are added up under otherMethod.
const (
	maxMethodSeries = 100
	otherMethod     = "other"
)

// totals are a service's counts since the daemon started, for metrics.
type totals struct {
	methods map[string]*methodTotals
}

type methodTotals struct {
	calls, safe, eligible, hedges, unsent, wins, failures uint64

	suppressed [policy.NumSuppressions]uint64
	server     report.Served
}

func (t *totals) add(r *report.Report) {
	for name, m := range r.Methods {
		mt := t.methods[name]
		if mt == nil {
			if len(t.methods) >= maxMethodSeries {
				name = otherMethod
			}
			if mt = t.methods[name]; mt == nil {
				mt = &methodTotals{}
				t.methods[name] = mt
			}
		}
		mt.add(m)
	}
}

func (t *methodTotals) add(m *report.Method) {
	t.calls += m.Calls
	t.safe += m.Safe
	t.eligible += m.Eligible
	t.hedges += m.Hedges
	t.unsent += m.CancelledUnsent
	t.wins += m.Wins
	t.failures += m.Failures
	for i, n := range m.Suppressed {
		t.suppressed[i] += n
	}
	t.server.Attempts += m.Served.Attempts
	t.server.Hedges += m.Served.Hedges
	t.server.Cancelled += m.Served.Cancelled
	t.server.Wasted += m.Served.Wasted
}

func (t *totals) clone() totals {
	c := totals{methods: maps.Clone(t.methods)}
	for name, m := range c.methods {
		copied := *m
		c.methods[name] = &copied
	}
	return c
}
