package client

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/xds"
)

// The subscriber against the daemon's own xDS server: a policy that is there
// before, one that comes later, one that is refused, a removal, and back.
func TestSubscriberAgainstTheXDSServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cache := xds.NewCache(wire.ServicePolicyType)
		service := xds.NewServer(ctx, cache, xds.Options{})
		server := grpc.NewServer(grpc.ForceServerCodecV2(xds.Codec()))
		service.Register(server)
		listener := bufconn.Listen(1 << 16)
		go func() { _ = server.Serve(listener) }() // ends with Stop
		t.Cleanup(func() {
			cancel()
			server.Stop()
			service.Wait()
		})
		publish := func(p *policy.Policy) {
			t.Helper()
			if err := cache.Set(wire.ServicePolicyType, p.Key.String(), wire.PolicyToProto(p, time.Now()), wire.PolicyVersion(p)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}

		first := activePolicy(1)
		publish(first)
		c := newClient(t, Options{
			Daemon: "passthrough:///daemon",
			ID:     "client-1",
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return listener.DialContext(ctx)
			})},
		})
		s := c.service(orders)
		billing := c.service(policy.Key{Tenant: policy.DefaultTenant, Service: "billing"})
		synctest.Wait()
		if number(s) != 1 {
			t.Errorf("policy %d is in force, want the one that was there", number(s))
		}

		later := activePolicy(1)
		later.Key.Service = "billing"
		publish(later)
		if number(billing) != 1 {
			t.Error("a policy that was created after it was asked for did not come")
		}

		bad := activePolicy(2)
		bad.Budget.Ratio = 2
		publish(bad)
		time.Sleep(time.Minute / 2)
		if number(s) != 1 {
			t.Errorf("policy %d is in force, want the last good one", number(s))
		}
		if got := service.Stats(); got.Nacks != 1 {
			t.Errorf("the server saw %d NACKs, want 1", got.Nacks)
		}

		cache.Delete(wire.ServicePolicyType, orders.String())
		synctest.Wait()
		if number(s) != 1 {
			t.Error("a removed policy was taken for off")
		}
		off := activePolicy(3)
		off.Mode = policy.ModeOff
		publish(off)
		if p := s.policy(); number(s) != 3 || p.Mode != policy.ModeOff {
			t.Errorf("in force is %+v, want policy 3, off", p)
		}
	})
}
