package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// fleet is several fake daemons, and the options of a client of all of them.
func fleet(t *testing.T, names ...string) (map[string]*fakeDaemon, Options) {
	daemons := map[string]*fakeDaemon{}
	var addresses []string
	for _, name := range names {
		daemons[name] = startFake(t)
		addresses = append(addresses, "passthrough:///"+name)
	}
	o := Options{Daemon: strings.Join(addresses, ", "), ID: "client-1"}
	o.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		var listener *bufconn.Listener
		if d := daemons[address]; d != nil {
			d.mu.Lock()
			listener = d.listener
			d.mu.Unlock()
		}
		if listener == nil {
			return nil, errors.New("connection refused")
		}
		return listener.DialContext(ctx)
	})}
	return daemons, o
}

func (d *fakeDaemon) hasStream() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.streams) > 0
}

// Of several daemons a client talks to one, and goes on to the next when that one
// is away, within seconds and without a word lost.
func TestSeveralDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daemons, o := fleet(t, "a", "b", "c")
		c := newClient(t, o)
		s := c.service(orders)
		up := func() (name string) {
			synctest.Wait()
			for n, d := range daemons {
				if d.listener != nil && d.hasStream() {
					if name != "" {
						t.Errorf("streams to %s and %s", name, n)
					}
					name = n
				}
			}
			return name
		}
		var sent uint64
		for i := range 10 {
			time.Sleep(5 * time.Second)
			home := up()
			if home == "" {
				t.Fatalf("turn %d: no stream to any daemon", i)
			}
			p := activePolicy(uint64(i + 1))
			daemons[home].pushPolicy(p)
			synctest.Wait()
			if number(s) != uint64(i+1) {
				t.Fatalf("turn %d: policy %d is in force", i, number(s))
			}
			s.noteCall(s.method(get), true)
			sent++
			time.Sleep(2 * time.Second)
			daemons[home].stop()
			time.Sleep(10 * time.Second)
			daemons[home].start()
		}
		var seen uint64
		for _, d := range daemons {
			seen += calls(d.reported(), get)
		}
		if seen != sent {
			t.Errorf("%d calls were reported, want %d", seen, sent)
		}
	})
}

// The reports of a service go to the daemon that owns it, under numbers of that
// stream's own, each to one daemon; other services' stay. When the owner is away
// they go home again, and what is lost is said.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daemons, o := fleet(t, "home", "owner")
		o.Daemon = "passthrough:///home"
		home, owner := daemons["home"], daemons["owner"]
		var owned atomic.Bool
		var turnedAway atomic.Uint64
		owned.Store(true)
		home.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
			r := &hedgedv1.ReportResponse{Acknowledged: f.Sequence}
			if f.Service == orders.String() && owned.Load() {
				r.Redirect = "passthrough:///owner"
				turnedAway.Add(calls([]*hedgedv1.Frame{f}, get))
			}
			return r, nil
		})
		c := newClient(t, o)
		s := c.service(orders)
		billing := c.service(policy.Key{Tenant: policy.DefaultTenant, Service: "billing"})
		load := func(seconds int) {
			for range seconds {
				s.noteCall(s.method(get), true)
				billing.noteCall(billing.method(get), true)
				time.Sleep(time.Second)
			}
		}
		load(10)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		of := func(d *fakeDaemon, service string) (n uint64, last uint64) {
			for _, f := range d.reported() {
				if f.Sequence <= last {
					t.Errorf("frame %d came after %d", f.Sequence, last)
				}
				last = f.Sequence
				if f.Service == service {
					n += calls([]*hedgedv1.Frame{f}, get)
				}
			}
			return n, last
		}
		if n, _ := of(owner, orders.String()); n != 10 {
			t.Errorf("the owner got %d calls, want all 10", n)
		}
		if n, _ := of(owner, "default/billing"); n != 0 {
			t.Errorf("the owner got %d calls of another service", n)
		}
		if n, _ := of(home, "default/billing"); n != 10 {
			t.Errorf("home got %d calls of billing, want 10", n)
		}

		owned.Store(false)
		owner.stop()
		load(10)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		var dropped uint64
		for _, f := range home.reported() {
			dropped += f.Dropped
		}
		atHome, _ := of(home, orders.String())
		atOwner, _ := of(owner, orders.String())
		if took := atHome - turnedAway.Load(); took+atOwner+dropped != 20 || took < 8 || turnedAway.Load() > 2 {
			t.Errorf("home took %d calls, the owner %d, %d are said to be lost; want 20 in all", took, atOwner, dropped)
		}
	})
}

// Daemons that send a service round in a circle, or somewhere that is no address,
// cost its reports, which is said, and nothing else.
func TestRedirectsThatLeadNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daemons, o := fleet(t, "home", "other")
		o.Daemon = "passthrough:///home"
		var to atomic.Pointer[string]
		other := "passthrough:///other"
		to.Store(&other)
		for name, d := range daemons {
			d.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
				r := &hedgedv1.ReportResponse{Acknowledged: f.Sequence, Redirect: *to.Load()}
				if name == "other" {
					r.Redirect = "passthrough:///home"
				}
				return r, nil
			})
		}
		c := newClient(t, o)
		s := c.service(orders)
		for i := range 200 {
			if i > 100 {
				bad := fmt.Sprintf("%300d", i)
				to.Store(&bad)
			}
			s.noteCall(s.method(get), true)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		d := c.controller.(*daemon)
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.conns) > 3 || len(d.boxes) > 4 {
			t.Errorf("%d connections and %d boxes, want few", len(d.conns), len(d.boxes))
		}
		var dropped uint64
		for _, f := range append(daemons["home"].reported(), daemons["other"].reported()...) {
			dropped += f.Dropped
		}
		if dropped < 150 {
			t.Errorf("%d calls are said to be lost, want most of 200", dropped)
		}
	})
}
