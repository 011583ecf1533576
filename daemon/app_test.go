package daemon

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/policy"
)

// app is an application: three replicas of orders and one client with the real
// library, whose calls take latency, and a stall of stalled on one call in 50.
type app struct {
	t       *testing.T
	client  *client.Client
	conn    *grpc.ClientConn
	latency atomic.Int64
	stalled time.Duration
	served  atomic.Int64
	stop    []func()

	mu       sync.Mutex
	policies []policy.Policy // as they came into force
}

func (w *world) app(id string) *app {
	a := &app{t: w.t, stalled: time.Second}
	a.latency.Store(int64(10 * time.Millisecond))
	addrs := map[string]*bufconn.Listener{}
	var endpoints []resolver.Endpoint
	for i := range 3 {
		addr := fmt.Sprintf("replica-%d:80", i)
		l := bufconn.Listen(1 << 16)
		addrs[addr] = l
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: addr}}})
		g := grpc.NewServer(grpc.UnknownServiceHandler(a.serve))
		go func() { _ = g.Serve(l) }() // ends with Stop
		a.stop = append(a.stop, g.Stop)
	}
	c, err := client.New(client.Options{
		Daemon:      "passthrough:///hedged",
		ID:          id,
		Hedgeable:   []string{get},
		DialOptions: w.dialOptions(),
		OnPolicy: func(p policy.Policy) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.policies = append(a.policies, p)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	a.client = c
	r := manual.NewBuilderWithScheme("orders")
	r.InitialState(resolver.State{Endpoints: endpoints})
	a.conn, err = grpc.NewClient("orders:///", c.DialOptions("orders",
		grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return addrs[addr].DialContext(ctx) }),
	)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// serve answers any unary method.
func (a *app) serve(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	d := time.Duration(a.latency.Load())
	if n := a.served.Add(1); n%50 == 0 {
		d = a.stalled
	} else {
		d += d * time.Duration(n%7) / 10
	}
	select {
	case <-time.After(d):
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	return stream.SendMsg(&emptypb.Empty{})
}

// load makes so many calls a second for so long, and waits for their ends.
func (a *app) load(perSecond int, long time.Duration) {
	a.t.Helper()
	var calls sync.WaitGroup
	for range int(long.Seconds() * float64(perSecond)) {
		calls.Go(func() {
			if err := a.conn.Invoke(context.Background(), get, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
				a.t.Errorf("call: %v", err)
			}
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	calls.Wait()
}

// inForce returns how many policies came into force, and the last of them.
func (a *app) inForce() (n int, p policy.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.policies) == 0 {
		return 0, p
	}
	return len(a.policies), a.policies[len(a.policies)-1]
}

func (a *app) close() {
	_ = a.conn.Close()
	if err := a.client.Close(); err != nil {
		a.t.Error(err)
	}
	for _, stop := range a.stop {
		stop()
	}
}
