package integration_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/client"
	demov1 "github.com/hedged-project/hedged/internal/demo/proto/hedged/demo/v1"
	"github.com/hedged-project/hedged/policy"
)

const getUser = demov1.UserService_GetUser_FullMethodName

// fleet is three gRPC replicas in this process, on loopback. They answer in 5 to
// 15 ms, and stall for 300 ms on one call in 50.
type fleet struct {
	service string
	names   []string
	addrs   []string
	factor  atomic.Uint64 // bits of a float64: slower than that by this factor
}

// startFleet starts the replicas of a service.
func startFleet(t *testing.T, service string) *fleet {
	t.Helper()
	f := &fleet{service: service}
	f.slowDown(1)
	for _, name := range []string{"replica-a", "replica-b", "replica-c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.names, f.addrs = append(f.names, name), append(f.addrs, l.Addr().String())
		server := grpc.NewServer()
		demov1.RegisterUserServiceServer(server, &replica{fleet: f, name: name})
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		t.Cleanup(func() {
			server.Stop()
			serving.Wait()
		})
	}
	return f
}

func (f *fleet) slowDown(factor float64) { f.factor.Store(math.Float64bits(factor)) }

type replica struct {
	demov1.UnimplementedUserServiceServer
	fleet *fleet
	name  string
}

func (r *replica) GetUser(ctx context.Context, req *demov1.GetUserRequest) (*demov1.GetUserResponse, error) {
	latency := 5*time.Millisecond + rand.N(10*time.Millisecond)
	if rand.N(50) == 0 {
		latency = 300 * time.Millisecond
	}
	timer := time.NewTimer(time.Duration(float64(latency) * math.Float64frombits(r.fleet.factor.Load())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return &demov1.GetUserResponse{Id: req.GetId(), Replica: r.name}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// caller is a client of a fleet: the library as an application uses it, which
// knows of the daemon only an address.
type caller struct {
	client *client.Client
	users  demov1.UserServiceClient

	mu       sync.Mutex
	policies []policy.Policy // that came into force, in order
	times    []time.Time     // when
}

func (f *fleet) call(t *testing.T, daemonAddr, id string) *caller {
	t.Helper()
	c := &caller{}
	var err error
	c.client, err = client.New(client.Options{Daemon: daemonAddr, ID: id, OnPolicy: func(p policy.Policy) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.policies, c.times = append(c.policies, p), append(c.times, time.Now())
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.Close() }) // the daemon may be gone
	r := manual.NewBuilderWithScheme("fleet")
	var endpoints []resolver.Endpoint
	for i, addr := range f.addrs {
		endpoints = append(endpoints, resolver.Endpoint{
			Addresses:  []resolver.Address{{Addr: addr}},
			Attributes: attributes.New(client.ReplicaAttribute, f.names[i]),
		})
	}
	r.InitialState(resolver.State{Endpoints: endpoints})
	conn, err := grpc.NewClient("fleet:///"+f.service, c.client.DialOptions(f.service,
		grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.users = demov1.NewUserServiceClient(conn)
	return c
}

// load keeps calls in flight until the function that it returns is called, which
// returns how many there were and the first that failed.
func (c *caller) load(t *testing.T, inFlight int) (end func() (calls int, failed error)) {
	t.Helper()
	var stop atomic.Bool
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	for range inFlight {
		callers.Go(func() {
			for !stop.Load() {
				if _, err := c.users.GetUser(context.Background(), &demov1.GetUserRequest{}, grpc.WaitForReady(true)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				calls.Add(1)
			}
		})
	}
	end = func() (int, error) {
		stop.Store(true)
		callers.Wait()
		if err := failed.Load(); err != nil {
			return int(calls.Load()), *err
		}
		return int(calls.Load()), nil
	}
	t.Cleanup(func() { _, _ = end() })
	return end
}

func (c *caller) stats() client.ServiceStats { return c.client.Stats()[0] }

// applied returns the policies that came into force, and when.
func (c *caller) applied() ([]policy.Policy, []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.policies), slices.Clone(c.times)
}

// hedging reports whether the client has a policy by which it hedges.
func (c *caller) hedging() bool {
	st := c.stats()
	return st.Mode == policy.ModeActive && st.Delay[getUser] > 0
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for begun := time.Now(); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("after %v still not so: %s", patience, what)
		}
	}
}
