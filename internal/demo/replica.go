package demo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/client"
	demov1 "github.com/hedged-project/hedged/internal/demo/proto/hedged/demo/v1"
	"github.com/hedged-project/hedged/report"
)

// The article's service: "each answering in 5 to 15 ms but stalling for one
// second on 1 call in 100".
const (
	fastest    = 5 * time.Millisecond
	slowest    = 15 * time.Millisecond
	stall      = time.Second
	stallShare = 0.01
	nReplicas  = 3
)

const getUser = demov1.UserService_GetUser_FullMethodName

// replica is one server of the service.
type replica struct {
	demov1.UnimplementedUserServiceServer

	name   string
	addr   string
	server *grpc.Server
	factor atomic.Uint64 // bits of a float64: its latency is this many times the normal one
	fails  atomic.Uint64 // likewise: the share of its attempts that fail, at once
	shared atomic.Bool   // a call that stalls does on every replica

	calls atomic.Uint64

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// GetUser answers after a while, or stops when nobody waits any more.
func (r *replica) GetUser(ctx context.Context, req *demov1.GetUserRequest) (*demov1.GetUserResponse, error) {
	r.calls.Add(1)
	latency, fails := r.fate(req.GetId())
	if fails {
		return nil, status.Error(codes.Unavailable, "out of order")
	}
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &demov1.GetUserResponse{Id: req.GetId(), Replica: r.name}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// fate is how long an attempt takes, and whether it fails.
func (r *replica) fate(call uint64) (latency time.Duration, fails bool) {
	r.mu.Lock()
	d := fastest + time.Duration(r.rng.Float64()*float64(slowest-fastest))
	stalls := r.rng.Float64() < stallShare
	fails = r.rng.Float64() < math.Float64frombits(r.fails.Load())
	r.mu.Unlock()
	if r.shared.Load() {
		stalls = rand.New(rand.NewPCG(call, 0)).Float64() < stallShare
	}
	if stalls {
		d = stall
	}
	return time.Duration(float64(d) * math.Float64frombits(r.factor.Load())), fails
}

// seen returns how many calls have reached the handler.
func (r *replica) seen() uint64 { return r.calls.Load() }

func (r *replica) slowDown(factor float64) { r.factor.Store(math.Float64bits(factor)) }

// fleet is the replicas of one service, which count what they see.
type fleet struct {
	service  string
	replicas []*replica
	counter  *client.Client
	serving  sync.WaitGroup
}

// startFleet starts replicas that report their counts to the daemon.
func startFleet(daemonAddr, service string, seed uint64) (*fleet, error) {
	counter, err := client.New(client.Options{Daemon: daemonAddr, ID: service + "-servers"})
	if err != nil {
		return nil, fmt.Errorf("server counter: %w", err)
	}
	f := &fleet{service: service, counter: counter}
	for i := range nReplicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.close()
			return nil, fmt.Errorf("replica: %w", err)
		}
		r := &replica{
			name: fmt.Sprintf("replica-%c", 'a'+i),
			addr: l.Addr().String(),
			rng:  rand.New(rand.NewPCG(seed, uint64(i))),
		}
		r.slowDown(1)
		r.server = grpc.NewServer(counter.ServerOption(service, r.name))
		demov1.RegisterUserServiceServer(r.server, r)
		f.replicas = append(f.replicas, r)
		f.serving.Go(func() { _ = r.server.Serve(l) }) // ends by drain; a failure shows as failed calls
	}
	return f, nil
}

// dial connects a client to the fleet and waits until the connection is up.
func (f *fleet) dial(ctx context.Context, c *client.Client) (*grpc.ClientConn, error) {
	r := manual.NewBuilderWithScheme("demo")
	var endpoints []resolver.Endpoint
	for _, rep := range f.replicas {
		endpoints = append(endpoints, resolver.Endpoint{
			Addresses:  []resolver.Address{{Addr: rep.addr}},
			Attributes: attributes.New(client.ReplicaAttribute, rep.name),
		})
	}
	r.InitialState(resolver.State{Endpoints: endpoints})
	conn, err := grpc.NewClient("demo:///"+f.service, append(c.DialOptions(f.service),
		grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", f.service, err)
	}
	conn.Connect()
	return conn, nil
}

// slowDown makes every replica slower by a factor.
func (f *fleet) slowDown(factor float64) {
	for _, r := range f.replicas {
		r.slowDown(factor)
	}
}

// fail makes a share of all attempts fail.
func (f *fleet) fail(share float64) {
	for _, r := range f.replicas {
		r.fails.Store(math.Float64bits(share))
	}
}

// share makes the calls that stall do so on every replica, or no more.
func (f *fleet) share(on bool) {
	for _, r := range f.replicas {
		r.shared.Store(on)
	}
}

// served adds up what the replicas counted.
func (f *fleet) served() report.Served {
	var sum report.Served
	for _, s := range f.counter.ServerStats() {
		sum.Add(s.Served)
	}
	return sum
}

// drain ends the servers once each has seen all that was sent to it. Its
// clients' connections are closed already; after it, served is final.
func (f *fleet) drain() {
	for _, r := range f.replicas {
		r.server.GracefulStop()
	}
	f.serving.Wait()
}

func (f *fleet) close() {
	f.drain()
	f.counter.Close()
}
