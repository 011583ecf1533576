package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = policy.Key{Tenant: policy.DefaultTenant, Service: "orders"}

// activePolicy is a valid policy of the service orders.
func activePolicy(number uint64) *policy.Policy {
	return &policy.Policy{
		Key:        orders,
		Generation: policy.Generation{Epoch: 1, Number: number},
		Mode:       policy.ModeActive,
		Budget:     policy.Budget{Ratio: .05, Burst: 10, Start: 5},
		Default:    policy.Method{Delay: 15 * time.Millisecond, Probability: 1, MaxAttempts: 3},
		ValidFor:   time.Minute,
	}
}

// fakeDaemon is the daemon's side of both streams over the real generated
// servers. It writes down what it hears and says what the test tells it to.
type fakeDaemon struct {
	hedgedv1.UnimplementedReportServiceServer
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t *testing.T

	mu       sync.Mutex
	listener *bufconn.Listener // nil: down
	server   *grpc.Server
	streams  map[discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer]bool
	asked    []*discoveryv3.DeltaDiscoveryRequest // all streams
	sources  []*hedgedv1.Source
	frames   []*hedgedv1.Frame
	nonce    int
	answer   func(*hedgedv1.Frame) (*hedgedv1.ReportResponse, error) // nil: acknowledges
}

func startFake(t *testing.T) *fakeDaemon {
	d := &fakeDaemon{t: t, streams: map[discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer]bool{}}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDaemon) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	hedgedv1.RegisterReportServiceServer(server, d)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, d)
	d.listener, d.server = listener, server
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			d.t.Errorf("serve: %v", err)
		}
	}()
}

// stop ends the daemon as kill -9 does: streams break, the port answers no more.
func (d *fakeDaemon) stop() {
	d.mu.Lock()
	server := d.server
	d.listener, d.server = nil, nil
	d.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// options are a client's for this daemon.
func (d *fakeDaemon) options() Options {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		d.mu.Lock()
		listener := d.listener
		d.mu.Unlock()
		if listener == nil {
			return nil, errors.New("connection refused")
		}
		return listener.DialContext(ctx)
	}
	return Options{
		Daemon:      "passthrough:///daemon",
		ID:          "client-1",
		Zone:        "zone-a",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	}
}

func (d *fakeDaemon) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.streams, stream)
	}()
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.streams[stream] = true
		d.asked = append(d.asked, request)
		d.mu.Unlock()
	}
}

func (d *fakeDaemon) Report(stream grpc.BidiStreamingServer[hedgedv1.ReportRequest, hedgedv1.ReportResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetSource() == nil {
		return status.Error(codes.InvalidArgument, "the first request has no source")
	}
	src, err := wire.SourceFromProto(first.GetSource())
	if err != nil {
		d.t.Errorf("source: %v", err)
	}
	d.mu.Lock()
	d.sources = append(d.sources, first.GetSource())
	d.mu.Unlock()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		frame := request.GetFrame()
		if _, err := wire.FrameFromProto(src, frame); err != nil {
			d.t.Errorf("frame %d: %v", frame.GetSequence(), err)
		}
		d.mu.Lock()
		d.frames = append(d.frames, frame)
		answer := d.answer
		d.mu.Unlock()
		response := &hedgedv1.ReportResponse{Acknowledged: frame.GetSequence()}
		if answer != nil {
			if response, err = answer(frame); err != nil {
				return err
			}
		}
		if response == nil {
			continue
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// answers makes the daemon answer frames by f from now on: no answer where it
// returns nil, an end of the stream where it returns an error.
func (d *fakeDaemon) answers(f func(*hedgedv1.Frame) (*hedgedv1.ReportResponse, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = f
}

// resource is a policy as it stands in a response.
func resource(t *testing.T, m *hedgedv1.ServicePolicy, version string) *discoveryv3.Resource {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: m.GetName(), Version: version, Resource: body}
}

// push sends a response to every stream and returns its nonce.
func (d *fakeDaemon) push(response *discoveryv3.DeltaDiscoveryResponse) string {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.streams) == 0 {
		d.t.Fatal("push: no stream is up")
	}
	d.nonce++
	response.Nonce = string(rune('a' + d.nonce))
	response.TypeUrl = wire.ServicePolicyType
	for stream := range d.streams {
		if err := stream.Send(proto.CloneOf(response)); err != nil {
			d.t.Errorf("push: %v", err)
		}
	}
	return response.Nonce
}

// pushPolicy sends one policy under its own version.
func (d *fakeDaemon) pushPolicy(p *policy.Policy) string {
	d.t.Helper()
	m := wire.PolicyToProto(p, time.Now())
	return d.push(&discoveryv3.DeltaDiscoveryResponse{
		Resources: []*discoveryv3.Resource{resource(d.t, m, wire.PolicyVersion(p))},
	})
}

// requests returns what was asked so far, answers included.
func (d *fakeDaemon) requests() []*discoveryv3.DeltaDiscoveryRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*discoveryv3.DeltaDiscoveryRequest(nil), d.asked...)
}

// answered returns the answers to a nonce.
func (d *fakeDaemon) answered(nonce string) (out []*discoveryv3.DeltaDiscoveryRequest) {
	for _, r := range d.requests() {
		if r.ResponseNonce == nonce {
			out = append(out, r)
		}
	}
	return out
}

// reported returns the frames so far.
func (d *fakeDaemon) reported() []*hedgedv1.Frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*hedgedv1.Frame(nil), d.frames...)
}

// newClient returns a client of the fake that the test's end closes.
func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
