package daemon

import (
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
	if ov, ok := a.d.state.Effective(o.key); ok && !ov.Cleared {
		s.Override = overrideToProto(ov)
	}
	for _, m := range st.Methods {
		inForce, _ := snap.policy.Method(m.Name)
		s.Methods = append(s.Methods, &hedgedv1.MethodStatus{
			Method: m.Name,
			Policy: wire.MethodToProto(inForce),
			Load:   loadToProto(m.Load),
			P50:    quantileToProto(m.P50),
			P95:    quantileToProto(m.P95),
			P99:    quantileToProto(m.P99),
			P999:   quantileToProto(m.P999),
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
	subscriptions := map[string]map[string]*hedgedv1.Subscription{} // by client id, by service
	for _, c := range d.xds.Clients() {
		of := subscriptions[c.Node]
		if of == nil {
			of = map[string]*hedgedv1.Subscription{}
			subscriptions[c.Node] = of
		}
		for _, r := range c.Resources {
			if r.Type == wire.ServicePolicyType {
				of[r.Name] = &hedgedv1.Subscription{Service: r.Name, AckedVersion: r.Acked, Current: r.Current, NackReason: r.Nack}
			}
		}
	}
	var out []*hedgedv1.ClientStatus
	now := time.Now()
	for _, src := range d.ingest.snapshot() {
		if src.info.Kind != report.Client {
			continue
		}
		c, generations := src.status(now)
		for name, sub := range subscriptions[c.Id] {
			held := proto.CloneOf(sub) // several lives of one client may be known
			if key, err := policy.ParseKey(name); err == nil {
				held.Generation = wire.GenerationToProto(generations[key])
				delete(generations, key)
			}
			c.Subscriptions = append(c.Subscriptions, held)
		}
		for key, g := range generations { // reported, but no stream holds it
			c.Subscriptions = append(c.Subscriptions, &hedgedv1.Subscription{Service: key.String(), Generation: wire.GenerationToProto(g)})
		}
		out = append(out, c)
	}
	out = slices.DeleteFunc(out, func(c *hedgedv1.ClientStatus) bool {
		slices.SortFunc(c.Subscriptions, func(a, b *hedgedv1.Subscription) int { return strings.Compare(a.Service, b.Service) })
		return only != "" && !slices.ContainsFunc(c.Subscriptions, func(s *hedgedv1.Subscription) bool { return s.Service == only })
	})
	slices.SortFunc(out, func(a, b *hedgedv1.ClientStatus) int { return strings.Compare(a.Id, b.Id) })
	return out
}

// status shows a source, and returns a copy of the generations that it runs.
func (s *source) status(now time.Time) (*hedgedv1.ClientStatus, map[policy.Key]policy.Generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &hedgedv1.ClientStatus{
		Id:            s.info.ID,
		Incarnation:   s.info.Incarnation,
		Zone:          s.info.Zone,
		Version:       s.info.Version,
		RefusedFrames: s.refused,
		Streaming:     s.streams > 0,
	}
	if !s.frameAt.IsZero() {
		c.ReportAge = durationpb.New(now.Sub(s.frameAt))
	}
	generations := make(map[policy.Key]policy.Generation, len(s.generations))
	for key, g := range s.generations {
		generations[key] = g
	}
	return c, generations
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
	return m
}

func changeToProto(c change) *hedgedv1.Change {
	return &hedgedv1.Change{
		At:          timestamppb.New(c.at),
		Generation:  wire.GenerationToProto(c.generation),
		Method:      c.method,
		DelayBefore: durationpb.New(c.before),
		DelayAfter:  durationpb.New(c.after),
		Mode:        wire.ModeToProto(c.mode),
		Reason:      c.reason.Text,
	}
}
