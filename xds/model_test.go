package xds_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/xds"
)

// modelClient is what any client of the protocol does: it keeps the good
// content it receives for the names it wants, rejects responses that carry bad
// content, and on reconnect says what it holds.
type modelClient struct {
	delta bool
	all   bool // by the wildcard
	want  map[string]bool
	held  map[string]string
	inbox []message // received, not answered yet
	nonce string    // of the last response answered
	sotw  *sotwClient
	inc   *deltaClient
}

// message is a response of either variant.
type message struct {
	nonce, version string
	resources      map[string]string
	removed        []string
}

// grpcNode is a client for which no names are none, and not all.
var grpcNode = &corev3.Node{Id: "n1", UserAgentName: "gRPC Go"}

func (c *modelClient) names() []string {
	names := slices.Sorted(maps.Keys(c.want))
	if c.all {
		names = append(names, "*")
	}
	return names
}

func (c *modelClient) wants(name string) bool { return c.all || c.want[name] }

func (c *modelClient) connect(w *world) {
	c.inbox, c.nonce = nil, ""
	if !c.delta {
		c.sotw = w.sotw()
		_ = c.sotw.stream.Send(&discovery.DiscoveryRequest{TypeUrl: color, Node: grpcNode, VersionInfo: "whatever",
			ResponseNonce: "from another life", ResourceNames: c.names()})
		return
	}
	c.inc = w.delta()
	c.inc.send(&discovery.DeltaDiscoveryRequest{Node: grpcNode, ResourceNamesSubscribe: c.names(), InitialResourceVersions: maps.Clone(c.held)})
}

func (c *modelClient) disconnect() {
	if c.delta {
		c.inc.quit()
	} else {
		c.sotw.quit()
	}
}

func (c *modelClient) subscribe(name string) {
	c.want[name] = true
	if c.delta {
		c.inc.subscribe(name)
	} else {
		c.sotw.ask("", c.nonce, c.names()...)
	}
}

// subscribeAll turns the wildcard on or off.
func (c *modelClient) subscribeAll(on bool) {
	c.all = on
	maps.DeleteFunc(c.held, func(name, _ string) bool { return !c.wants(name) })
	switch {
	case !c.delta:
		c.sotw.ask("", c.nonce, c.names()...)
	case on:
		c.inc.subscribe("*")
	default:
		c.inc.unsubscribe("*")
	}
}

func (c *modelClient) unsubscribe(name string) {
	delete(c.want, name)
	if !c.all {
		delete(c.held, name)
	}
	if c.delta {
		c.inc.unsubscribe(name)
	} else {
		c.sotw.ask("", c.nonce, c.names()...)
	}
}

// receive moves what arrived into the inbox and returns how much that was.
func (c *modelClient) receive(t *rapid.T) int {
	n := 0
	if c.delta {
		for _, r := range c.inc.take() {
			m := message{nonce: r.GetNonce(), resources: map[string]string{}, removed: r.GetRemovedResources()}
			for _, res := range r.GetResources() {
				m.resources[res.GetName()] = res.GetVersion()
			}
			c.inbox = append(c.inbox, m)
			n++
		}
		return n
	}
	for _, r := range c.sotw.take() {
		m := message{nonce: r.GetNonce(), version: r.GetVersionInfo(), resources: map[string]string{}}
		for _, a := range r.GetResources() {
			var s wrapperspb.StringValue
			if err := proto.Unmarshal(a.GetValue(), &s); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(s.GetValue(), "=")
			m.resources[name] = s.GetValue()
		}
		c.inbox = append(c.inbox, m)
		n++
	}
	return n
}

func bad(version string) bool { return strings.HasSuffix(version, "!") }

// answer applies and answers the oldest response of the inbox.
func (c *modelClient) answer() {
	m := c.inbox[0]
	c.inbox = c.inbox[1:]
	c.nonce = m.nonce
	var detail *spb.Status
	for name, version := range m.resources {
		switch {
		case bad(version):
			detail = &spb.Status{Code: 3, Message: version}
		case c.wants(name):
			c.held[name] = version
		}
	}
	for _, name := range m.removed {
		delete(c.held, name)
	}
	if c.delta {
		c.inc.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: m.nonce, ErrorDetail: detail})
		return
	}
	_ = c.sotw.stream.Send(&discovery.DiscoveryRequest{TypeUrl: color, VersionInfo: m.version, ResponseNonce: m.nonce,
		ResourceNames: c.names(), ErrorDetail: detail})
}

// Any history of subscribe, unsubscribe, to names and to all, accept, reject, publish, delete and
// reconnect ends with each client holding exactly what it asked for, at its
// newest content, unless that was rejected; and no history makes the server send
// more responses than there were reasons to.
func TestAnyHistoryEndsWithEachClientHoldingWhatItAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubbleTB{t}, runHistory)
	})
}

// bubbleTB hides the deadline of a test, which a bubble does not have.
type bubbleTB struct{ rapid.TB }

func runHistory(t *rapid.T) {
	w := start(t, xds.NewCache(color))
	defer w.end()
	clients := []*modelClient{{delta: false}, {delta: true}, {delta: true}}
	for _, c := range clients {
		c.want, c.held = map[string]bool{}, map[string]string{}
		c.connect(w)
	}
	content := map[string]string{}
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	client := rapid.SampledFrom(clients)
	reasons, responses, publishes := 0, 0, 0
	receive := func() bool {
		n := 0
		for _, c := range clients {
			n += c.receive(t)
		}
		responses += n
		return n > 0
	}
	t.Repeat(map[string]func(*rapid.T){
		"subscribe":   func(t *rapid.T) { client.Draw(t, "client").subscribe(name.Draw(t, "name")); reasons++ },
		"unsubscribe": func(t *rapid.T) { client.Draw(t, "client").unsubscribe(name.Draw(t, "name")); reasons++ },
		"wildcard":    func(t *rapid.T) { client.Draw(t, "client").subscribeAll(rapid.Bool().Draw(t, "on")); reasons++ },
		"publish": func(t *rapid.T) {
			n := name.Draw(t, "name")
			// Few versions, so that content goes bad, good and back again.
			content[n] = n + "=" + strconv.Itoa(rapid.IntRange(1, 3).Draw(t, "version")) + rapid.SampledFrom([]string{"", "", "!"}).Draw(t, "quality")
			w.set(n, content[n])
			reasons += len(clients)
			publishes++
		},
		"delete": func(t *rapid.T) {
			n := name.Draw(t, "name")
			delete(content, n)
			w.cache.Delete(color, n)
			reasons += len(clients)
		},
		"receive": func(*rapid.T) { receive() },
		"answer": func(t *rapid.T) {
			if c := client.Draw(t, "client"); len(c.inbox) > 0 {
				c.answer()
			}
		},
		"reconnect": func(t *rapid.T) {
			c := client.Draw(t, "client")
			receive()
			c.disconnect()
			synctest.Wait()
			c.connect(w)
			reasons++
		},
	})
	for receive() || slices.ContainsFunc(clients, func(c *modelClient) bool { return len(c.inbox) > 0 }) {
		for _, c := range clients {
			for len(c.inbox) > 0 {
				c.answer()
			}
		}
	}
	for i, c := range clients {
		for _, n := range []string{"a", "b", "c", "d"} {
			if !c.wants(n) {
				continue
			}
			newest, held := content[n], c.held[n]
			switch {
			case newest == held, bad(newest):
			case newest == "" && !c.delta: // absence is not told
			default:
				t.Errorf("client %d (delta %v) holds %q of %q, newest is %q", i, c.delta, held, n, newest)
			}
		}
	}
	for _, state := range w.server.Clients() {
		for _, r := range state.Resources {
			if r.Name == "*" {
				if !r.Current && r.Nack == "" {
					t.Errorf("%v: the wildcard is neither accepted nor rejected at the end: %+v", state.Kind, r)
				}
				continue
			}
			if r.Sent != content[r.Name] {
				t.Errorf("%v: %q was sent last, newest is %q", state.Kind, r.Sent, content[r.Name])
			}
			if r.Nack == "" && r.Acked != r.Sent && (r.Sent != "" || state.Kind == xds.Delta) {
				t.Errorf("%v: neither accepted nor rejected at the end: %+v", state.Kind, r)
			}
		}
	}
	if responses > reasons {
		t.Errorf("%d responses for %d reasons", responses, reasons)
	}
}
