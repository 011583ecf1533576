package client

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// balancerName is the balancer's name in a service config. DialOptions selects
// it; nothing else should.
const balancerName = "hedged"

// ReplicaAttribute is the key of the attribute by which a resolver names a
// replica: a string, on the endpoint or on its first address. Without it a
// replica's name is its endpoint's first address.
const ReplicaAttribute = "hedged.replica"

func init() { balancer.Register(balancerBuilder{}) }

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return balancerName }

// Build returns a balancer that connects to every endpoint and lets each pick
// choose between those that are ready.
func (balancerBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	b := &replicaBalancer{ClientConn: cc, metrics: cc.MetricsRecorder()}
	b.Balancer = endpointsharding.NewBalancer(b, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
	return b
}

// replicaBalancer keeps what must outlive a picker: the replicas with their
// outstanding attempts, and which picker is current. grpc gets a new picker
// whenever a connection changes, and forgets it when the channel goes idle.
type replicaBalancer struct {
	balancer.Balancer   // endpointsharding: a pick_first child for each endpoint
	balancer.ClientConn // to intercept UpdateState

	metrics  estats.MetricsRecorder
	replicas map[string]*liveReplica // by name; those of the resolver's endpoints
	current  atomic.Pointer[picker]  // nil while no replica is ready

	refused atomic.Pointer[string] // what of the resolver's config is not used, until a call has told its service
}

// UpdateClientConnState hands the resolver's endpoints to the children. The
// balancer has no config of its own, and the children take none.
func (b *replicaBalancer) UpdateClientConnState(state balancer.ClientConnState) error {
	if config := state.ResolverState.ServiceConfig; config != nil {
		b.refuse(config)
	}
	return b.Balancer.UpdateClientConnState(balancer.ClientConnState{
		// So that health checks, if the application configured them, count.
		ResolverState: pickfirst.EnableHealthListener(state.ResolverState),
	})
}

// UpdateState takes the children's states and gives grpc a picker over those
// that are ready. While none is, endpointsharding's own picker is right: it
// blocks a pick, or fails it with a connection's error. endpointsharding makes
// one call at a time, under its lock.
func (b *replicaBalancer) UpdateState(state balancer.State) {
	children := endpointsharding.ChildStatesFromPicker(state.Picker)
	present := make(map[string]*liveReplica, len(children))
	p := &picker{balancer: b}
	for _, child := range children {
		name := replicaName(child.Endpoint)
		r := present[name]
		if r == nil {
			if r = b.replicas[name]; r == nil {
				r = &liveReplica{name: name}
			}
			present[name] = r
		}
		if child.State.ConnectivityState == connectivity.Ready {
			p.replicas = append(p.replicas, r)
			p.children = append(p.children, child.State.Picker)
		}
	}
	b.replicas = present

	if len(p.replicas) == 0 {
		b.current.Store(nil)
		b.ClientConn.UpdateState(state)
		return
	}
	b.current.Store(p)
	b.ClientConn.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: p})
}

// replicaName names an endpoint: its hedged.replica attribute, else its first
// address. When a resolver gives addresses only, grpc has moved an address's
// BalancerAttributes to the endpoint.
func replicaName(e resolver.Endpoint) string {
	if name, ok := e.Attributes.Value(ReplicaAttribute).(string); ok && name != "" {
		return name
	}
	if len(e.Addresses) == 0 {
		return other
	}
	first := e.Addresses[0]
	if name, ok := first.Attributes.Value(ReplicaAttribute).(string); ok && name != "" {
		return name
	}
	return first.Addr
}
