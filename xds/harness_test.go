package xds_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/xds"
)

const color = "type.googleapis.com/test.Color"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server on an in-memory connection, in a bubble of synthetic time:
// "nothing more is sent" is then a fact and not a wait that was long enough.
type world struct {
	t      rapid.TB
	cache  *xds.Cache
	server *xds.Server
	stop   context.CancelFunc // of the server's context
	conn   *grpc.ClientConn
	end    func()
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bubbleWith(t, xds.Options{}, f)
}

func bubbleWith(t *testing.T, opts xds.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := startWith(t, xds.NewCache(color), opts)
		defer w.end()
		f(t, w)
	})
}

func start(t rapid.TB, cache *xds.Cache) *world {
	t.Helper()
	return startWith(t, cache, xds.Options{})
}

func startWith(t rapid.TB, cache *xds.Cache, opts xds.Options) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, cache: cache, stop: cancel, server: xds.NewServer(ctx, cache, opts)}
	lis := bufconn.Listen(1 << 16)
	g := grpc.NewServer(grpc.ForceServerCodecV2(xds.Codec()))
	w.server.Register(g)
	w.server.RegisterType(g, "test.ColorService", "Colors", color)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	w.conn = conn
	w.end = func() {
		conn.Close()
		g.Stop()
		cancel()
		w.server.Wait()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	return w
}

// set publishes a text under its own content as version.
func (w *world) set(name, text string) { w.setType(color, name, text) }

func (w *world) setType(typeURL, name, text string) {
	w.t.Helper()
	if err := w.cache.Set(typeURL, name, wrapperspb.String(text), text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setUrgent(name, text string) {
	w.t.Helper()
	if err := w.cache.SetUrgent(color, name, wrapperspb.String(text), text); err != nil {
		w.t.Fatal(err)
	}
}

// own opens a stream of the type's own service; it ends with the world.
func (w *world) own(method string) grpc.ClientStream {
	w.t.Helper()
	s, err := w.conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.ColorService/"+method)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// sleep lets synthetic time pass, and then everything that it sets off.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// state returns what the only stream of the server knows about a name.
func (w *world) state(name string) xds.ResourceState {
	w.t.Helper()
	synctest.Wait()
	clients := w.server.Clients()
	if len(clients) != 1 {
		w.t.Fatalf("%d clients, want 1", len(clients))
	}
	for _, r := range clients[0].Resources {
		if r.Name == name {
			return r
		}
	}
	w.t.Fatalf("client has no %q: %+v", name, clients[0])
	return xds.ResourceState{}
}

// inbox is the receiving half of a stream: a goroutine reads all there is.
type inbox[R any] struct {
	t    rapid.TB
	got  chan R
	err  error // valid once got is closed
	quit context.CancelFunc
}

func (in *inbox[R]) read(recv func() (R, error)) {
	go func() {
		defer close(in.got)
		for {
			m, err := recv()
			if err != nil {
				in.err = err
				return
			}
			in.got <- m
		}
	}()
}

// take returns what arrived and was not taken yet, once nothing moves any more.
func (in *inbox[R]) take() []R {
	synctest.Wait()
	var all []R
	for {
		select {
		case m, ok := <-in.got:
			if !ok {
				return all
			}
			all = append(all, m)
		default:
			return all
		}
	}
}

// one returns the only message that arrived.
func (in *inbox[R]) one() R {
	in.t.Helper()
	all := in.take()
	if len(all) != 1 {
		in.t.Fatalf("%d responses, want 1: %v", len(all), all)
	}
	return all[0]
}

func (in *inbox[R]) none() {
	in.t.Helper()
	if all := in.take(); len(all) != 0 {
		in.t.Fatalf("%d responses, want none: %v", len(all), all)
	}
}

// failure returns the error that ended the stream.
func (in *inbox[R]) failure() error {
	in.t.Helper()
	synctest.Wait()
	for {
		select {
		case _, ok := <-in.got:
			if !ok {
				return in.err
			}
		default:
			in.t.Fatal("the stream has not ended")
		}
	}
}

func newInbox[R any](t rapid.TB) (context.Context, *inbox[R]) {
	ctx, cancel := context.WithCancel(context.Background())
	return ctx, &inbox[R]{t: t, got: make(chan R, 10_000), quit: cancel}
}

type sotwClient struct {
	*inbox[*discovery.DiscoveryResponse]
	stream  discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	typeURL string
}

func (w *world) sotw() *sotwClient {
	w.t.Helper()
	c := w.silentSotW()
	c.read(c.stream.Recv)
	return c
}

// silentSotW is a client that does not read until told to.
func (w *world) silentSotW() *sotwClient {
	w.t.Helper()
	ctx, in := newInbox[*discovery.DiscoveryResponse](w.t)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return &sotwClient{in, stream, color}
}

// ask sends a request of the client's type. Send errors show up as the stream's end.
func (c *sotwClient) ask(version, nonce string, names ...string) {
	_ = c.stream.Send(&discovery.DiscoveryRequest{
		TypeUrl: c.typeURL, Node: &corev3.Node{Id: "n1"}, VersionInfo: version, ResponseNonce: nonce, ResourceNames: names,
	})
}

func (c *sotwClient) ack(r *discovery.DiscoveryResponse, names ...string) {
	c.ask(r.GetVersionInfo(), r.GetNonce(), names...)
}

func (c *sotwClient) nack(version, nonce, reason string, names ...string) {
	_ = c.stream.Send(&discovery.DiscoveryRequest{
		TypeUrl: c.typeURL, VersionInfo: version, ResponseNonce: nonce, ResourceNames: names,
		ErrorDetail: &spb.Status{Code: 3, Message: reason},
	})
}

type deltaClient struct {
	*inbox[*discovery.DeltaDiscoveryResponse]
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (w *world) delta() *deltaClient {
	w.t.Helper()
	c := w.silentDelta()
	c.read(c.stream.Recv)
	return c
}

// silentDelta is a client that does not read until told to.
func (w *world) silentDelta() *deltaClient {
	w.t.Helper()
	ctx, in := newInbox[*discovery.DeltaDiscoveryResponse](w.t)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return &deltaClient{in, stream}
}

func (c *deltaClient) send(r *discovery.DeltaDiscoveryRequest) {
	if r.TypeUrl == "" {
		r.TypeUrl = color
	}
	_ = c.stream.Send(r)
}

func (c *deltaClient) subscribe(names ...string) {
	c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n1"}, ResourceNamesSubscribe: names})
}

func (c *deltaClient) unsubscribe(names ...string) {
	c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: names})
}

func (c *deltaClient) ack(r *discovery.DeltaDiscoveryResponse) {
	c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
}

func (c *deltaClient) nack(r *discovery.DeltaDiscoveryResponse, reason string) {
	c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &spb.Status{Code: 3, Message: reason}})
}

// texts returns the contents of a state-of-the-world response.
func texts(t rapid.TB, r *discovery.DiscoveryResponse) []string {
	t.Helper()
	var all []string
	for _, a := range r.GetResources() {
		var s wrapperspb.StringValue
		if err := proto.Unmarshal(a.GetValue(), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s.GetValue())
	}
	return all
}

func wantTexts(t rapid.TB, r *discovery.DiscoveryResponse, want ...string) {
	t.Helper()
	if got := texts(t, r); !slices.Equal(got, want) {
		t.Fatalf("response carries %q, want %q", got, want)
	}
}

// wantChange checks resources ("name=text") and removed names of a delta response.
func wantChange(t rapid.TB, r *discovery.DeltaDiscoveryResponse, resources, removed []string) {
	t.Helper()
	var got []string
	for _, res := range r.GetResources() {
		var s wrapperspb.StringValue
		if err := proto.Unmarshal(res.GetResource().GetValue(), &s); err != nil {
			t.Fatal(err)
		}
		got = append(got, res.GetName()+"="+s.GetValue())
		if res.GetVersion() != s.GetValue() || res.GetResource().GetTypeUrl() != r.GetTypeUrl() {
			t.Errorf("resource %v does not carry its version and type", res)
		}
	}
	if !slices.Equal(got, resources) || !slices.Equal(r.GetRemovedResources(), removed) {
		t.Fatalf("response carries %q and removes %q, want %q and %q", got, r.GetRemovedResources(), resources, removed)
	}
}
