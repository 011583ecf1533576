package daemon

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Bounds of the methods that have metrics of their own, of one service and of
// all together; the rest are added up under otherMethod. A client that puts ids
// into the names of methods costs no more than that.
const (
	maxMethodRows    = 100
	maxAllMethodRows = 20_000
	otherMethod      = "other"

	// A method that nobody reports for so long has no metrics any more; if it
	// comes back it counts from zero, as after a restart.
	forgetTotals = 10 * time.Minute
)

// totals are a service's counts since the daemon started, for metrics.
type totals struct {
	methods map[string]*methodTotals
	own     int           // of methods: with metrics of their own
	rows    *atomic.Int64 // the same of all services together
}

type methodTotals struct {
	seen time.Time // last reported

	calls, safe, eligible, hedges, unsent, wins, failures uint64

	suppressed [policy.NumSuppressions]uint64
	server     report.Served
}

func (t *totals) add(now time.Time, r *report.Report) {
	for name, m := range r.Methods {
		mt := t.method(name)
		mt.seen = now
		mt.add(m)
	}
}

// method returns the counts of a method, or of all that have none of their own.
func (t *totals) method(name string) *methodTotals {
	if mt := t.methods[name]; mt != nil {
		return mt
	}
	if name != otherMethod && !t.row() {
		name = otherMethod
	}
	mt := t.methods[name]
	if mt == nil {
		mt = &methodTotals{}
		t.methods[name] = mt
	}
	return mt
}

// row reserves a place for one more method.
func (t *totals) row() bool {
	if t.own >= maxMethodRows {
		return false
	}
	if t.rows.Add(1) > maxAllMethodRows {
		t.rows.Add(-1)
		return false
	}
	t.own++
	return true
}

// forget drops the methods that are gone.
func (t *totals) forget(now time.Time) {
	for name, m := range t.methods {
		if now.Sub(m.seen) > forgetTotals && name != otherMethod {
			delete(t.methods, name)
			t.own--
			t.rows.Add(-1)
		}
	}
}

// names returns the methods in order.
func (t *totals) names() []string { return slices.Sorted(maps.Keys(t.methods)) }

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
	t.server.Add(m.Served)
}

func (t *totals) clone() totals {
	c := totals{methods: maps.Clone(t.methods)}
	for name, m := range c.methods {
		copied := *m
		c.methods[name] = &copied
	}
	return c
}
