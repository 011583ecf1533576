package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A "removed" reply for a name that does not exist yet must not drop the watch:
// told absent, created and delivered, deleted and removed once, recreated and
// delivered.
//
// "When a resource subscribed to by a client does not exist, the server will
// send a DeltaDiscoveryResponse message that contains that resource's name in
// the removed_resources field." And: "Management servers must remember the set
// of resources being requested by the client, and if one of those resources
// springs into existence later, the server must send an update".
func TestDeltaAbsentNameIsToldAndRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.delta()
		c.subscribe("x")
		r := c.one()
		wantChange(t, r, nil, []string{"x"})
		c.ack(r)
		c.none()

		w.set("x", "v1")
		r = c.one()
		wantChange(t, r, []string{"x=v1"}, nil)
		c.ack(r)

		w.cache.Delete(color, "x")
		r = c.one()
		wantChange(t, r, nil, []string{"x"})
		c.ack(r)
		w.cache.Delete(color, "x")
		c.none()

		w.set("x", "v2")
		wantChange(t, c.one(), []string{"x=v2"}, nil)
	})
}

// "A resource_names_subscribe field may contain resource names that the server
// believes the client is already subscribed to, and furthermore has the most
// recent versions of. However, the server must still provide those resources in
// the response".
func TestDeltaResubscriptionIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		c := w.delta()
		for range 3 {
			c.subscribe("x", "absent")
			r := c.one()
			wantChange(t, r, []string{"x=v1"}, []string{"absent"})
			c.ack(r)
			c.none()
		}
	})
}

// Subscribed, dropped and subscribed again: delivered again, and followed again.
func TestDeltaSubscribedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		c := w.delta()
		for i := range 3 {
			c.subscribe("x")
			r := c.one()
			wantChange(t, r, []string{fmt.Sprintf("x=v%d", i+1)}, nil)
			c.ack(r)
			c.unsubscribe("x")
			c.none()
			w.set("x", fmt.Sprintf("v%d", i+2))
			c.none()
		}
	})
}

// "In most cases, a server does not need to send any response if a request does
// nothing except unsubscribe"; "it can simply ignore these phantom
// unsubscriptions."
func TestDeltaUnsubscribedNameIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		w.set("y", "v1")
		c := w.delta()
		c.subscribe("x", "y")
		c.ack(c.one())
		c.unsubscribe("x", "phantom")
		c.none()
		w.set("x", "v2")
		c.none()
		w.set("y", "v2")
		wantChange(t, c.one(), []string{"y=v2"}, nil)
	})
}

// "On reconnect the Incremental xDS client may tell the server of its known
// resources to avoid resending them over the network by sending them in
// initial_resource_versions."
func TestDeltaInitialVersionsAreNotSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("same", "v1")
		w.set("changed", "v2")
		c := w.delta()
		c.send(&discovery.DeltaDiscoveryRequest{
			ResourceNamesSubscribe: []string{"same", "changed", "new", "gone"},
			InitialResourceVersions: map[string]string{
				"same": "v1", "changed": "v1", "gone": "v1", "no longer wanted": "v1",
			},
		})
		wantChange(t, c.one(), []string{"changed=v2"}, []string{"gone", "new"})
		if s := w.state("same"); s.Acked != "v1" || !s.Current {
			t.Errorf("what the client says it holds counts as accepted and current, got %+v", s)
		}
		w.set("same", "v2")
		c.none() // the gate is closed
	})
}

// "The nonce may be used to correlate an ack/nack with a server response, but
// should not be used to reject stale requests."
func TestDeltaStaleNonceKeepsSubscription(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("a", "v1")
		w.set("b", "v1")
		c := w.delta()
		c.subscribe("a")
		first := c.one()
		c.ack(first)
		w.set("a", "v2")
		second := c.one()

		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: first.GetNonce(), ResourceNamesSubscribe: []string{"b"}})
		wantChange(t, c.one(), []string{"b=v1"}, nil)
		if s := w.state("a"); s.Acked != "v1" {
			t.Errorf("a stale nonce was credited to the newer version: %+v", s)
		}
		c.ack(second)
		if s := w.state("a"); s.Acked != "v2" || !s.Current {
			t.Errorf("an answer to its own response counts: %+v", s)
		}
	})
}

// A rejected resource is not sent again before its content changes, then at
// once; the rejection is visible, and a good version after a bad one clears it.
func TestDeltaNackIsSilentUntilContentChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "good 1")
		c := w.delta()
		c.subscribe("x")
		c.ack(c.one())
		for _, step := range []struct{ bad, good string }{{"bad 1", "good 1"}, {"bad 1", "good 2"}, {"bad 2", "good 1"}} {
			w.set("x", step.bad)
			r := c.one()
			w.set("x", "good 3")
			w.set("x", step.bad) // by the time of the answer it is what is rejected
			c.nack(r, "delay: is negative")
			c.none()
			w.set("y", "other")
			w.set("x", step.bad)
			c.none()
			if s := w.state("x"); s.Sent != step.bad || s.Acked == step.bad || s.Current || s.Nack != "delay: is negative" || s.Time.IsZero() {
				t.Errorf("the rejection is not visible: %+v", s)
			}
			w.set("x", step.good)
			r = c.one()
			wantChange(t, r, []string{"x=" + step.good}, nil)
			c.ack(r)
			if s := w.state("x"); s.Acked != step.good || !s.Current || s.Nack != "" {
				t.Errorf("accepted after a rejection: %+v", s)
			}
		}
		if s := w.server.Stats(); s.Nacks != 3 || s.Acks != 4 || s.Responses != 7 || s.OpenDelta != 1 || s.OpenSotW != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// A response that is not answered holds back pushes, and they coalesce.
func TestDeltaPushesWaitForTheAnswerAndCoalesce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v0")
		c := w.delta()
		c.subscribe("x")
		r := c.one()
		for i := range 100 {
			w.set("x", fmt.Sprintf("v%d", i+1))
			c.none()
		}
		c.ack(r)
		c.ack(r) // a second time: no matter
		r = c.one()
		wantChange(t, r, []string{"x=v100"}, nil)
		w.set("x", "v101")
		w.set("x", "v100") // back to what was sent
		c.ack(r)
		c.none()
	})
}

// More content than one message takes goes in several.
func TestDeltaSplitsLargeReplies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var names []string
		for i := range 9 {
			names = append(names, fmt.Sprintf("n%d", i))
			w.set(names[i], "v")
			if err := w.cache.SetBytes(color, names[i], make([]byte, 1<<20), "big"); err != nil {
				t.Fatal(err)
			}
		}
		c := w.delta()
		c.subscribe(names...)
		total := 0
		for total < len(names) {
			r := c.one()
			total += len(r.GetResources())
			c.ack(r)
		}
		c.none()
	})
}

// "An unknown type" belongs to somebody else, perhaps a newer client: it gets
// no answer and disturbs no other type on the stream.
func TestUnknownTypeWaitsInSilence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const shape = "type.googleapis.com/test.Shape"
		w.set("x", "v1")
		c, s := w.delta(), w.sotw()
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: shape, ResourceNamesSubscribe: []string{"x", "y"},
			InitialResourceVersions: map[string]string{"x": "v7"}})
		if err := s.stream.Send(&discovery.DiscoveryRequest{TypeUrl: shape, ResourceNames: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
		c.none()
		s.none()
		c.subscribe("x")
		wantChange(t, c.one(), []string{"x=v1"}, nil)
		s.ask("", "", "x")
		wantTexts(t, s.one(), "v1")

		w.setType(shape, "x", "round")
		wantChange(t, c.one(), []string{"x=round"}, nil)
		wantTexts(t, s.one(), "round")
	})
}

// Several types share a stream, each with versions, nonces and gate of its own.
func TestTypesOnOneStreamAreIndependent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const types = 20
		c := w.delta()
		for i := range types {
			typ := fmt.Sprintf("type.googleapis.com/test.T%d", i)
			w.setType(typ, "x", "v1")
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typ, ResourceNamesSubscribe: []string{"x"}})
			wantChange(t, c.one(), []string{"x=v1"}, nil) // none of the earlier ones is answered
		}
		for i := range types {
			w.setType(fmt.Sprintf("type.googleapis.com/test.T%d", i), "x", "v2")
		}
		c.none() // each waits for its own answer
		if got := len(w.server.Clients()[0].Resources); got != types {
			t.Errorf("%d resources, want %d", got, types)
		}
	})
}

// When the server's context ends, streams end with a status that clients retry,
// and Wait returns.
func TestStopEndsStreamsWithUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, s := w.delta(), w.sotw()
		c.subscribe("x")
		s.ask("", "", "x")
		synctest.Wait()
		w.stop()
		w.server.Wait()
		for _, err := range []error{c.failure(), s.failure()} {
			if !strings.Contains(err.Error(), "Unavailable") {
				t.Errorf("stream ended with %v, want Unavailable", err)
			}
		}
		late := w.delta()
		if err := late.failure(); !strings.Contains(err.Error(), "Unavailable") {
			t.Errorf("a stream opened after the end got %v, want Unavailable", err)
		}
		if got := w.server.Clients(); len(got) != 0 {
			t.Errorf("clients after the end: %v", got)
		}
	})
}
