package client

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// counted serves one method through the server counter and returns a stub for it.
type counted struct {
	healthv1.UnimplementedHealthServer
	handle func(context.Context) error
}

func (s *counted) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return &healthv1.HealthCheckResponse{}, s.handle(ctx)
}

const check = "/grpc.health.v1.Health/Check"

func serveCounted(t *testing.T, c *Client, handle func(context.Context) error) healthv1.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(c.ServerOption("orders", "replica-1"))
	healthv1.RegisterHealthServer(server, &counted{handle: handle})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	conn, err := grpc.NewClient("passthrough:///orders",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return healthv1.NewHealthClient(conn)
}

func TestServerCountsAttemptsAndWaste(t *testing.T) {
	obeys := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	ignores := func(ctx context.Context) error { time.Sleep(time.Second); return nil }
	hedge := metadata.Pairs("hedged-attempt", "1")
	for _, c := range []struct {
		name              string
		handle            func(context.Context) error
		header            metadata.MD
		cancel, deadline  time.Duration
		hedges, cancelled uint64
		wasted            time.Duration
	}{
		{name: "answered", handle: func(context.Context) error { return nil }},
		{name: "failed", handle: func(context.Context) error { return status.Error(codes.Internal, "no") }},
		{name: "a hedge", handle: func(context.Context) error { return nil }, header: hedge, hedges: 1},
		{name: "cancelled", handle: obeys, cancel: 30 * time.Millisecond, cancelled: 1, wasted: 30 * time.Millisecond},
		{name: "a cancelled hedge", handle: obeys, header: hedge, cancel: 30 * time.Millisecond, hedges: 1, cancelled: 1, wasted: 30 * time.Millisecond},
		{name: "cancelled, and the handler goes on", handle: ignores, cancel: 30 * time.Millisecond, cancelled: 1, wasted: time.Second},
		{name: "the handler's own cancellation", handle: func(context.Context) error { return status.Error(codes.Canceled, "downstream") }},
		{name: "deadline", handle: obeys, deadline: 30 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClient(t, startFake(t).options())
				stub := serveCounted(t, client, c.handle)
				ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(t.Context(), c.header))
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				if c.deadline > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, c.deadline)
					defer stop()
				}
				_, _ = stub.Check(ctx, &healthv1.HealthCheckRequest{}) // the outcome is the case's
				time.Sleep(2 * time.Second)
				synctest.Wait()
				got := client.ServerStats()[0]
				if got.Key != orders || got.Replica != "replica-1" {
					t.Errorf("stats are of %v on %q", got.Key, got.Replica)
				}
				if got.Attempts != 1 || got.Hedges != c.hedges || got.Cancelled != c.cancelled || got.Wasted != c.wasted {
					t.Errorf("counted %+v, want 1 attempt, %d hedges, %d cancelled, %v wasted", got.Served, c.hedges, c.cancelled, c.wasted)
				}
			})
		})
	}
}

// A process that only serves needs no service of its own: its counts go out on
// a stream of their own, whose source is the replica.
func TestServerReportsAsItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		c := newClient(t, d.options())
		stub := serveCounted(t, c, func(context.Context) error { return nil })
		for range 5 {
			if _, err := stub.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if len(d.sources) != 1 || d.sources[0].Kind != hedgedv1.SourceKind_SOURCE_KIND_SERVER || d.sources[0].Replica != "replica-1" {
			t.Fatalf("sources are %v, want the replica alone", d.sources)
		}
		var attempts uint64
		for _, f := range d.reported() {
			if f.Service != "default/orders" {
				t.Errorf("frame is of %q", f.Service)
			}
			attempts += f.Methods[check].GetServer().GetAttempts()
		}
		if attempts != 5 {
			t.Errorf("%d attempts were reported, want 5", attempts)
		}
		if asked := d.requests(); len(asked) != 0 {
			t.Errorf("a server asked for policies: %v", asked)
		}
	})
}

func TestServerKeepsABoundedNumberOfMethods(t *testing.T) {
	c := &Client{servers: map[serverKey]*server{}}
	s := c.server(serverKey{orders, "replica-1"})
	for i := range 3 * maxMethods {
		s.method("/made.Up/" + strings.Repeat("x", i%200) + string(rune('a'+i/200))).attempts.Add(1)
	}
	if got := len(*s.methods.Load()); got > maxMethods {
		t.Errorf("%d methods are kept, want at most %d", got, maxMethods)
	}
	if got := s.stats().Attempts; got != 3*maxMethods {
		t.Errorf("%d attempts are counted, want %d", got, 3*maxMethods)
	}
}

func TestServerOptionPanicsOnABadName(t *testing.T) {
	c := &Client{servers: map[serverKey]*server{}}
	for _, names := range [][2]string{{"", "a"}, {"orders", ""}, {"orders", strings.Repeat("a", policy.MaxNameLen+1)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("service %q, replica %.10q: no panic", names[0], names[1])
				}
			}()
			c.ServerOption(names[0], names[1])
		}()
	}
}
