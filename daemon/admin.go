package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
)

// Bounds of how long an override may hold that ends by itself.
const (
	MinLifetime = time.Second
	MaxLifetime = 30 * 24 * time.Hour
)

const explained = 20 // changes of a service that explain tells

// admin serves AdminService. It reads snapshots and never waits for an owner,
// but for an override, which returns when it is published.
type admin struct {
	hedgedv1.UnimplementedAdminServiceServer
	d *Daemon
}

// GetStatus implements AdminService.
func (a *admin) GetStatus(context.Context, *hedgedv1.GetStatusRequest) (*hedgedv1.GetStatusResponse, error) {
	_, clients := a.d.ingest.counts()
	r := &hedgedv1.GetStatusResponse{
		Version:   a.d.cfg.Version,
		StartedAt: timestamppb.New(a.d.started),
		Epoch:     a.d.state.Epoch(),
		StateDir:  a.d.cfg.StateDir,
		Services:  uint32(len(a.d.sorted(policy.Key{}))),
		Clients:   uint32(clients),
	}
	if err := a.d.state.Err(); err != nil {
		r.StorageError = err.Error()
	}
	if c := a.d.configured.Load(); a.d.cfg.File != "" {
		r.ConfigFile, r.ConfigLoadedAt = a.d.cfg.File, timestamppb.New(c.at)
		if c.err != nil {
			r.ConfigError = c.err.Error()
		}
	}
	for _, o := range a.d.state.Overrides() {
		if o.Key == (policy.Key{}) && !o.Cleared {
			r.AllOverride = overrideToProto(o)
		}
	}
	return r, nil
}

// ListServices implements AdminService.
func (a *admin) ListServices(_ context.Context, req *hedgedv1.ListServicesRequest) (*hedgedv1.ListServicesResponse, error) {
	services, err := a.services(req.GetService())
	if err != nil {
		return nil, err
	}
	return &hedgedv1.ListServicesResponse{Services: services}, nil
}

// WatchServices implements AdminService.
func (a *admin) WatchServices(req *hedgedv1.WatchServicesRequest, stream hedgedv1.AdminService_WatchServicesServer) error {
	interval := time.Second
	if req.MinInterval != nil {
		interval = req.MinInterval.AsDuration()
	}
	if interval < 100*time.Millisecond || interval > time.Minute {
		return status.Errorf(codes.InvalidArgument, "min_interval: %v, want 100ms to 1m", interval)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		services, err := a.services(req.GetService())
		if err != nil {
			return err
		}
		if err := stream.Send(&hedgedv1.WatchServicesResponse{Services: services}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-a.d.running.Done():
			return status.Error(codes.Unavailable, "the daemon is shutting down")
		case <-ticker.C:
		}
	}
}

// Explain implements AdminService.
func (a *admin) Explain(_ context.Context, req *hedgedv1.ExplainRequest) (*hedgedv1.ExplainResponse, error) {
	o, err := a.owner(req.GetService())
	if err != nil {
		return nil, err
	}
	snap := o.snapshot.Load()
	method := req.GetMethod()
	var known []string
	for _, m := range snap.status.Methods {
		known = append(known, m.Name)
	}
	if method != "" && !slices.Contains(known, method) {
		return nil, status.Errorf(codes.NotFound, "method: %q has not been reported for service %s; known: %s", method, o.key, list(known))
	}
	about := func(m string) bool { return method == "" || m == "" || m == method }
	r := &hedgedv1.ExplainResponse{Service: a.service(o)}
	r.Service.Methods = slices.DeleteFunc(r.Service.Methods, func(m *hedgedv1.MethodStatus) bool { return !about(m.Method) })
	for _, g := range snap.guards {
		if about(g.Method) {
			r.Guards = append(r.Guards, &hedgedv1.Guard{
				Code: wire.ReasonCodeToProto(g.Code), Method: g.Method, Decided: g.Decided, Text: g.Text,
			})
		}
	}
	for _, c := range snap.changes {
		if about(c.method) && len(r.Changes) < explained {
			r.Changes = append(r.Changes, changeToProto(c))
		}
	}
	return r, nil
}

// SetOverride implements AdminService.
func (a *admin) SetOverride(ctx context.Context, req *hedgedv1.SetOverrideRequest) (*hedgedv1.SetOverrideResponse, error) {
	o, configured, err := a.overrideFromProto(req)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if o.Key != (policy.Key{}) {
		if _, err := a.d.owner(o.Key); err != nil { // named before its first report
			return nil, status.Error(codes.ResourceExhausted, err.Error())
		}
	}
	applied, durable, err := a.d.state.SetOverride(ctx, o, configured)
	if err != nil && applied.Serial == 0 {
		return nil, status.Errorf(codes.Unavailable, "override not saved, so not applied: %v", err)
	}
	r := &hedgedv1.SetOverrideResponse{Durable: durable}
	if err != nil {
		r.Warning = fmt.Sprintf("applied, not durable: %v", err)
	}
	select {
	case a.d.overridden <- struct{}{}:
	default:
	}
	for _, key := range a.d.review(false) {
		r.Changed = append(r.Changed, key.String())
	}
	a.d.logger.Info("override set", "scope", scope(o.Key), "mode", o.Mode.String(), "cleared", o.Cleared,
		"target", o.Target, "until", o.Until, "author", o.Author, "reason", o.Reason, "durable", durable, "changed", len(r.Changed))
	return r, nil
}

func scope(key policy.Key) string {
	if key == (policy.Key{}) {
		return "all"
	}
	return key.String()
}

// overrideFromProto validates a request and returns the smallest target that
// the configuration gives the services in its scope.
func (a *admin) overrideFromProto(req *hedgedv1.SetOverrideRequest) (state.Override, float64, error) {
	var o state.Override
	var configured float64
	switch s := req.GetScope().(type) {
	case *hedgedv1.SetOverrideRequest_Service:
		key, err := policy.ParseKey(s.Service)
		if err != nil {
			return o, 0, err
		}
		o.Key = key
		configured = a.d.services.Load().For(key).Target
	case *hedgedv1.SetOverrideRequest_All:
		if !s.All {
			return o, 0, errors.New("all: false, want true or a service")
		}
		configured = a.d.services.Load().Default.Target
		for _, r := range a.d.services.Load().Rules {
			configured = min(configured, r.Config.Target)
		}
	default:
		return o, 0, errors.New("scope: is absent, want a service or all")
	}
	m := req.GetOverride()
	for _, f := range []struct{ field, value string }{{"author", m.GetAuthor()}, {"reason", m.GetReason()}} {
		if f.value == "" {
			continue
		}
		if err := policy.ValidateName(f.field, f.value); err != nil {
			return o, 0, err
		}
	}
	o.Author, o.Reason, o.SetAt = m.GetAuthor(), m.GetReason(), time.Now()
	if m.GetMode() == hedgedv1.Mode_MODE_UNSPECIFIED && (m == nil || m.Target == nil) {
		if m.GetLifetime() != nil {
			return o, 0, errors.New("lifetime: is set without a mode or a target")
		}
		o.Cleared = true
		return o, configured, nil
	}
	if l := m.GetLifetime(); l != nil {
		d := l.AsDuration()
		if d < MinLifetime || d > MaxLifetime {
			return o, 0, fmt.Errorf("lifetime: %v, want %v to %v", d, MinLifetime, MaxLifetime)
		}
		o.Until = o.SetAt.Add(d)
	}
	if m.GetMode() != hedgedv1.Mode_MODE_UNSPECIFIED {
		if _, known := hedgedv1.Mode_name[int32(m.GetMode())]; !known {
			return o, 0, fmt.Errorf("mode: %d is unknown", m.GetMode())
		}
		o.Mode, o.HasMode = wire.ModeFromProto(m.GetMode()), true
	}
	if m.Target != nil {
		o.Target = m.GetTarget()
		// Zero means "as configured" from here on, so it is refused like what is out of bounds.
		if !(o.Target >= control.MinTarget && o.Target <= control.MaxTarget) {
			return o, 0, fmt.Errorf("target: %g, want %g to %g", o.Target, control.MinTarget, control.MaxTarget)
		}
	}
	return o, configured, nil
}

// ListClients implements AdminService.
func (a *admin) ListClients(_ context.Context, req *hedgedv1.ListClientsRequest) (*hedgedv1.ListClientsResponse, error) {
	var only string
	if req.GetService() != "" {
		o, err := a.owner(req.GetService())
		if err != nil {
			return nil, err
		}
		only = o.key.String()
	}
	r := &hedgedv1.ListClientsResponse{Clients: a.d.clients(only)}
	return r, nil
}

// services returns the status of one service, or of all for an empty name.
func (a *admin) services(name string) ([]*hedgedv1.ServiceStatus, error) {
	owners := a.d.sorted(policy.Key{})
	if name != "" {
		o, err := a.owner(name)
		if err != nil {
			return nil, err
		}
		owners = []*owner{o}
	}
	out := make([]*hedgedv1.ServiceStatus, 0, len(owners))
	for _, o := range owners {
		out = append(out, a.service(o))
	}
	return out, nil
}

// owner finds a service by the name that an operator typed.
func (a *admin) owner(name string) (*owner, error) {
	key, err := policy.ParseKey(name)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if owners := a.d.sorted(key); len(owners) == 1 {
		return owners[0], nil
	}
	var known []string
	for _, o := range a.d.sorted(policy.Key{}) {
		known = append(known, o.key.String())
	}
	return nil, status.Errorf(codes.NotFound, "service: %q is unknown; known: %s", key, list(known))
}

// list shows the first of some names.
func list(names []string) string {
	const shown = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) > shown {
		names = append(names[:shown:shown], fmt.Sprintf("and %d more", len(names)-shown))
	}
	return strings.Join(names, ", ")
}
