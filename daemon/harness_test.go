package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const get = "/shop.Orders/Get"

var orders = policy.Key{Tenant: policy.DefaultTenant, Service: "orders"}

// world is a daemon on in-memory connections in a bubble of synthetic time: what
// has not happened when nothing moves any more will not happen.
type world struct {
	t     *testing.T
	cfg   Config
	conn  *grpc.ClientConn // of operators, raw reporters and raw subscribers
	admin hedgedv1.AdminServiceClient

	d     *Daemon
	stop  context.CancelFunc
	ended chan error

	mu       sync.Mutex
	listener *bufconn.Listener // of gRPC; nil while the daemon is down
}

// bubble runs f with a daemon in which orders is configured and active.
func bubble(t *testing.T, f func(t *testing.T, w *world), change ...func(*Config)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, cfg: DefaultConfig()}
		w.cfg.StateDir = dir
		w.cfg.Logger = slog.New(slog.DiscardHandler)
		w.cfg.Version = "test"
		active := control.DefaultConfig()
		active.Configured = true
		w.cfg.Services.Rules = []ServiceRule{{Pattern: orders.String(), Config: active}}
		w.cfg.Listen = func(_, addr string) (net.Listener, error) {
			l := bufconn.Listen(1 << 16)
			if addr == w.cfg.GRPCAddr {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.listener = l
			}
			return l, nil
		}
		for _, c := range change {
			c(&w.cfg)
		}
		conn, err := grpc.NewClient("passthrough:///hedged", w.dialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		w.conn, w.admin = conn, hedgedv1.NewAdminServiceClient(conn)
		w.start()
		defer func() {
			if w.d != nil {
				w.end()
			}
		}()
		f(t, w)
	})
}

// dialOptions lead to the daemon that runs when the connection is made.
func (w *world) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			w.mu.Lock()
			l := w.listener
			w.mu.Unlock()
			if l == nil {
				return nil, errors.New("connection refused")
			}
			return l.DialContext(ctx)
		}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	}
}

func (w *world) start() {
	w.t.Helper()
	d, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.d, w.stop, w.ended = d, cancel, make(chan error, 1)
	go func() { w.ended <- d.Run(ctx) }()
	synctest.Wait()
}

// end shuts the daemon down and returns how long that took.
func (w *world) end() time.Duration {
	w.t.Helper()
	began := time.Now()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("run: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.d, w.listener = nil, nil
	return time.Since(began)
}

// tick lets the owners decide.
func (w *world) tick() { time.Sleep(tickEvery + time.Millisecond) }

// service returns what AdminService says of a service.
func (w *world) service(name string) *hedgedv1.ServiceStatus {
	w.t.Helper()
	r, err := w.admin.ListServices(w.t.Context(), &hedgedv1.ListServicesRequest{Service: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Services[0]
}

// client returns what AdminService says of a client.
func (w *world) client(id string) *hedgedv1.ClientStatus {
	w.t.Helper()
	r, err := w.admin.ListClients(w.t.Context(), &hedgedv1.ListClientsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range r.Clients {
		if c.Id == id {
			return c
		}
	}
	w.t.Fatalf("client %q is not among %v", id, r.Clients)
	return nil
}

// override says mode for a service, or for all where it is empty.
func (w *world) override(service string, mode hedgedv1.Mode) (*hedgedv1.SetOverrideResponse, error) {
	req := &hedgedv1.SetOverrideRequest{Override: &hedgedv1.Override{Mode: mode, Author: "ada", Reason: "drill"}}
	req.Scope = &hedgedv1.SetOverrideRequest_Service{Service: service}
	if service == "" {
		req.Scope = &hedgedv1.SetOverrideRequest_All{All: true}
	}
	return w.admin.SetOverride(w.t.Context(), req)
}

func (w *world) mustOverride(service string, mode hedgedv1.Mode) *hedgedv1.SetOverrideResponse {
	w.t.Helper()
	r, err := w.override(service, mode)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// reporter is a client without the client library: it can say anything.
type reporter struct {
	t      *testing.T
	stream hedgedv1.ReportService_ReportClient
	cancel context.CancelFunc
	first  *hedgedv1.ReportResponse
}

func clientSource(id string) *hedgedv1.Source {
	return &hedgedv1.Source{Id: id, Incarnation: 1, Kind: hedgedv1.SourceKind_SOURCE_KIND_CLIENT}
}

func serverSource(id string) *hedgedv1.Source {
	return &hedgedv1.Source{Id: id, Incarnation: 1, Kind: hedgedv1.SourceKind_SOURCE_KIND_SERVER, Replica: id}
}

func (w *world) report(src *hedgedv1.Source) *reporter {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := hedgedv1.NewReportServiceClient(w.conn).Report(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &reporter{t: w.t, stream: stream, cancel: cancel}
	if err := stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: src}}); err != nil {
		w.t.Fatal(err)
	}
	r.first = r.answer()
	return r
}

func (r *reporter) answer() *hedgedv1.ReportResponse {
	r.t.Helper()
	a, err := r.stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// send sends a frame and returns its answer.
func (r *reporter) send(f *hedgedv1.Frame) *hedgedv1.ReportResponse {
	r.t.Helper()
	if err := r.stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: f}}); err != nil {
		r.t.Fatal(err)
	}
	return r.answer()
}

// take is send for a frame that has to be taken.
func (r *reporter) take(f *hedgedv1.Frame) {
	r.t.Helper()
	if a := r.send(f); a.Refused != "" || a.Acknowledged != f.Sequence {
		r.t.Fatalf("frame %d: answered %v", f.Sequence, a)
	}
}

// close ends the stream and waits until the daemon knows.
func (r *reporter) close() {
	r.cancel()
	synctest.Wait()
}

// frame reports calls of one method on three replicas: 95 of 100 took base, the
// others ten times as long.
func frame(seq uint64, service, method string, calls int, base time.Duration) *hedgedv1.Frame {
	m := &report.Method{Calls: uint64(calls), Safe: uint64(calls), Replicas: map[string]*report.Replica{}}
	for i := range calls {
		name := fmt.Sprintf("10.0.0.%d:80", i%3)
		r := m.Replicas[name]
		if r == nil {
			r = &report.Replica{}
			m.Replicas[name] = r
		}
		d := base
		if i%20 == 7 {
			d *= 10
		}
		r.Primary.Completed.Record(d)
	}
	key, err := policy.ParseKey(service)
	if err != nil {
		panic(err)
	}
	return wire.FrameToProto(&report.Report{
		Service: key, Sequence: seq, Interval: time.Second, Methods: map[string]*report.Method{method: m},
	})
}

// subscriber is a client of the policy stream without the client library.
type subscriber struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc

	mu  sync.Mutex
	got []*discovery.DeltaDiscoveryResponse
	err error // of the stream's end
}

// subscribe follows a service's policy; held is the version that it has, if any.
func (w *world) subscribe(node, service, held string) *subscriber {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &subscriber{t: w.t, stream: stream, cancel: cancel}
	req := &discovery.DeltaDiscoveryRequest{
		Node:                   &corev3.Node{Id: node},
		TypeUrl:                wire.ServicePolicyType,
		ResourceNamesSubscribe: []string{service},
	}
	if held != "" {
		req.InitialResourceVersions = map[string]string{service: held}
	}
	if err := stream.Send(req); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for {
			m, err := stream.Recv()
			s.mu.Lock()
			if err != nil {
				s.err = err
				s.mu.Unlock()
				return
			}
			s.got = append(s.got, m)
			s.mu.Unlock()
		}
	}()
	return s
}

// take returns the responses that came and were not taken yet.
func (s *subscriber) take() []*discovery.DeltaDiscoveryResponse {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// one returns the only policy that came, with its version and nonce.
func (s *subscriber) one() (p *policy.Policy, version, nonce string) {
	s.t.Helper()
	got := s.take()
	if len(got) != 1 || len(got[0].Resources) != 1 {
		s.t.Fatalf("got %v, want one policy", got)
	}
	var m hedgedv1.ServicePolicy
	if err := got[0].Resources[0].Resource.UnmarshalTo(&m); err != nil {
		s.t.Fatal(err)
	}
	p, err := wire.PolicyFromProto(&m)
	if err != nil {
		s.t.Fatal(err)
	}
	return p, got[0].Resources[0].Version, got[0].Nonce
}

// answer accepts a response, or rejects it with a reason.
func (s *subscriber) answer(nonce, reason string) {
	s.t.Helper()
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: wire.ServicePolicyType, ResponseNonce: nonce}
	if reason != "" {
		req.ErrorDetail = &status.Status{Code: 3, Message: reason}
	}
	if err := s.stream.Send(req); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

// close ends the stream and waits until the daemon knows.
func (s *subscriber) close() {
	s.cancel()
	synctest.Wait()
}

// failure returns what ended the stream.
func (s *subscriber) failure() error {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// http asks the HTTP port.
func (w *world) http(path string) (code int, body string) {
	rec := httptest.NewRecorder()
	w.d.handler().ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
	return rec.Code, rec.Body.String()
}
