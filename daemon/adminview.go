package daemon

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"github.com/hedged-project/hedged/xds"
)

// service shows one service as its owner left it.
func (a *admin) service(o *owner) *hedgedv1.ServiceStatus {
	snap := o.snapshot.Load()
	st := snap.status
	s := &hedgedv1.ServiceStatus{
		Name:    o.key.String(),
		Policy:  wire.PolicyToProto(snap.policy, time.Time{}),
		Target:  st.Target,
		Load:    loadToProto(st.Load),
		Clients: uint32(st.Clients),
	}
	s.Policy.IssuedAt = nil
	s.Policy.Reason = wire.ReasonToProto(snap.reason("", snap.policy.Reason))
	if ov, ok := a.d.state.Effective(o.key); ok && !ov.Cleared {
		s.Override = overrideToProto(ov)
	}
	for _, m := range st.Methods {
		inForce, _ := snap.policy.Method(m.Name)
		inForce.Reason = snap.reason(m.Name, inForce.Reason)
		s.Methods = append(s.Methods, &hedgedv1.MethodStatus{
			Method: m.Name,
			Policy: wire.MethodToProto(inForce),
			Load:   loadToProto(m.Load),
			P50:    quantileToProto(m.P50),
			P95:    quantileToProto(m.P95),
			P99:    quantileToProto(m.P99),
			P999:   quantileToProto(m.P999),

			Counterfactual: counterfactualToProto(m.Counterfactual),
		})
	}
	for _, r := range st.Replicas {
		s.Replicas = append(s.Replicas, &hedgedv1.ReplicaStatus{
			Replica: r.Name,
			Policy: &hedgedv1.ReplicaPolicy{
				State: wire.ReplicaStateToProto(r.Policy.State), Share: r.Policy.Share, Reason: r.Policy.Reason,
			},
			Samples: r.Samples,
			P50:     quantileToProto(r.P50),
			P95:     quantileToProto(r.P95),
		})
	}
	return s
}

// clients shows every client that reports or holds a policy stream; with only,
// a service's name, those that subscribe to it or report it.
func (d *Daemon) clients(only string) []*hedgedv1.ClientStatus {
	held := d.subscriptions()
	now := time.Now()
	var out []*hedgedv1.ClientStatus
	shown := map[string]bool{}
	for _, src := range d.ingest.all() {
		if src.info.Kind != report.Client {
			continue
		}
		c := clientToProto(src, now)
		if src.streaming { // an earlier life of the same client holds nothing
			shown[c.Id] = true
			c.Subscriptions = subscriptionsOf(held[c.Id], src.generations)
		} else {
			c.Subscriptions = subscriptionsOf(nil, src.generations)
		}
		out = append(out, c)
	}
	for id, of := range held {
		if !shown[id] { // it gets policies and does not report
			out = append(out, &hedgedv1.ClientStatus{Id: id, Subscriptions: subscriptionsOf(of, nil)})
		}
	}
	out = slices.DeleteFunc(out, func(c *hedgedv1.ClientStatus) bool {
		return only != "" && !slices.ContainsFunc(c.Subscriptions, func(s *hedgedv1.Subscription) bool { return s.Service == only })
	})
	slices.SortFunc(out, func(a, b *hedgedv1.ClientStatus) int {
		return cmp.Or(strings.Compare(a.Id, b.Id), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return out
}

// subscriptions returns what the policy streams hold, by client id and service.
func (d *Daemon) subscriptions() map[string]map[string]*hedgedv1.Subscription {
	held := map[string]map[string]*hedgedv1.Subscription{}
	streams := d.xds.Clients()
	// Of two streams of one client the older one may be dead and not known to be.
	slices.SortStableFunc(streams, func(a, b xds.ClientState) int { return a.Since.Compare(b.Since) })
	for _, c := range streams {
		if held[c.Node] == nil {
			held[c.Node] = map[string]*hedgedv1.Subscription{}
		}
		for _, r := range c.Resources {
			if r.Type == wire.ServicePolicyType {
				held[c.Node][r.Name] = &hedgedv1.Subscription{Service: r.Name, AckedVersion: r.Acked, Current: r.Current, NackReason: r.Nack}
			}
		}
	}
	return held
}

// subscriptionsOf joins what a client's policy stream holds with the generations
// that its reports tell, by service.
func subscriptionsOf(held map[string]*hedgedv1.Subscription, generations map[policy.Key]policy.Generation) []*hedgedv1.Subscription {
	of := make(map[string]*hedgedv1.Subscription, max(len(held), len(generations)))
	for name, s := range held {
		of[name] = proto.CloneOf(s) // two processes may call themselves the same
	}
	for key, g := range generations {
		name := key.String()
		if of[name] == nil {
			of[name] = &hedgedv1.Subscription{Service: name}
		}
		of[name].Generation = wire.GenerationToProto(g)
	}
	out := make([]*hedgedv1.Subscription, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[name])
	}
	return out
}

func clientToProto(s sourceView, now time.Time) *hedgedv1.ClientStatus {
	c := &hedgedv1.ClientStatus{
		Id:            s.info.ID,
		Incarnation:   s.info.Incarnation,
		Zone:          s.info.Zone,
		Version:       s.info.Version,
		RefusedFrames: s.refused,
		Streaming:     s.streaming,
	}
	if !s.frameAt.IsZero() {
		c.ReportAge = durationpb.New(now.Sub(s.frameAt))
	}
	return c
}

func loadToProto(l control.Load) *hedgedv1.Load {
	m := &hedgedv1.Load{
		Window:          durationpb.New(l.Window),
		Calls:           l.Calls,
		Safe:            l.Safe,
		Eligible:        l.Eligible,
		Hedges:          l.Hedges,
		Wins:            l.Wins,
		Failures:        l.Failures,
		Suppressed:      map[string]uint64{},
		ServerAttempts:  l.Server.Attempts,
		ServerHedges:    l.Server.Hedges,
		ServerCancelled: l.Server.Cancelled,
		ServerWasted:    durationpb.New(l.Server.Wasted),
	}
	for i, n := range l.Suppressed {
		if n > 0 {
			m.Suppressed[policy.Suppression(i).String()] = n
		}
	}
	if x, ok := l.ExtraLoad(); ok {
		m.ExtraLoad = &x
	}
	if x, ok := l.EligibleRate(); ok {
		m.EligibleRate = &x
	}
	return m
}

func quantileToProto(q control.Quantile) *durationpb.Duration {
	if !q.OK {
		return nil
	}
	return durationpb.New(q.Value)
}

func overrideToProto(o state.Override) *hedgedv1.Override {
	m := &hedgedv1.Override{Author: o.Author, Reason: o.Reason, SetAt: timestamppb.New(o.SetAt)}
	if o.HasMode {
		m.Mode = wire.ModeToProto(o.Mode)
	}
	if o.Target != 0 {
		m.Target = &o.Target
	}
	if !o.Until.IsZero() {
		m.ExpiresAt = timestamppb.New(o.Until)
	}
	return m
}

// counterfactualToProto returns nil where nothing was hedged.
func counterfactualToProto(c control.Counterfactual) *hedgedv1.Counterfactual {
	if c.Calls == 0 {
		return nil
	}
	m := &hedgedv1.Counterfactual{
		Span:       durationpb.New(c.Span),
		Calls:      c.Calls,
		Observed:   c.Observed,
		HeldOut:    c.HeldOut,
		P99:        intervalToProto(c.P99),
		P999:       intervalToProto(c.P999),
		HedgedP99:  quantileToProto(c.HedgedP99),
		HedgedP999: quantileToProto(c.HedgedP999),
		Text:       c.String(),
	}
	if e := c.Efficacy; e.OK {
		m.Efficacy, m.EfficacyOff, m.Beyond = &e.Share, &e.Off, durationpb.New(e.Beyond)
	}
	return m
}

func intervalToProto(i control.Interval) *hedgedv1.QuantileInterval {
	if !i.OK {
		return nil
	}
	return &hedgedv1.QuantileInterval{
		Value: durationpb.New(i.Value), Low: durationpb.New(i.Low), High: durationpb.New(i.High),
	}
}
