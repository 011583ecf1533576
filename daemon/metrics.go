package daemon

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

// Series are written from snapshots at each scrape, so that a service, method
// or replica that is gone leaves none behind.

// maxReplicaSeries bounds the series by replica of one service; replicas are
// counted by state in any case.
const maxReplicaSeries = 100

// exposition writes metric families in Prometheus' text format.
type exposition struct{ w io.Writer }

// family starts a family. kind is gauge or counter.
func (e exposition) family(name, kind, help string) {
	fmt.Fprintf(e.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e exposition) gauge(name string, v float64, labels ...string) {
	metrics.WriteGaugeFloat64(e.w, name+labelSet(labels), v)
}

func (e exposition) counter(name string, v uint64, labels ...string) {
	metrics.WriteCounterUint64(e.w, name+labelSet(labels), v)
}

// labelSet formats pairs of name and value.
func labelSet(pairs []string) string {
	if len(pairs) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		b.WriteByte(sep)
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(labelEscaper.Replace(pairs[i+1]))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// writeMetrics writes everything that operators watch.
func (d *Daemon) writeMetrics(w io.Writer) {
	e := exposition{w}
	var services []*snapshot
	for _, o := range d.sorted(policy.Key{}) {
		services = append(services, o.snapshot.Load())
	}
	writeServiceGauges(e, services)
	writeMethodGauges(e, services)
	writeMethodCounters(e, services)
	writeReplicas(e, services)
	d.writeStreams(e)
	d.writeStorage(e)
	e.family("hedged_build_info", "gauge", "Version of the daemon; always 1.")
	e.gauge("hedged_build_info", 1, "version", d.cfg.Version)
	metrics.WriteProcessMetrics(w)
}

func of(s *snapshot) []string {
	return []string{"tenant", s.status.Key.Tenant, "service", s.status.Key.Service}
}

func ofMethod(s *snapshot, method string) []string { return append(of(s), "method", method) }

func writeServiceGauges(e exposition, services []*snapshot) {
	e.family("hedged_extra_load_ratio", "gauge", "Hedges per call that may be hedged, over the last window, all clients together.")
	for _, s := range services {
		if x, ok := s.status.Load.ExtraLoad(); ok {
			e.gauge("hedged_extra_load_ratio", x, of(s)...)
		}
	}
	e.family("hedged_extra_load_target_ratio", "gauge", "Most extra load that the operator allows.")
	for _, s := range services {
		e.gauge("hedged_extra_load_target_ratio", s.status.Target, of(s)...)
	}
	e.family("hedged_mode", "gauge", "1 for the mode in force, 0 for the others.")
	for _, s := range services {
		for _, m := range []policy.Mode{policy.ModeOff, policy.ModeShadow, policy.ModeActive} {
			v := 0.0
			if s.policy.Mode == m {
				v = 1
			}
			e.gauge("hedged_mode", v, append(of(s), "mode", m.String())...)
		}
	}
	e.family("hedged_policy_generation_number", "gauge", "Number of the policy in force, within the epoch of the store.")
	for _, s := range services {
		e.gauge("hedged_policy_generation_number", float64(s.policy.Generation.Number), of(s)...)
	}
	e.family("hedged_clients", "gauge", "Clients that reported the service lately.")
	for _, s := range services {
		e.gauge("hedged_clients", float64(s.status.Clients), of(s)...)
	}
}

// methodGauges are the gauges by method.
var methodGauges = []struct {
	name, help string
	value      func(*snapshot, control.MethodStatus) (float64, bool)
}{
	{"hedged_method_extra_load_ratio", "Hedges per call that may be hedged, over the last window, by method.",
		func(_ *snapshot, m control.MethodStatus) (float64, bool) { return m.Load.ExtraLoad() }},
	{"hedged_eligible_ratio", "Calls still pending at the delay per call that may be hedged, over the last window.",
		func(_ *snapshot, m control.MethodStatus) (float64, bool) { return m.Load.EligibleRate() }},
	{"hedged_delay_seconds", "Delay in force before a hedge; absent while there is no estimate.",
		func(s *snapshot, m control.MethodStatus) (float64, bool) {
			p, _ := s.policy.Method(m.Name)
			return p.Delay.Seconds(), p.Delay > 0
		}},
}

func writeMethodGauges(e exposition, services []*snapshot) {
	for _, g := range methodGauges {
		e.family(g.name, "gauge", g.help)
		for _, s := range services {
			for _, m := range s.status.Methods[:min(len(s.status.Methods), maxMethodSeries)] {
				if v, ok := g.value(s, m); ok {
					e.gauge(g.name, v, ofMethod(s, m.Name)...)
				}
			}
		}
	}
}

// methodCounters are the counters by method.
var methodCounters = []struct {
	name, help string
	value      func(*methodTotals) uint64
}{
	{"hedged_calls_total", "Calls that clients reported.", func(t *methodTotals) uint64 { return t.calls }},
	{"hedged_safe_calls_total", "Calls that may be hedged.", func(t *methodTotals) uint64 { return t.safe }},
	{"hedged_eligible_calls_total", "Calls still pending at the delay.", func(t *methodTotals) uint64 { return t.eligible }},
	{"hedged_hedges_total", "Hedges that clients decided on.", func(t *methodTotals) uint64 { return t.hedges }},
	{"hedged_hedges_unsent_total", "Hedges that ended before a replica was picked.", func(t *methodTotals) uint64 { return t.unsent }},
	{"hedged_wins_total", "Calls that a hedge answered first.", func(t *methodTotals) uint64 { return t.wins }},
	{"hedged_failed_calls_total", "Calls that failed.", func(t *methodTotals) uint64 { return t.failures }},
	{"hedged_server_attempts_total", "Attempts that servers saw.", func(t *methodTotals) uint64 { return t.server.Attempts }},
	{"hedged_server_hedges_total", "Hedges that servers saw.", func(t *methodTotals) uint64 { return t.server.Hedges }},
	{"hedged_server_cancelled_total", "Attempts that servers saw cancelled.", func(t *methodTotals) uint64 { return t.server.Cancelled }},
}

func writeMethodCounters(e exposition, services []*snapshot) {
	each := func(f func(*snapshot, string, *methodTotals)) {
		for _, s := range services {
			for _, name := range s.totals.names() {
				f(s, name, s.totals.methods[name])
			}
		}
	}
	for _, c := range methodCounters {
		e.family(c.name, "counter", c.help)
		each(func(s *snapshot, name string, t *methodTotals) {
			e.counter(c.name, c.value(t), ofMethod(s, name)...)
		})
	}
	e.family("hedged_suppressed_total", "counter", "Eligible calls that were not hedged, by reason.")
	each(func(s *snapshot, name string, t *methodTotals) {
		for i, n := range t.suppressed {
			e.counter("hedged_suppressed_total", n, append(ofMethod(s, name), "reason", policy.Suppression(i).String())...)
		}
	})
	e.family("hedged_server_wasted_seconds_total", "counter", "Handler time that servers spent on attempts that were cancelled.")
	each(func(s *snapshot, name string, t *methodTotals) {
		metrics.WriteCounterFloat64(e.w, "hedged_server_wasted_seconds_total"+labelSet(ofMethod(s, name)), t.server.Wasted.Seconds())
	})
}

func writeReplicas(e exposition, services []*snapshot) {
	states := []policy.ReplicaState{policy.ReplicaServing, policy.ReplicaProbation, policy.ReplicaRecovering}
	e.family("hedged_replicas", "gauge", "Replicas by state.")
	for _, s := range services {
		counts := make([]int, len(states))
		for _, r := range s.status.Replicas {
			counts[r.Policy.State]++
		}
		for i, st := range states {
			e.gauge("hedged_replicas", float64(counts[i]), append(of(s), "state", st.String())...)
		}
	}
	e.family("hedged_replica_share_ratio", "gauge", "Share of its fair share of calls that a replica gets, where it is not in normal service.")
	for _, s := range services {
		written := 0
		for _, r := range s.status.Replicas {
			if r.Policy.State != policy.ReplicaServing && written < maxReplicaSeries {
				e.gauge("hedged_replica_share_ratio", r.Policy.Share, append(of(s), "replica", r.Name)...)
				written++
			}
		}
	}
}

func (d *Daemon) writeStreams(e exposition) {
	in, x := &d.ingest.stats, d.xds.Stats()
	e.family("hedged_report_streams", "gauge", "Report streams open now.")
	e.gauge("hedged_report_streams", float64(in.open.Load()))
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"hedged_report_frames_total", "Frames taken in.", in.frames.Load()},
		{"hedged_report_frames_early_total", "Frames sent ahead of the cadence because eligibility ran away.", in.early.Load()},
		{"hedged_report_frames_duplicate_total", "Frames sent again that had been taken in already.", in.duplicates.Load()},
		{"hedged_report_frames_refused_total", "Frames and sources refused because they were out of bounds.", in.refused.Load()},
		{"hedged_report_observations_dropped_total", "Observations that clients say they could not keep.", in.dropped.Load()},
		{"hedged_policy_streams_opened_total", "Policy streams opened.", x.Opened},
		{"hedged_policy_streams_refused_total", "Policy streams ended for a request out of bounds.", x.Refused},
		{"hedged_policy_responses_total", "Responses sent on policy streams.", x.Responses},
		{"hedged_policy_acks_total", "Responses that clients accepted.", x.Acks},
		{"hedged_policy_nacks_total", "Responses that clients rejected.", x.Nacks},
		{"hedged_policy_publishes_total", "Changes of policy published.", x.Publishes},
	} {
		e.family(c.name, "counter", c.help)
		e.counter(c.name, c.value)
	}
	e.family("hedged_policy_streams", "gauge", "Policy streams open now, by variant of the protocol.")
	e.gauge("hedged_policy_streams", float64(x.OpenSotW), "kind", "sotw")
	e.gauge("hedged_policy_streams", float64(x.OpenDelta), "kind", "delta")
}

func (d *Daemon) writeStorage(e exposition) {
	stats, failing := d.state.Stats(), 0.0
	if d.state.Err() != nil {
		failing = 1
	}
	e.family("hedged_storage_failing", "gauge", "1 while state cannot be saved.")
	e.gauge("hedged_storage_failing", failing)
	e.family("hedged_storage_writes_total", "counter", "Writes to the store.")
	e.counter("hedged_storage_writes_total", stats.Writes)
	e.family("hedged_storage_failures_total", "counter", "Writes to the store that failed.")
	e.counter("hedged_storage_failures_total", stats.Failures)
}

// names returns the methods in order.
func (t *totals) names() []string {
	names := make([]string, 0, len(t.methods))
	for name := range t.methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
