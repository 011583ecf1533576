package daemon

import (
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/xds"
)

// Series are written from snapshots at each scrape, so that a service, method
// or replica that is gone leaves none behind.

// maxReplicaSeries bounds the series by replica of one service; replicas are
// counted by state in any case.
const maxReplicaSeries = 100

// scraped is one service at the moment of a scrape.
type scraped struct {
	*snapshot
	labels string
	rows   []row
}

// row is one method that has metrics of its own, or all others together.
type row struct {
	labels string
	totals *methodTotals
	load   control.Load // over the last window
	policy policy.Method
}

func scrape(s *snapshot) scraped {
	out := scraped{
		snapshot: s,
		labels:   labels("tenant", s.status.Key.Tenant, "service", s.status.Key.Service),
	}
	status := map[string]control.MethodStatus{}
	for _, m := range s.status.Methods {
		status[m.Name] = m
	}
	rest := s.status.Load // of methods without a row
	others := -1
	for i, name := range s.totals.names() {
		r := row{labels: out.labels + "," + labels("method", name), totals: s.totals.methods[name]}
		if name == otherMethod {
			others = i
		} else if m, ok := status[name]; ok {
			r.load = m.Load
			r.policy, _ = s.policy.Method(name)
			rest.Safe -= m.Load.Safe
			rest.Eligible -= m.Load.Eligible
			rest.Hedges -= m.Load.Hedges
		}
		out.rows = append(out.rows, r)
	}
	if others >= 0 {
		out.rows[others].load = rest
	}
	return out
}

// metrics returns everything that operators watch.
func (d *Daemon) metrics() []byte {
	var e exposition
	var services []scraped
	for _, o := range d.sorted(policy.Key{}) {
		services = append(services, scrape(o.snapshot.Load()))
	}
	writeServiceGauges(&e, services)
	writeMethodGauges(&e, services)
	writeMethodCounters(&e, services)
	writeReplicas(&e, services)
	d.writeStreams(&e)
	d.writeStorage(&e)
	d.writeProcess(&e)
	return e.text.Bytes()
}

func writeServiceGauges(e *exposition, services []scraped) {
	e.one("hedged_services", "gauge", "Services known.", float64(len(services)))
	e.family("hedged_extra_load_ratio", "gauge", "Hedges per call that may be hedged, over the last window, all clients together.")
	for _, s := range services {
		if x, ok := s.status.Load.ExtraLoad(); ok {
			e.sample(s.labels, x)
		}
	}
	e.family("hedged_extra_load_target_ratio", "gauge", "Most extra load that the operator allows.")
	for _, s := range services {
		e.sample(s.labels, s.status.Target)
	}
	e.family("hedged_mode", "gauge", "1 for the mode in force, 0 for the others.")
	for _, s := range services {
		for _, m := range []policy.Mode{policy.ModeOff, policy.ModeShadow, policy.ModeActive} {
			e.sample(s.labels, truth(s.policy.Mode == m), "mode", m.String())
		}
	}
	e.family("hedged_reason", "gauge", "1 for the guard that decided the service's policy; only that one has a series.")
	for _, s := range services {
		e.sample(s.labels, 1, "reason", s.policy.Reason.Code.String())
	}
	e.family("hedged_policy_generation_epoch", "gauge", "Epoch of the policy in force: Unix milliseconds at the making of its store.")
	for _, s := range services {
		e.sample(s.labels, float64(s.policy.Generation.Epoch))
	}
	e.family("hedged_policy_generation_number", "gauge", "Number of the policy in force, within the epoch of the store.")
	for _, s := range services {
		e.sample(s.labels, float64(s.policy.Generation.Number))
	}
	e.family("hedged_clients", "gauge", "Clients that reported the service lately.")
	for _, s := range services {
		e.sample(s.labels, float64(s.status.Clients))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// methodGauges are the gauges by method.
var methodGauges = []struct {
	name, help string
	value      func(*row) (float64, bool)
}{
	{"hedged_method_extra_load_ratio", "Hedges per call that may be hedged, over the last window, by method.",
		func(r *row) (float64, bool) { return r.load.ExtraLoad() }},
	{"hedged_eligible_ratio", "Calls still pending at the delay per call that may be hedged, over the last window.",
		func(r *row) (float64, bool) { return r.load.EligibleRate() }},
	{"hedged_delay_seconds", "Delay in force before a hedge; absent while there is no estimate.",
		func(r *row) (float64, bool) { return r.policy.Delay.Seconds(), r.policy.Delay > 0 }},
}

func writeMethodGauges(e *exposition, services []scraped) {
	for _, g := range methodGauges {
		e.family(g.name, "gauge", g.help)
		for _, s := range services {
			for i := range s.rows {
				if v, ok := g.value(&s.rows[i]); ok {
					e.sample(s.rows[i].labels, v)
				}
			}
		}
	}
	e.family("hedged_method_reason", "gauge", "1 for the guard that decided the method's policy; only that one has a series.")
	for _, s := range services {
		for i := range s.rows {
			if code := s.rows[i].policy.Reason.Code; code != policy.ReasonUnknown {
				e.sample(s.rows[i].labels, 1, "reason", code.String())
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

func writeMethodCounters(e *exposition, services []scraped) {
	each := func(f func(*row)) {
		for _, s := range services {
			for i := range s.rows {
				f(&s.rows[i])
			}
		}
	}
	for _, c := range methodCounters {
		e.family(c.name, "counter", c.help)
		each(func(r *row) { e.sample(r.labels, float64(c.value(r.totals))) })
	}
	e.family("hedged_suppressed_total", "counter", "Eligible calls that were not hedged, by reason.")
	each(func(r *row) {
		for i, n := range r.totals.suppressed {
			e.sample(r.labels, float64(n), "reason", policy.Suppression(i).String())
		}
	})
	e.family("hedged_server_wasted_seconds_total", "counter", "Handler time that servers spent on attempts that were cancelled.")
	each(func(r *row) { e.sample(r.labels, r.totals.server.Wasted.Seconds()) })
}

func writeReplicas(e *exposition, services []scraped) {
	states := []policy.ReplicaState{policy.ReplicaServing, policy.ReplicaProbation, policy.ReplicaRecovering}
	e.family("hedged_replicas", "gauge", "Replicas by state.")
	for _, s := range services {
		counts := make([]int, len(states))
		for _, r := range s.status.Replicas {
			counts[r.Policy.State]++
		}
		for i, st := range states {
			e.sample(s.labels, float64(counts[i]), "state", st.String())
		}
	}
	e.family("hedged_replica_share_ratio", "gauge", "Share of its fair share of calls that a replica gets, where it is not in normal service.")
	for _, s := range services {
		written := 0
		for _, r := range s.status.Replicas {
			if r.Policy.State != policy.ReplicaServing && written < maxReplicaSeries {
				e.sample(s.labels, r.Policy.Share, "replica", r.Name)
				written++
			}
		}
	}
}

func (d *Daemon) writeStreams(e *exposition) {
	in, x := &d.ingest.stats, d.xds.Stats()
	sources, _ := d.ingest.counts()
	e.one("hedged_report_streams", "gauge", "Report streams open now.", float64(in.open.Load()))
	e.one("hedged_report_sources", "gauge", "Lives of clients and servers that are remembered.", float64(sources))
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
		e.one(c.name, "counter", c.help, float64(c.value))
	}
	e.family("hedged_policy_streams", "gauge", "Policy streams open now, by variant of the protocol.")
	e.sample("", float64(x.OpenSotW), "kind", "sotw")
	e.sample("", float64(x.OpenDelta), "kind", "delta")
	bounds := make([]float64, len(xds.SpreadBounds))
	for i, b := range xds.SpreadBounds {
		bounds[i] = b.Seconds()
	}
	e.histogram("hedged_policy_spread_seconds", "From a change of policy until the last client that follows it answered, where no later change overtook it.",
		bounds, x.Spread.Counts[:], x.Spread.Sum.Seconds())
	e.one("hedged_policy_unanswered_seconds", "gauge", "Age of the oldest response that its client has not answered.", x.Unanswered.Seconds())
}

func (d *Daemon) writeStorage(e *exposition) {
	stats := d.state.Stats()
	loaded := d.configured.Load()
	e.one("hedged_config_refused", "gauge", "1 while the configuration file's content is not in force because it is refused.", truth(loaded.err != nil))
	e.one("hedged_config_loaded_timestamp_seconds", "gauge", "When the configuration in force was read.", float64(loaded.at.UnixMilli())/1000)
	e.one("hedged_storage_failing", "gauge", "1 while state cannot be saved.", truth(d.state.Err() != nil))
	e.one("hedged_storage_writes_total", "counter", "Writes to the store.", float64(stats.Writes))
	e.one("hedged_storage_failures_total", "counter", "Writes to the store that failed.", float64(stats.Failures))
	e.one("hedged_overrides_lost", "gauge", "1 while every service is in shadow because the overrides were lost with a damaged store.", truth(d.state.Doubtful()))
}

func (d *Daemon) writeProcess(e *exposition) {
	e.family("hedged_build_info", "gauge", "Version of the daemon; always 1.")
	e.sample("", 1, "version", d.cfg.Version)
	e.process()
}
