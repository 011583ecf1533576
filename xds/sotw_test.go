package xds_test

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/hedged-project/hedged/xds"
)

const cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// "The management server must supply the requested resources if they exist."
// Absent names are left out, and are sent when they come to exist. That a resource
// is gone is not told: "the API provides no mechanism for the server to tell the
// client that resources have been deleted".
func TestSotWAbsentNamesAreLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.sotw()
		c.ask("held from before", "old nonce", "x", "y")
		c.none()
		for _, name := range []string{"y", "x"} {
			w.set(name, name+"1")
			r := c.one()
			wantTexts(t, r, name+"1")
			c.ack(r, "x", "y")
		}
		w.cache.Delete(color, "x")
		c.none()
		w.set("x", "x1") // it came back as it was
		wantTexts(t, c.one(), "x1")
	})
}

// "for Listener and Cluster the server must include the complete state of the
// world [...] even if they did not change since the last response"; "if a
// previously seen resource is not present in a new response, that indicates that
// the resource has been removed [...]; a response containing no resources means to
// delete all resources of that type": a server that restarted and knows nothing
// yet must not send one.
func TestSotWClustersComeAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.sotw()
		c.typeURL = cluster
		names := []string{"x", "y"}
		c.ask("held from before", "old nonce", names...)
		c.none()
		w.setType(cluster, "y", "y1")
		r := c.one()
		wantTexts(t, r, "y1")
		c.ack(r, names...)
		w.setType(cluster, "x", "x1")
		r = c.one()
		wantTexts(t, r, "x1", "y1")
		c.ack(r, names...)
		w.cache.Delete(cluster, "x")
		r = c.one()
		wantTexts(t, r, "y1")
		c.ack(r, names...)
		w.cache.Delete(cluster, "y") // known to be deleted, not just unknown
		r = c.one()
		wantTexts(t, r)
		c.ack(r, names...)
		c.none()
	})
}

// "all resource types except for Listener and Cluster are grouped into responses
// in the same way as in the incremental protocol variants": what changed, alone.
// So a change of one name does not bring back what was rejected of another.
func TestSotWSendsWhatChangedAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "bad")
		w.set("y", "y1")
		c := w.sotw()
		c.ask("", "", "x", "y")
		r := c.one()
		wantTexts(t, r, "bad", "y1")
		c.nack("", r.GetNonce(), "no", "x", "y")
		c.none()
		w.set("y", "y2")
		r = c.one()
		wantTexts(t, r, "y2")
		c.ack(r, "x", "y")
		if s := w.state("x"); s.Nack != "no" || s.Acked != "" {
			t.Errorf("an answer about y counts for x: %+v", s)
		}
		w.set("x", "good")
		wantTexts(t, c.one(), "good")
	})
}

// "When the client sends a new request that changes the set of resources being
// requested, the server must resend any newly requested resources, even if it
// previously sent those resources [...] and the resources have not changed".
// "If the list of resource names becomes empty, that means that the client is no
// longer interested in any resources of the specified type."
func TestSotWSubscriptionChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "x1")
		w.set("y", "y1")
		c := w.sotw()
		c.ask("", "", "x", "x")
		r := c.one()
		wantTexts(t, r, "x1")
		c.ack(r, "x", "y")
		r = c.one()
		wantTexts(t, r, "y1")
		c.ack(r, "y")
		c.none()
		w.set("x", "x2")
		c.none()
		w.set("y", "y2")
		r = c.one()
		wantTexts(t, r, "y2")
		c.ack(r)
		w.set("y", "y3")
		c.none()
		c.ack(r, "y") // forgotten in between, say
		r = c.one()
		wantTexts(t, r, "y3")
		c.ack(r, "x", "y")
		wantTexts(t, c.one(), "x2")
	})
}

// "The version for a resource type is not a property of an individual xDS
// stream but rather a property of the resources themselves": the same set has
// the same version on another stream and after a restart.
func TestSotWVersionIsAPropertyOfTheContent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		version := func(w *world, names ...string) string {
			c := w.sotw()
			defer c.quit()
			c.ask("", "", names...)
			return c.one().GetVersionInfo()
		}
		w.set("x", "v1")
		w.set("y", "v1")
		first := version(w, "x", "y")
		again := start(t, xds.NewCache())
		defer again.end()
		again.set("y", "v0")
		again.set("y", "v1")
		again.set("x", "v1")
		if got := version(again, "y", "x"); got != first {
			t.Errorf("version after a restart %q, want %q", got, first)
		}
		again.set("x", "v2")
		if got := version(again, "x", "y"); got == first {
			t.Errorf("other content has the same version %q", got)
		}
		if got := version(w, "x"); got == first {
			t.Errorf("another set has the same version %q", got)
		}
	})
}

// A client that reconnects with a version and a nonce of its earlier life gets
// the current content, whether the numbers are higher, equal or lower here.
//
// "The nonce is valid only in the context of an individual xDS stream; it does
// not survive stream restarts." "Servers may decide to optimize by not resending
// resources [...], but only if they know that the client is not subscribing to a
// new resource": a server cannot know that.
func TestReconnectToAFreshServerGetsItsContent(t *testing.T) {
	for _, served := range []string{"2", "53", "54"} {
		bubble(t, func(t *testing.T, w *world) {
			if err := w.cache.SetBytes(color, "x", []byte("\n\x03new"), served); err != nil {
				t.Fatal(err)
			}
			c := w.sotw()
			c.ask("53", "53", "x")
			r := c.one()
			wantTexts(t, r, "new")
			if s := w.state("x"); s.Acked != "" || s.Current {
				t.Errorf("served %s: an old version and nonce count as an answer: %+v", served, s)
			}
			c.ack(r, "x")
			c.none()
			if s := w.state("x"); s.Acked != served || !s.Current {
				t.Errorf("served %s: %+v", served, s)
			}

			if served == "53" {
				return // delta: equal versions mean equal content, by Cache.Set's contract
			}
			d := w.delta()
			d.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: "53", ResourceNamesSubscribe: []string{"x"},
				InitialResourceVersions: map[string]string{"x": "53"}})
			wantVersion(t, d.one(), "x", served)
		})
	}
}

func wantVersion(t *testing.T, r *discovery.DeltaDiscoveryResponse, name, version string) {
	t.Helper()
	if len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != name || r.GetResources()[0].GetVersion() != version {
		t.Fatalf("response %v, want %s at version %s", r, name, version)
	}
}

// Nonces of two servers never agree, so an answer meant for one is never
// credited by the other.
func TestNonceOfAnotherStreamIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		again := start(t, w.cache)
		defer again.end()
		old := again.sotw()
		old.ask("", "", "x")
		c := w.sotw()
		c.ask("", "", "x")
		c.one()
		c.ack(old.one(), "x")
		if s := w.state("x"); s.Acked != "" {
			t.Errorf("a nonce of another server counts: %+v", s)
		}
	})
}

// The server pushes all the time while the client adds a name with the nonce
// that has just become outdated: the name is delivered at once, and the stale
// nonce is not credited to the version under way.
func TestSotWStaleNonceKeepsSubscription(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("a", "a0")
		c := w.sotw()
		names := []string{"a"}
		c.ask("", "", names...)
		seen := c.one()
		c.ack(seen, names...)
		for i := 1; i <= 20; i++ {
			b := fmt.Sprintf("b%02d", i)
			w.set(b, "b")
			w.set("a", fmt.Sprintf("a%d", i))
			push := c.one() // under way when the client sends:
			names = append(names, b)
			c.ack(seen, names...)
			answer := c.one()
			wantTexts(t, answer, "b")
			if s := w.state("a"); s.Acked != fmt.Sprintf("a%d", i-1) {
				t.Fatalf("round %d: a stale nonce was credited: %+v", i, s)
			}
			c.ack(push, names...)
			if s := w.state(b); s.Acked != "" {
				t.Fatalf("round %d: the answer to the push was credited to the later response: %+v", i, s)
			}
			c.ack(answer, names...)
			c.none()
			if s := w.state(b); !s.Current {
				t.Fatalf("round %d: %+v", i, s)
			}
			seen = answer
		}
	})
}

// A client that never answers, but keeps asking, is served up to a bound and
// costs no more than that.
func TestUnansweredRepliesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.delta()
		w.set("x", "v1")
		got := 0
		for range 100 {
			c.subscribe("x")
			got += len(c.take())
		}
		if got != 8 {
			t.Errorf("%d responses without an answer, want 8", got)
		}
	})
}

// A rejection is never answered by the same content, nor by an empty response;
// the next version goes at once.
//
// "The management server should only send updates to the Envoy client when the
// resources in the DiscoveryResponse have changed."
func TestSotWNackIsSilentUntilContentChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "bad 7")
		c := w.sotw()
		c.ask("", "", "x")
		r := c.one() // the first response of the stream is rejected: version_info stays empty
		w.set("x", "good 8")
		w.set("x", "bad 7") // by the time of the answer it is what is rejected
		c.nack("", r.GetNonce(), "no", "x")
		c.none()
		c.nack("", r.GetNonce(), "no", "x")
		c.none()
		if s := w.state("x"); s.Nack != "no" || s.Acked != "" || s.Current {
			t.Errorf("the rejection is not visible: %+v", s)
		}
		if s := w.server.Stats(); s.Nacks != 1 || s.Acks != 0 || s.Responses != 1 || s.Publishes != 3 {
			t.Errorf("stats: %+v", s)
		}
		w.set("x", "good 8")
		good := c.one()
		wantTexts(t, good, "good 8")
		c.ack(good, "x")
		w.set("x", "bad 9")
		c.nack(good.GetVersionInfo(), c.one().GetNonce(), "no again", "x")
		c.none()
		w.set("x", "good 8")
		r = c.one()
		wantTexts(t, r, "good 8")
		c.ack(r, "x")
		if s := w.state("x"); !s.Current || s.Nack != "" {
			t.Errorf("good again: %+v", s)
		}
	})
}

// Rejection is told by error_detail alone, not by comparing versions: "that may
// not be an older version in the case where the client has subscribed to a new
// resource from an existing version and that new resource is invalid".
func TestSotWNackWithUnchangedVersion(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("a", "good")
		w.set("b", "bad")
		c := w.sotw()
		c.ask("", "", "a")
		r := c.one()
		c.ack(r, "a")
		c.ask(r.GetVersionInfo(), r.GetNonce(), "a", "b")
		r = c.one()
		wantTexts(t, r, "bad")
		c.nack(r.GetVersionInfo(), r.GetNonce(), "b is bad", "a", "b") // its own version, its own nonce
		c.none()
		if s := w.server.Stats(); s.Acks != 1 || s.Nacks != 1 {
			t.Errorf("stats: %+v, want one ACK and one NACK", s)
		}
		if s := w.state("b"); s.Acked != "" || s.Nack != "b is bad" || s.Current {
			t.Errorf("rejected, yet: %+v", s)
		}

		// And a rejection that brings a new name along: counted, and the name served.
		w.set("c", "good")
		w.set("b", "bad again")
		r = c.one()
		c.nack(r.GetVersionInfo(), r.GetNonce(), "b is still bad", "a", "b", "c")
		wantTexts(t, c.one(), "good")
		if s := w.server.Stats(); s.Nacks != 2 {
			t.Errorf("stats: %+v, want two NACKs", s)
		}
	})
}

// Setting the version that is there, or deleting what is not, changes nothing.
func TestPublishOfTheSameIsNoPublish(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.set("x", "v1")
			w.cache.Delete(color, "y")
		}
		if got := w.server.Stats().Publishes; got != 1 {
			t.Errorf("%d publishes, want 1", got)
		}
	})
}

// Introspection: who has what: node, peer, kind, and only open streams.
func TestClientsShowsOpenStreams(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		s, d := w.sotw(), w.delta()
		s.ask("", "", "x", "absent")
		s.one()
		d.subscribe("x")
		d.one()
		clients := w.server.Clients()
		if len(clients) != 2 {
			t.Fatalf("%d clients, want 2", len(clients))
		}
		for _, c := range clients {
			if c.Node != "n1" || c.Peer == "" || c.Since.IsZero() || c.Resources[len(c.Resources)-1].Sent != "v1" {
				t.Errorf("client %+v", c)
			}
		}
		s.quit()
		d.take()
		if got := w.server.Clients(); len(got) != 1 || got[0].Kind != xds.Delta || got[0].Kind.String() != "delta" {
			t.Errorf("after one left: %+v", got)
		}
		if stats := w.server.Stats(); stats.Opened != 2 || stats.OpenSotW != 0 || stats.OpenDelta != 1 {
			t.Errorf("stats: %+v", stats)
		}
	})
}
