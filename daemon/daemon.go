package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon/dashboard"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"github.com/hedged-project/hedged/xds"
)

const (
	maxServices = 10_000 // of one daemon

	// maxMessage bounds what a client may send at once, in bytes: clients cut
	// their frames at 3 MiB.
	maxMessage = 4 << 20

	// policyService is the policies' own discovery service, beside the aggregated
	// one. Its messages are Envoy's, so that no proto of ours describes it.
	policyService = "hedged.v1.PolicyDiscoveryService"
)

// Daemon is one control plane. New opens what it needs, Run serves.
type Daemon struct {
	cfg     Config
	logger  *slog.Logger
	started time.Time

	grpcListener, httpListener net.Listener

	state  *state.State
	cache  *xds.Cache
	table  *table
	ingest *ingest
	xds    *xds.Server
	page   http.Handler

	running context.Context // of the owners and streams; set by Run before anything is served
	tasks   sync.WaitGroup  // what Run started

	rows atomic.Int64 // methods that have metrics of their own

	services   atomic.Pointer[Services] // as configured last
	configured atomic.Pointer[configured]
	overridden chan struct{} // size 1: there is a new override

	mu     sync.RWMutex
	owners map[policy.Key]*owner
}

// New opens the state and the listeners, and puts what is stored in force. The
// error names what could not be opened. A Daemon that is not Run must be Closed.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Listen == nil {
		cfg.Listen = net.Listen
	}
	page, err := dashboard.Handler()
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	st, err := state.Open(cfg.StateDir, cfg.Logger, time.Now)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	d := &Daemon{
		cfg:    cfg,
		logger: cfg.Logger,
		state:  st,
		cache:  xds.NewCache(wire.ServicePolicyType),
		owners: map[policy.Key]*owner{},
		page:   page,

		overridden: make(chan struct{}, 1),
	}
	d.services.Store(&d.cfg.Services)
	d.configured.Store(&configured{at: time.Now()})
	d.table = newTable(st, d.cache, cfg.Logger)
	d.restore()
	if d.grpcListener, err = cfg.Listen("tcp", cfg.GRPCAddr); err == nil {
		d.httpListener, err = cfg.Listen("tcp", cfg.HTTPAddr)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// restore makes an owner for each stored and each configured service, so that
// the first client that asks gets its policy at once.
func (d *Daemon) restore() {
	found := map[policy.Key]stored{}
	for _, key := range d.cfg.Services.Named() {
		found[key] = stored{}
	}
	for key, blob := range d.state.Policies() {
		s := d.table.restore(key, blob)
		if s.policy != nil {
			d.state.ObserveEpoch(s.policy.Generation.Epoch) // for the numbers alone may be lost
		}
		found[key] = s
	}
	for key, s := range found {
		d.owners[key] = d.newOwner(key, s)
	}
}

func (d *Daemon) newOwner(key policy.Key, before stored) *owner {
	return newOwner(key, d.table, d.rules, d.logger, &d.rows, before)
}

// Close releases what New opened. Run does it by itself.
func (d *Daemon) Close() error {
	for _, l := range []net.Listener{d.grpcListener, d.httpListener} {
		if l != nil {
			_ = l.Close() // closed already where a server served it
		}
	}
	return d.state.Close()
}

// GRPCAddr and HTTPAddr return the addresses that are listened on.
func (d *Daemon) GRPCAddr() string { return d.grpcListener.Addr().String() }

// HTTPAddr returns the address of the HTTP listener.
func (d *Daemon) HTTPAddr() string { return d.httpListener.Addr().String() }

// Run serves until ctx ends, then ends every stream with a status that clients
// retry, saves the state, and returns within Config.ShutdownTimeout. It may be
// called once.
func (d *Daemon) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	d.running = running
	d.started = time.Now()

	d.xds = xds.NewServer(running, d.cache, xds.Options{Logger: d.logger, Drain: d.cfg.ShutdownTimeout / 4})
	d.ingest = &ingest{
		ctx:     running,
		drain:   d.cfg.ShutdownTimeout / 4,
		cadence: d.cfg.Cadence,
		post:    d.post,
		logger:  d.logger,
		sources: map[sourceKey]*source{},
	}
	d.tasks.Go(func() { d.ingest.forgetLoop(running) })
	d.tasks.Go(func() { d.endOverrides(running) })
	d.mu.RLock()
	for _, o := range d.owners {
		d.tasks.Go(func() { o.run(running) })
	}
	d.mu.RUnlock()

	healthServer := health.NewServer()
	g := d.newGRPCServer(healthServer)
	h := &http.Server{
		Handler:           d.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	failed := make(chan error, 2)
	d.tasks.Go(func() { failed <- wrap("serve gRPC", g.Serve(d.grpcListener)) })
	d.tasks.Go(func() {
		err := h.Serve(d.httpListener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		failed <- wrap("serve HTTP", err)
	})

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	healthServer.Shutdown()
	return errors.Join(err, d.shutdown(g, h))
}

// shutdown ends what Run started and saves the state, within the limit.
func (d *Daemon) shutdown(g *grpc.Server, h *http.Server) error {
	timer := time.NewTimer(d.cfg.ShutdownTimeout)
	defer timer.Stop()
	ended := make(chan error, 1)
	go func() {
		d.drain(g, h)
		ended <- d.Close()
	}()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("shut down: not done after %v: state may not be saved", d.cfg.ShutdownTimeout)
	}
}

// drain ends the servers and whatever runs for them. Half of the limit is left
// for the state.
func (d *Daemon) drain(g *grpc.Server, h *http.Server) {
	limit, cancel := context.WithTimeout(context.Background(), d.cfg.ShutdownTimeout/2)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		g.GracefulStop() // the handlers of streams end by the context of Run
	}()
	select {
	case <-drained:
	case <-limit.Done():
		d.logger.Warn("some clients did not read to the end; their connections are closed")
		g.Stop()
		<-drained
	}
	if err := h.Shutdown(limit); err != nil {
		_ = h.Close() // of the listener, which is closed already
	}
	d.xds.Wait()
	d.ingest.tasks.Wait()
	d.tasks.Wait() // what adds to them has ended
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (d *Daemon) newGRPCServer(healthServer *health.Server) *grpc.Server {
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(xds.Codec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
		// Messages are small and streams many: to measure each connection's bandwidth
		// costs more than it brings, and a reader's buffer is most of its memory.
		grpc.StaticStreamWindowSize(256<<10),
		grpc.StaticConnWindowSize(512<<10),
		grpc.ReadBufferSize(4<<10),
		// Our clients ping every 30 s at most; a stock client that pings more
		// often than this is refused by gRPC itself.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// A peer that vanished is noticed within 40 s, and its streams are freed.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	)
	d.xds.Register(g)
	d.xds.RegisterType(g, policyService, "ServicePolicies", wire.ServicePolicyType)
	hedgedv1.RegisterReportServiceServer(g, d.ingest)
	hedgedv1.RegisterAdminServiceServer(g, &admin{d: d})
	healthpb.RegisterHealthServer(g, healthServer)
	reflection.Register(g)
	return g
}

// rules returns what the configuration and the operators say of a service.
func (d *Daemon) rules(key policy.Key) (control.Config, *control.Override) {
	cfg := d.services.Load().For(key)
	o, ok := d.state.Effective(key)
	if !ok || o.Cleared {
		return cfg, nil
	}
	return cfg, &control.Override{Mode: o.Mode, HasMode: o.HasMode, Target: o.Target}
}

// endOverrides has services decided anew when an override ends by itself, until
// ctx ends.
func (d *Daemon) endOverrides(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if at, ok := d.state.NextEnd(); ok {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-d.overridden:
		case <-timer.C:
			d.logger.Info("an override ended by itself", "changed", len(d.review(false)))
		}
	}
}

// post hands a report to the owner of its service, a new one for a new service.
func (d *Daemon) post(ctx context.Context, r *report.Report) error {
	if !r.Generation.IsZero() && d.state.ObserveEpoch(r.Generation.Epoch) {
		d.logger.Warn("a client holds a policy of a later epoch; policies are numbered anew",
			"client", r.Source.ID, "its_epoch", r.Generation.Epoch, "epoch", d.state.Epoch())
		d.review(true)
	}
	o, err := d.owner(r.Service)
	if err != nil {
		return err
	}
	return o.post(ctx, r)
}

func (d *Daemon) owner(key policy.Key) (*owner, error) {
	d.mu.RLock()
	o := d.owners[key]
	d.mu.RUnlock()
	if o != nil {
		return o, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[key]; o != nil {
		return o, nil
	}
	if len(d.owners) >= maxServices {
		return nil, errTooManyServices(key)
	}
	o = d.newOwner(key, stored{})
	d.owners[key] = o
	d.tasks.Go(func() { o.run(d.running) })
	return o, nil
}

// review makes every owner decide anew, all at the same time, and returns the
// services whose mode or budget changed; a delay may have moved by itself.
func (d *Daemon) review(renumber bool) []policy.Key {
	owners := d.sorted(policy.Key{})
	changed := make([]bool, len(owners))
	var wg sync.WaitGroup
	for i, o := range owners {
		wg.Go(func() {
			before := o.snapshot.Load().policy
			o.review(d.running, renumber)
			after := o.snapshot.Load().policy
			changed[i] = after.Mode != before.Mode || after.Budget.Ratio != before.Budget.Ratio
		})
	}
	wg.Wait()
	var keys []policy.Key
	for i, o := range owners {
		if changed[i] {
			keys = append(keys, o.key)
		}
	}
	return keys
}

// sorted returns the owner of key, or all of them by name for the zero Key.
func (d *Daemon) sorted(key policy.Key) []*owner {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if key != (policy.Key{}) {
		if o := d.owners[key]; o != nil {
			return []*owner{o}
		}
		return nil
	}
	all := make([]*owner, 0, len(d.owners))
	for _, o := range d.owners {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *owner) int { return strings.Compare(a.key.String(), b.key.String()) })
	return all
}
