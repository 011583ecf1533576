package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hedged-project/hedged/policy"
)

func TestNewNamesTheOptionThatIsWrong(t *testing.T) {
	long := strings.Repeat("x", policy.MaxNameLen+1)
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, "Daemon: is empty"},
		{Options{Daemon: "127.0.0.1:7946", Controller: &daemon{}}, `Daemon: "127.0.0.1:7946" is given beside Controller`},
		{Options{Daemon: "127.0.0.1:7946", ID: long}, "ID: "},
		{Options{Daemon: "127.0.0.1:7946", ID: "a\nb"}, "unprintable"},
		{Options{Daemon: "127.0.0.1:7946", Zone: long}, "Zone: "},
		{Options{Daemon: "127.0.0.1:7946", Hedgeable: []string{"/a.B/C", "Get"}}, `Hedgeable[1]: "Get", want "/package.Service/Method"`},
		{Options{Daemon: "127.0.0.1:7946", Hedgeable: []string{"/a.B/C/D"}}, "Hedgeable[0]"},
		{Options{Daemon: "nosuch://\x7f"}, `daemon "nosuch://\x7f"`},
	} {
		client, err := New(c.options)
		if err == nil {
			_ = client.Close()
			t.Errorf("%+v: no error, want one that says %q", c.options, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "client: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %q, want it to say %q", err, c.want)
		}
	}
}

func TestTwoClientsWithoutAnIDDiffer(t *testing.T) {
	var a, b Options
	a.Daemon, b.Daemon = "a", "b"
	if err := a.complete(); err != nil {
		t.Fatal(err)
	}
	if err := b.complete(); err != nil {
		t.Fatal(err)
	}
	if a.ID == b.ID {
		t.Errorf("both are called %q", a.ID)
	}
}

func TestInvalidServiceFailsTheDialAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, startFake(t).options())
		conn, err := grpc.NewClient("passthrough:///orders", c.DialOptions("", grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err == nil {
			_ = conn.Close()
			t.Fatal("a connection without a service name was made")
		}
		if !strings.Contains(err.Error(), "service: is empty") {
			t.Errorf("error is %q, want it to say that the service is empty", err)
		}
	})
}

func TestConnectionsToOneServiceShareItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, startFake(t).options())
		for _, name := range []string{"orders", "default/orders", "shop/orders"} {
			conn, err := grpc.NewClient("passthrough:///orders", c.DialOptions(name, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		stats := c.Stats()
		if len(stats) != 2 || stats[0].Key != orders || stats[1].Key.Tenant != "shop" {
			t.Errorf("services are %+v, want default/orders and shop/orders", stats)
		}
	})
}

// Hedges never depend on the daemon: a client starts, counts and closes without one.
func TestClientWorksWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		d.stop()
		c := newClient(t, d.options())
		s := c.service(orders)
		time.Sleep(time.Minute)
		s.noteCall(s.method(get), true)
		if got := c.Stats()[0]; got.Calls != 1 || !got.Generation.IsZero() || got.Mode != policy.ModeOff {
			t.Errorf("stats are %+v, want one call and no policy", got)
		}
		d.start()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		d.pushPolicy(activePolicy(1))
		synctest.Wait()
		if number(s) != 1 {
			t.Error("the client did not find the daemon that came up later")
		}
	})
}

func TestStatsShowThePolicyInForce(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		s.noteCall(s.method(get), true)
		p := activePolicy(1)
		p.Methods = map[string]policy.Method{get: {Delay: 20 * time.Millisecond, Probability: 1, MaxAttempts: 2}}
		d.pushPolicy(p)
		synctest.Wait()
		burst := activePolicy(2)
		burst.Methods, burst.Budget.Burst = p.Methods, 20
		d.pushPolicy(burst)
		synctest.Wait()
		got := c.Stats()[0]
		if got.Generation != burst.Generation || got.Mode != policy.ModeActive || got.Delay[get] != 20*time.Millisecond ||
			got.Applied != 2 || got.Delays != 1 || got.Tokens != 5 || got.Method[get].Calls != 1 {
			t.Errorf("stats are %+v", got)
		}
	})
}
