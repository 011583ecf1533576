package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

const (
	testMethod = "/hedged.test.Store/Get"
	listMethod = "/hedged.test.Store/List" // a server stream
	putMethod  = "/hedged.test.Store/Put"  // a client stream
)

// testPolicy hedges testMethod after 10 ms, up to three attempts, with tokens
// enough.
func testPolicy(change ...func(*policy.Policy)) *policy.Policy {
	p := &policy.Policy{
		Key:        policy.Key{Tenant: policy.DefaultTenant, Service: "store"},
		Generation: policy.Generation{Epoch: 1, Number: 1},
		Mode:       policy.ModeActive,
		Budget:     policy.Budget{Ratio: 1, Burst: 200, Start: 200},
		Default:    policy.Method{Delay: 10 * time.Millisecond, Probability: 1, MaxAttempts: 3},
		ValidFor:   time.Hour,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// testService returns a service with p in force, until the test ends.
func testService(t testing.TB, p *policy.Policy) *service {
	s := newService(policy.Key{Tenant: policy.DefaultTenant, Service: "store"}, func() {})
	if p != nil {
		s.renew(time.Now())
		s.apply(p)
	}
	t.Cleanup(s.close)
	return s
}

// visitMethod is not safe, so never hedged.
const visitMethod = "/hedged.test.Store/Visit"

// testInterceptor hedges testMethod for s.
func testInterceptor(s *service) *interceptor {
	return &interceptor{service: s, safety: &safety{listed: func(m string) bool { return m == testMethod || m == listMethod || m == putMethod }}}
}

// tryFunc is what a stub's replica does with an attempt; index 0 is the primary.
type tryFunc func(ctx context.Context, replica string, index int, reply any) error

// stub is a network without grpc: an invoker over the real balancer and picker.
type stub struct {
	*interceptor
	balancer *replicaBalancer
	try      tryFunc

	mu    sync.Mutex
	sent  []string // replicas that saw an attempt, in order
	times []time.Duration
	start time.Time
}

func newStub(s *service, try tryFunc, replicas ...string) *stub {
	n := &stub{interceptor: testInterceptor(s), balancer: &replicaBalancer{}, try: try, start: time.Now()}
	n.setReady(replicas...)
	return n
}

// setReady makes replicas the ready ones, as UpdateState does.
func (n *stub) setReady(replicas ...string) {
	p := &picker{balancer: n.balancer}
	present := map[string]*liveReplica{}
	for _, name := range replicas {
		r := n.balancer.replicas[name]
		if r == nil {
			r = &liveReplica{name: name}
		}
		present[name] = r
		p.replicas = append(p.replicas, r)
		p.children = append(p.children, stubConn{})
	}
	n.balancer.replicas = present
	n.balancer.current.Store(p)
}

type stubConn struct{}

func (stubConn) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, nil
}

func (n *stub) invoke(ctx context.Context, method string, _, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) (err error) {
	info := balancer.PickInfo{FullMethodName: method, Ctx: ctx}
	picked, err := n.balancer.current.Load().Pick(info)
	if err != nil {
		return err
	}
	trailer := metadata.MD{}
	defer func() {
		picked.Done(balancer.DoneInfo{Err: err, BytesSent: true, Trailer: trailer})
		for _, o := range opts {
			if o, ok := o.(grpc.TrailerCallOption); ok {
				*o.TrailerAddr = trailer
			}
		}
	}()
	a := attemptOf(info)
	a.call.mu.Lock()
	replica := a.replica.name
	a.call.mu.Unlock()
	n.mu.Lock()
	n.sent = append(n.sent, replica)
	n.times = append(n.times, time.Since(n.start))
	n.mu.Unlock()
	trailer.Set("replica", replica)
	err = n.try(context.WithValue(ctx, trailerKey{}, trailer), replica, a.index, reply)
	return err
}

type trailerKey struct{}

// call makes one call, on the caller's goroutine.
func (n *stub) call(ctx context.Context, opts ...grpc.CallOption) (string, error) {
	reply := &wrapperspb.StringValue{}
	err := n.unary(ctx, testMethod, wrapperspb.String("key"), reply, nil, n.invoke, opts...)
	return reply.Value, err
}

// visits returns the replicas that saw an attempt so far, in order.
func (n *stub) visits() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// counts returns what was counted of testMethod.
func (n *stub) counts() Counts { return n.service.method(testMethod).counts() }

// outstanding returns the attempts in flight on all replicas.
func (n *stub) outstanding() int64 {
	var all int64
	for _, r := range n.balancer.replicas {
		all += r.outstanding.Load()
	}
	return all
}

// answer is a replica that answers with its name after d, or stops when told to.
func answer(ctx context.Context, d time.Duration, replica string, reply any) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	reply.(*wrapperspb.StringValue).Value = replica
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveFunc is what a real server's handler does with an attempt.
type serveFunc func(ctx context.Context, replica string, hedge bool) ([]byte, error)

// listFunc is what a real server's handler does with a stream.
type listFunc func(stream grpc.ServerStream, replica string, hedge bool) error

// cluster is real grpc servers, one for each replica, over in-memory connections.
type cluster struct {
	*interceptor
	conn     *grpc.ClientConn
	resolver *manual.Resolver

	endpoints []resolver.Endpoint
	listeners map[string]*bufconn.Listener

	servers map[string]*grpc.Server
	seen    atomic.Int64 // headers that servers received
	hedges  atomic.Int64 // of seen: of hedges

	header chan struct{} // size 1: a server received headers
	list   listFunc      // serves listMethod; may be nil

	balancer atomic.Pointer[replicaBalancer] // that the last call was picked by
	visited  atomic.Int64                    // replicas that were connected to
}

func newCluster(t testing.TB, s *service, serve serveFunc, replicas ...string) *cluster {
	t.Helper()
	c := &cluster{interceptor: testInterceptor(s), servers: map[string]*grpc.Server{}, header: make(chan struct{}, 1)}
	listeners := map[string]*bufconn.Listener{}
	var endpoints []resolver.Endpoint
	var serving sync.WaitGroup
	for _, name := range replicas {
		listener := bufconn.Listen(1 << 20)
		server := grpc.NewServer(grpc.StatsHandler(headerCounter{c}))
		server.RegisterService(c.storeService(name, serve), nil)
		serving.Go(func() { _ = server.Serve(listener) })
		listeners[name], c.servers[name] = listener, server
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: name}}})
	}
	c.resolver = manual.NewBuilderWithScheme(fmt.Sprintf("test%d", rand.Uint64()))
	c.resolver.InitialState(resolver.State{Endpoints: endpoints})
	c.endpoints, c.listeners = endpoints, listeners
	c.dial(t, grpc.WithChainUnaryInterceptor(c.unary, c.watch))
	t.Cleanup(func() {
		if err := c.conn.Close(); err != nil {
			t.Error(err)
		}
		for _, server := range c.servers {
			server.Stop()
		}
		serving.Wait()
	})
	return c
}

// dial replaces the connection.
func (c *cluster) dial(t testing.TB, options ...grpc.DialOption) {
	t.Helper()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	conn, err := grpc.NewClient(c.resolver.Scheme()+":///store", append([]grpc.DialOption{
		grpc.WithResolvers(c.resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return c.listeners[addr].DialContext(ctx)
		}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + balancerName + `":{}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithStreamInterceptor(c.stream),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	c.conn = conn
}

// watch is an interceptor behind ours.
func (c *cluster) watch(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoker(ctx, method, req, reply, cc, opts...)
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.call.mu.Lock()
		defer a.call.mu.Unlock()
		c.balancer.Store(a.call.balancer)
	}
	return err
}

// call makes one call.
func (c *cluster) call(ctx context.Context, opts ...grpc.CallOption) ([]byte, error) {
	reply := &wrapperspb.BytesValue{}
	err := c.conn.Invoke(ctx, testMethod, wrapperspb.String("key"), reply, opts...)
	return reply.Value, err
}

// connect waits until every replica is ready, by calls that are never hedged: of
// those that are, losers' headers may come long after.
func (c *cluster) connect(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for c.visited.Load() < int64(len(c.servers)) {
		if err := c.conn.Invoke(ctx, visitMethod, &wrapperspb.StringValue{}, &wrapperspb.BytesValue{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	c.seen.Store(0)
}

func (c *cluster) storeService(replica string, serve serveFunc) *grpc.ServiceDesc {
	var visit sync.Once
	return &grpc.ServiceDesc{
		ServiceName: "hedged.test.Store",
		Methods: []grpc.MethodDesc{{
			MethodName: "Get",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := decode(&wrapperspb.StringValue{}); err != nil {
					return nil, err
				}
				md, _ := metadata.FromIncomingContext(ctx)
				data, err := serve(ctx, replica, len(md[hedgedAttemptKey]) > 0)
				return wrapperspb.Bytes(data), err
			},
		}, {
			MethodName: "Visit",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				visit.Do(func() { c.visited.Add(1) })
				return wrapperspb.Bytes(nil), decode(&wrapperspb.StringValue{})
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName:    "List",
			ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
					return err
				}
				md, _ := metadata.FromIncomingContext(stream.Context())
				return c.list(stream, replica, len(md[hedgedAttemptKey]) > 0)
			},
		}, {
			StreamName:    "Put",
			ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				for {
					if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
						time.Sleep(20 * time.Millisecond) // twice testPolicy's delay
						return stream.SendMsg(wrapperspb.Bytes([]byte(replica)))
					}
				}
			},
		}},
	}
}

// headerCounter counts what servers see, as a server must: by a stats handler.
type headerCounter struct{ c *cluster }

func (h headerCounter) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		h.c.seen.Add(1)
		if len(in.Header[hedgedAttemptKey]) > 0 {
			h.c.hedges.Add(1)
		}
		select {
		case h.c.header <- struct{}{}:
		default:
		}
	}
}
func (headerCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (headerCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (headerCounter) HandleConn(context.Context, stats.ConnStats)                       {}

// callThrough makes one call and lets before see each attempt on its way to the network.
func (n *stub) callThrough(ctx context.Context, before func(ctx context.Context, index int), invoke grpc.UnaryInvoker) (string, error) {
	reply := &wrapperspb.StringValue{}
	err := n.unary(ctx, testMethod, wrapperspb.String("key"), reply, nil,
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			before(ctx, ctx.(*attempt).index)
			return invoke(ctx, method, req, reply, cc, opts...)
		})
	return reply.Value, err
}

// drained returns how many samples a recorder holds, and empties it.
func drained(r *estimator.Recorder) uint64 {
	var h estimator.Histogram
	r.Drain(&h)
	return h.Count()
}
