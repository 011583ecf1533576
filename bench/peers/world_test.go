package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/xds"
)

const target = "orders"

// patience is how long a peer may take for anything: CI's machines are small.
const patience = 30 * time.Second

// world is our xDS server, which stays at its address over restarts, and two
// backends that a client may be sent to.
type world struct {
	t        *testing.T
	addr     string
	backends [2]string

	cache  *xds.Cache
	server *xds.Server
	stop   func()
	number int // of contents published
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	for i := range w.backends {
		g := grpc.NewServer()
		healthpb.RegisterHealthServer(g, health.NewServer())
		w.backends[i] = serve(t, g, "127.0.0.1:0")
		t.Cleanup(g.Stop)
	}
	w.start("127.0.0.1:0")
	t.Cleanup(func() { w.stop() })
	return w
}

func serve(t *testing.T, g *grpc.Server, addr string) string {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(lis) }() // ends with Stop
	return lis.Addr().String()
}

// start serves a new cache: a restarted daemon remembers nothing.
func (w *world) start(addr string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.cache = xds.NewCache(resource.ListenerType, resource.RouteType, resource.ClusterType, resource.EndpointType)
	w.server = xds.NewServer(ctx, w.cache, xds.Options{})
	g := grpc.NewServer(grpc.ForceServerCodecV2(xds.Codec()))
	w.server.Register(g)
	w.addr = serve(w.t, g, addr)
	w.stop = func() {
		cancel()
		g.Stop()
		w.server.Wait()
	}
}

func (w *world) set(typeURL, name string, m proto.Message) {
	w.t.Helper()
	w.number++
	if err := w.cache.Set(typeURL, name, m, strconv.Itoa(w.number)); err != nil {
		w.t.Fatal(err)
	}
}

// route publishes everything that leads target to a backend.
func (w *world) route(backend string) {
	w.t.Helper()
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3}
	w.set(resource.ListenerType, target, &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{
		ApiListener: packed(w.t, &managerv3.HttpConnectionManager{
			RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{ConfigSource: ads, RouteConfigName: "route"}},
			HttpFilters: []*managerv3.HttpFilter{{Name: "router",
				ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(w.t, &routerv3.Router{})}}},
		}),
	}})
	w.set(resource.RouteType, "route", &routev3.RouteConfiguration{Name: "route", VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "cluster"}}},
		}},
	}}})
	w.set(resource.ClusterType, "cluster", &clusterv3.Cluster{
		Name:                 "cluster",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: "endpoints"},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
	})
	w.endpoints(backend, 0)
}

// endpoints publishes the cluster's only backend; a priority other than 0 leaves a
// gap, which clients have to reject.
func (w *world) endpoints(backend string, priority uint32) {
	w.t.Helper()
	host, port, err := net.SplitHostPort(backend)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set(resource.EndpointType, "endpoints", &endpointv3.ClusterLoadAssignment{
		ClusterName: "endpoints",
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Priority:            priority,
			Locality:            &corev3.Locality{Region: "here"},
			LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)}}}},
			}}}},
		}},
	})
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// bootstrap tells a gRPC client where we are.
func (w *world) bootstrap(node string) string {
	b, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      w.addr,
			"channel_creds":   []any{map[string]any{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": node, "locality": map[string]any{"zone": "here"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// await waits until what the server knows of its one client is right. There is
// nothing to wait on: the peer is another process.
func (w *world) await(what string, right func(map[string]xds.ResourceState) bool) {
	w.t.Helper()
	var clients []xds.ClientState
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		clients = w.server.Clients()
		if len(clients) != 1 {
			continue
		}
		byType := map[string]xds.ResourceState{}
		for _, r := range clients[0].Resources {
			byType[r.Type] = r
		}
		if right(byType) {
			return
		}
	}
	w.t.Fatalf("%s: not after %v; the server knows %+v", what, patience, clients)
}

// accepted waits until the client has accepted the newest content of everything.
func (w *world) accepted() {
	w.t.Helper()
	w.await("everything is accepted", func(r map[string]xds.ResourceState) bool {
		for _, typeURL := range []string{resource.ListenerType, resource.RouteType, resource.ClusterType, resource.EndpointType} {
			if !r[typeURL].Current {
				return false
			}
		}
		return true
	})
}

// rejected waits until the client has rejected the endpoints, and checks that it is
// left in peace then.
func (w *world) rejected() {
	w.t.Helper()
	w.await("the endpoints are rejected", func(r map[string]xds.ResourceState) bool { return r[resource.EndpointType].Nack != "" })
	before := w.server.Stats()
	time.Sleep(300 * time.Millisecond) // a loop would run hundreds of times
	if after := w.server.Stats(); after.Responses != before.Responses || after.Nacks != 1 {
		w.t.Errorf("after a rejection %d responses were sent and %d rejections counted, want 0 and 1",
			after.Responses-before.Responses, after.Nacks)
	}
}

func (w *world) String() string { return fmt.Sprintf("%+v", w.server.Stats()) }
