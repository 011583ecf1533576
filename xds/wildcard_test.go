package xds_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/hedged-project/hedged/xds"
)

// `there is also a "wildcard" subscription, which is triggered when subscribing to
// the special name "*"`: all there is, and then what changes, alone.
func TestDeltaWildcard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "x1")
		w.set("y", "y1")
		w.set("gone", "gone1")
		w.cache.Delete(color, "gone") // before the client could know it
		c := w.delta()
		c.subscribe("*")
		r := c.one()
		wantChange(t, r, []string{"x=x1", "y=y1"}, nil)
		c.ack(r)
		if s := w.state("*"); !s.Current || s.Acked == "" {
			t.Errorf("accepted, yet: %+v", s)
		}
		w.set("z", "z1")
		r = c.one()
		wantChange(t, r, []string{"z=z1"}, nil)
		w.set("x", "x2") // the gate is closed
		w.cache.Delete(color, "y")
		w.set("x", "x3")
		c.none()
		c.nack(r, "z is odd")
		if s := w.state("*"); s.Nack != "z is odd" || s.Current {
			t.Errorf("rejected, yet: %+v", s)
		}
		r = c.one()
		wantChange(t, r, []string{"x=x3"}, []string{"y"})
		c.ack(r)
		c.none()
		c.unsubscribe("*")
		c.none()
		w.set("x", "x4")
		c.none()
	})
}

// A wildcard that matches nothing is answered: that is all there is. Where nothing
// may be known yet, there is silence.
func TestWildcardOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.delta()
		c.subscribe("*")
		r := c.one()
		wantChange(t, r, nil, nil)
		c.ack(r)
		c.none()
		w.set("x", "x1")
		wantChange(t, c.one(), []string{"x=x1"}, nil)

		unknown := w.delta()
		unknown.send(&discovery.DeltaDiscoveryRequest{TypeUrl: cluster, ResourceNamesSubscribe: []string{"*"}})
		unknown.none()
		w.setType(cluster, "y", "y1")
		wantChange(t, unknown.one(), []string{"y=y1"}, nil)

		s := w.sotw()
		s.typeURL = "other"
		s.ask("", "", "*")
		s.none()
	})
}

// "if the client sends a request for a given resource type but has never explicitly
// subscribed to any resource names [...] the server should treat that identically to
// how it would treat the client having explicitly subscribed to "*". However, once
// the client does explicitly subscribe to a resource name [...] then this legacy
// semantic is no longer available". The two sequences are the specification's own.
func TestLegacyWildcard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("A", "A1")
		w.set("B", "B1")
		c := w.sotw()
		c.ask("", "") // "Server interprets this as a subscription to "*"."
		r := c.one()
		wantTexts(t, r, "A1", "B1")
		c.ack(r)
		c.none()
		c.ack(r, "*", "A") // "continuing the existing subscription to "*" and adding a new subscription to "A""
		r = c.one()
		wantTexts(t, r, "A1")
		c.ack(r, "*", "A")
		w.set("B", "B2")
		r = c.one()
		wantTexts(t, r, "B2")
		c.ack(r, "A") // "unsubscribing to "*" and continuing the existing subscription to "A""
		c.none()
		w.set("B", "B3")
		c.none()
		w.set("A", "A2")
		r = c.one()
		wantTexts(t, r, "A2")
		c.ack(r) // "the client has now unsubscribed to all resources"
		c.none()
		w.set("A", "A3")
		c.none()
	})
	bubble(t, func(t *testing.T, w *world) {
		w.set("A", "A1")
		w.set("B", "B1")
		c := w.delta()
		c.subscribe() // "Server interprets this as a subscription to "*"."
		r := c.one()
		wantChange(t, r, []string{"A=A1", "B=B1"}, nil)
		c.ack(r)
		c.none()
		c.subscribe("A") // "continuing the existing subscription to "*" and adding a new subscription to "A""
		r = c.one()
		wantChange(t, r, []string{"A=A1"}, nil)
		c.ack(r)
		w.set("B", "B2")
		r = c.one()
		wantChange(t, r, []string{"B=B2"}, nil)
		c.ack(r)
		c.unsubscribe("*") // "unsubscribing to "*" and continuing the existing subscription to "A""
		c.none()
		w.set("B", "B3")
		c.none()
		w.set("A", "A2")
		c.ack(c.one())
		c.unsubscribe("A") // "the client has now unsubscribed to all resources"
		c.none()
		w.set("A", "A3")
		c.none()
	})
}

// "other xDS clients (such as gRPC clients that use xDS) may explicitly subscribe to
// specific resource names": for them no names are none, even on a new stream.
func TestNoLegacyWildcardForGRPC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "x1")
		node := &corev3.Node{Id: "n1", UserAgentName: "gRPC C-core"}
		s, d := w.sotw(), w.delta()
		_ = s.stream.Send(&discovery.DiscoveryRequest{TypeUrl: color, Node: node})
		d.send(&discovery.DeltaDiscoveryRequest{Node: node})
		s.none()
		d.none()
		s.ask("", "", "x") // and without the node again
		wantTexts(t, s.one(), "x1")
	})
}

// A name that the wildcard covers too is told when it is unsubscribed: the client
// cannot know whether it is to keep the resource.
func TestUnsubscribedUnderTheWildcard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "x1")
		c := w.delta()
		c.subscribe("*", "x", "absent")
		r := c.one()
		wantChange(t, r, []string{"x=x1"}, []string{"absent"})
		c.ack(r)
		c.unsubscribe("x", "absent")
		r = c.one()
		wantChange(t, r, []string{"x=x1"}, []string{"absent"})
		c.ack(r)
		w.set("x", "x2")
		wantChange(t, c.one(), []string{"x=x2"}, nil)
	})
}

// "On reconnect the Incremental xDS client may tell the server of its known
// resources to avoid resending them".
func TestWildcardInitialVersions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, name := range []string{"same", "changed", "new", "deleted"} {
			w.set(name, "v2")
		}
		w.cache.Delete(color, "deleted")
		c := w.delta()
		c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"*"},
			InitialResourceVersions: map[string]string{"same": "v2", "changed": "v1", "deleted": "v1", "unknown": "v1"}})
		r := c.one()
		slices.Sort(r.RemovedResources)
		wantChange(t, r, []string{"changed=v2", "new=v2"}, []string{"deleted", "unknown"})
		c.ack(r)
		if s := w.state("*"); !s.Current {
			t.Errorf("%+v", s)
		}
		c.subscribe("*") // asked for again: "may have forgotten"
		r = c.one()
		if len(r.Resources) != 3 {
			t.Errorf("asked for again, got %v", r)
		}
	})
}

// What does not fit into one message of 4 MiB comes in several in delta, each once
// the one before was answered; nothing is left out or comes twice.
func TestDeltaIsSplit(t *testing.T) {
	for _, names := range [][]string{{"*"}, manyNames(30)} {
		bubble(t, func(t *testing.T, w *world) {
			for _, name := range manyNames(20) {
				if err := w.cache.SetBytes(color, name, make([]byte, 900<<10), "v1"); err != nil {
					t.Fatal(err)
				}
			}
			c := w.delta()
			c.subscribe(names...)
			got := map[string]int{}
			messages := 0
			for len(got) < 20 {
				r := c.one()
				messages++
				for _, res := range r.GetResources() {
					got[res.GetName()]++
				}
				c.ack(r)
			}
			if messages != 5 {
				t.Errorf("%d messages for 20 resources of 900 KiB, want 5", messages)
			}
			for name, n := range got {
				if n != 1 {
					t.Errorf("%s came %d times", name, n)
				}
			}
			if got := c.take(); len(got) > 1 || len(got) == 1 && len(got[0].GetResources()) > 0 {
				t.Errorf("more came: %v", got)
			}
		})
	}
}

// 50,000 long names, of which the client holds all but one when it comes back: its
// request takes more than one message, and what it holds is not sent again.
func TestManyLongNames(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const names, part = 50_000, 5_000
		name := func(i int) string { return fmt.Sprintf("%06d-%0230d", i, i) }
		for i := range names {
			w.set(name(i), "v1")
		}
		w.set(name(41_234), "v2")
		c := w.delta()
		for from := 0; from < names; from += part {
			req := &discovery.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{}}
			for i := from; i < from+part; i++ {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name(i))
				req.InitialResourceVersions[name(i)] = "v1"
			}
			c.send(req)
		}
		wantVersion(t, c.one(), name(41_234), "v2")
		clients := w.server.Clients()
		if len(clients) != 1 || len(clients[0].Resources) != names {
			t.Error("not all names are subscribed")
		}
		fresh := w.delta()
		for from := 0; from < names; from += part {
			req := &discovery.DeltaDiscoveryRequest{}
			for i := from; i < from+part; i++ {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name(i))
			}
			fresh.send(req)
		}
		fresh.take()
	})
}

// The connection of a type's own service asks for one type, which is implicit.
//
// "[the type URL] is implicit in requests made via singleton xDS APIs such as CDS,
// LDS, etc. but is required for ADS"
func TestATypesOwnService(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "x1")
		s := w.own("StreamColors")
		_ = s.SendMsg(&discovery.DiscoveryRequest{ResourceNames: []string{"x"}})
		var full discovery.DiscoveryResponse
		if err := s.RecvMsg(&full); err != nil {
			t.Fatal(err)
		}
		wantTexts(t, &full, "x1")
		d := w.own("DeltaColors")
		_ = d.SendMsg(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"x"}})
		var change discovery.DeltaDiscoveryResponse
		if err := d.RecvMsg(&change); err != nil {
			t.Fatal(err)
		}
		wantChange(t, &change, []string{"x=x1"}, nil)
		_ = d.SendMsg(&discovery.DeltaDiscoveryRequest{TypeUrl: cluster})
		if err := d.RecvMsg(&change); err == nil {
			t.Error("another type was accepted")
		}
		if clients := w.server.Clients(); len(clients) != 1 || clients[0].Kind != xds.SotW {
			t.Errorf("clients: %+v", clients)
		}
	})
}

// What stops or tightens does not wait for an answer to what was sent before, and
// is sent once; what loosens waits.
func TestUrgentContentDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "on 1")
		w.set("y", "on 1")
		c, s, all := w.delta(), w.sotw(), w.delta()
		c.subscribe("x", "y")
		s.ask("", "", "x", "y")
		all.subscribe("*")
		c.one() // none of them ever answers
		s.one()
		all.one()
		w.set("x", "on 2")
		for i := range 20 { // more than may wait for an answer
			off := fmt.Sprintf("off %d", i)
			w.setUrgent("x", off)
			wantChange(t, c.one(), []string{"x=" + off}, nil)
			wantTexts(t, s.one(), off)
			if r := all.one(); !slices.ContainsFunc(r.Resources, func(r *discovery.Resource) bool { return r.Version == off }) {
				t.Fatalf("the wildcard got %v, want %q among it", r, off)
			}
			w.setUrgent("x", off)
			w.set("y", off)
			w.set("y", "on 1")
			c.none()
			s.none()
			all.none()
		}
		w.set("x", "on 3")
		c.none()
	})
}

// The streams of a server that stops end one after the other, within the time that
// it was given, and are served until then.
func TestDrainIsSpread(t *testing.T) {
	bubbleWith(t, xds.Options{Drain: 2 * time.Second}, func(t *testing.T, w *world) {
		clients := make([]*deltaClient, 100)
		for i := range clients {
			clients[i] = w.delta()
			clients[i].subscribe("x")
		}
		for _, c := range clients {
			c.one()
		}
		w.stop()
		left := func() int { return len(w.server.Clients()) }
		for part, last := 1, 100; part <= 4; part++ {
			sleep(time.Second / 2)
			now := left()
			if ended := last - now; part < 4 && (ended < 5 || ended > 60) {
				t.Errorf("%d streams ended in part %d of 4 of the drain", ended, part)
			}
			last = now
		}
		sleep(1)
		if n := left(); n != 0 {
			t.Errorf("%d streams left after the drain", n)
		}
		w.server.Wait()
	})
}

// The time from a publish to the answer of its last client is measured.
func TestSpreadIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		quick, slow, all := w.delta(), w.sotw(), w.delta()
		quick.subscribe("x")
		slow.ask("", "", "x")
		all.subscribe("*")
		quick.ack(quick.one())
		quickAll := all.one()
		all.ack(quickAll)
		count := func() (n uint64) {
			for _, c := range w.server.Stats().Spread.Counts {
				n += c
			}
			return n
		}
		w.set("x", "v1")
		r := slow.one()
		quick.ack(quick.one())
		all.ack(all.one())
		sleep(7e8)
		if s := w.server.Stats(); count() != 0 || s.Unanswered != 7e8 {
			t.Errorf("before the last answer: %+v", s)
		}
		slow.ack(r, "x")
		quick.none()
		s := w.server.Stats()
		if i := slices.Index(s.Spread.Counts[:], 1); count() != 1 || xds.SpreadBounds[i] != 1e9 || s.Spread.Sum != 7e8 || s.Unanswered != 0 {
			t.Errorf("after the last answer: %+v", s)
		}
		w.set("followed by the wildcard only", "v1")
		all.ack(all.one())
		all.none()
		w.set("x", "v2") // its client goes without an answer
		slow.take()
		quick.ack(quick.one())
		all.ack(all.one())
		slow.quit()
		quick.none()
		if count() != 3 {
			t.Errorf("%d publishes have reached all who follow them, want 3: %+v", count(), w.server.Stats())
		}
		w.setType("nobody follows", "x", "v1")
		quick.none()
		if count() != 3 {
			t.Error("a publish that nobody follows counts")
		}
	})
}
