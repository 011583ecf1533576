package xds_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/xds"
)

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	return names
}

// A request out of bounds ends its own stream with an error that names field,
// value and bound; the other streams go on.
func TestRequestOutOfBoundsEndsThatStreamOnly(t *testing.T) {
	long := strings.Repeat("a", 10<<10)
	for _, tt := range []struct {
		name string
		req  *discovery.DeltaDiscoveryRequest
		want []string
	}{
		{"long name", &discovery.DeltaDiscoveryRequest{TypeUrl: color, ResourceNamesSubscribe: []string{"x", long}},
			[]string{"resource_names_subscribe", `"aaaa`, "10240", "1024", "element 1"}},
		{"control character", &discovery.DeltaDiscoveryRequest{TypeUrl: color, ResourceNamesSubscribe: []string{"x\n"}},
			[]string{"resource_names_subscribe", `"x\n"`, "U+000A"}},
		{"empty name", &discovery.DeltaDiscoveryRequest{TypeUrl: color, ResourceNamesSubscribe: []string{""}},
			[]string{"resource_names_subscribe", "empty"}},
		{"no type", &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"x"}},
			[]string{"type_url", "empty"}},
		{"long type", &discovery.DeltaDiscoveryRequest{TypeUrl: long}, []string{"type_url", "10240", "1024"}},
		{"long node", &discovery.DeltaDiscoveryRequest{TypeUrl: color, Node: &corev3.Node{Id: long}},
			[]string{"node.id", "10240", "1024"}},
		{"long nonce", &discovery.DeltaDiscoveryRequest{TypeUrl: color, ResponseNonce: long},
			[]string{"response_nonce", "10240", "1024"}},
		{"long held version", &discovery.DeltaDiscoveryRequest{TypeUrl: color, InitialResourceVersions: map[string]string{"x": long}},
			[]string{"initial_resource_versions", "10240", "1024"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.set("x", "v1")
				good, bad := w.delta(), w.delta()
				good.subscribe("x")
				good.ack(good.one())
				if err := bad.stream.Send(tt.req); err != nil {
					t.Fatal(err)
				}
				err := bad.failure()
				if status.Code(err) != codes.InvalidArgument {
					t.Fatalf("stream ended with %v, want InvalidArgument", err)
				}
				for _, part := range tt.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q does not name %q", err, part)
					}
				}
				if len(err.Error()) > 500 {
					t.Errorf("error of %d bytes", len(err.Error()))
				}
				w.set("x", "v2")
				wantChange(t, good.one(), []string{"x=v2"}, nil)
				if s := w.server.Stats(); s.Refused != 1 || s.OpenDelta != 1 {
					t.Errorf("stats: %+v", s)
				}
			})
		})
	}
}

// What one connection may hold is bounded, all its streams and types together, and
// what is given up may be taken again.
func TestBoundsOfAConnection(t *testing.T) {
	const limit = 1 << 16
	refusal := func(t *testing.T, err error, want ...string) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("stream ended with %v, want ResourceExhausted", err)
		}
		for _, part := range want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("error %q does not name %q", err, part)
			}
		}
	}
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.delta(), w.delta()
		a.subscribe(manyNames(limit)...)
		a.subscribe(manyNames(limit)...) // the same again is no more
		synctest.Wait()
		b.subscribe("x")
		refusal(t, b.failure(), "resource names", "65537", "65536")
		c := w.delta()
		a.unsubscribe("n0")
		synctest.Wait()
		c.subscribe("x")
		wantChange(t, c.one(), nil, []string{"x"})
		a.quit()
		synctest.Wait()
		c.subscribe(manyNames(limit - 1)...)
		if got := w.state("x"); got.Name != "x" {
			t.Error("refused what was given up")
		}
	})
	bubble(t, func(t *testing.T, w *world) { // a client that subscribes to 100,000 names
		c, good := w.delta(), w.delta()
		c.subscribe(manyNames(100_000)...)
		refusal(t, c.failure(), "resource names", "100000", "65536")
		good.subscribe("x")
		wantChange(t, good.one(), nil, []string{"x"})
		if n := xds.Indexed(w.server); n != 1 {
			t.Errorf("%d names are left of the refused stream, want only the other's", n-1)
		}
	})
	bubble(t, func(t *testing.T, w *world) {
		c := w.delta()
		for i := range 17 { // each name of 1,024 bytes
			names := manyNames(1 << 10)
			for j := range names {
				names[j] = fmt.Sprintf("%s-%d-%s", names[j], i, strings.Repeat("x", 1024))[:1024]
			}
			c.subscribe(names...)
		}
		refusal(t, c.failure(), "resource names", "bytes", "16777216")
	})
	bubble(t, func(t *testing.T, w *world) {
		c := w.sotw()
		for i := range 101 {
			_ = c.stream.Send(&discovery.DiscoveryRequest{TypeUrl: fmt.Sprint("t", i)})
		}
		refusal(t, c.failure(), "type_url", "100")
	})
	bubble(t, func(t *testing.T, w *world) {
		for range 1000 {
			w.delta()
		}
		synctest.Wait()
		refusal(t, w.delta().failure(), "streams", "1000")
	})
}

// A state of the world that no gRPC client would accept ends its stream with
// its size, instead of being sent and refused for ever.
func TestSotWTooLargeForOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i := range 5 {
			if err := w.cache.SetBytes(color, fmt.Sprint(i), make([]byte, 1<<20), "v"); err != nil {
				t.Fatal(err)
			}
		}
		c, small := w.sotw(), w.sotw()
		small.ask("", "", "0")
		small.one()
		c.ask("", "", "0", "1", "2", "3", "4")
		err := c.failure()
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "5 resources") {
			t.Errorf("stream ended with %v, want ResourceExhausted and the size", err)
		}
	})
}

// What nobody could subscribe to or receive is not published.
func TestSetRefusesWhatIsOutOfBounds(t *testing.T) {
	c := xds.NewCache()
	for _, err := range []error{
		c.SetBytes("", "x", nil, "v"),
		c.SetBytes(color, "", nil, "v"),
		c.SetBytes(color, "x", nil, ""),
		c.SetBytes(color, "x\x00", nil, "v"),
		c.SetBytes(color, "x\xff", nil, "v"),
		c.SetBytes(color, "x", make([]byte, 4<<20), "v"),
		c.Set(color, strings.Repeat("n", 1025), wrapperspb.String("v"), "v"),
		c.Set(color, "x", wrapperspb.String("\xff"), "v"),
	} {
		if err == nil {
			t.Error("accepted")
		}
	}
	if err := c.SetBytes(color, strings.Repeat("n", 1024), nil, "v"); err != nil {
		t.Error(err)
	}
}

// The reason of a rejection is kept, within bounds and as text.
func TestLongReasonIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set("x", "v1")
		c := w.delta()
		c.subscribe("x")
		c.nack(c.one(), strings.Repeat("é", 100_000))
		if s := w.state("x"); len(s.Nack) > 1024+4 || !strings.HasPrefix(s.Nack, "éé") {
			t.Errorf("reason of %d bytes: %.20q", len(s.Nack), s.Nack)
		}
		w.set("x", "v2")
		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.one().GetNonce(), ErrorDetail: &spb.Status{Code: 13}})
		if s := w.state("x"); s.Nack == "" {
			t.Error("a rejection without a reason is not visible")
		}
	})
}

// A message whose fields are anything at all neither panics nor leaves anything
// of its stream behind.
func FuzzRequest(f *testing.F) {
	f.Add(false, []byte("\x1a\x01x\x22\x05color"))
	f.Add(true, []byte("\x12\x05color\x1a\x01x\x1a\x01y\x22\x01x\x2a\x06\n\x01x\x12\x01v"))
	f.Add(true, []byte("\x12\x05color\x1a\x01*"))
	f.Add(false, []byte("\x22\x05color\x1a\x01\x00"))
	f.Add(false, []byte("\xff"))
	cache := xds.NewCache("color")
	if err := cache.SetBytes("color", "x", []byte("content"), "v"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, delta bool, wire []byte) {
		ctx, cancel := context.WithCancel(context.Background())
		server := xds.NewServer(ctx, cache, xds.Options{})
		err := xds.ServeBytes(server, delta, wire, wire)
		if c := status.Code(err); c != codes.OK && c != codes.InvalidArgument && c != codes.ResourceExhausted {
			t.Errorf("stream ended with %v", err)
		}
		if got := server.Clients(); len(got) != 0 {
			t.Errorf("left behind: %+v", got)
		}
		if n := xds.Indexed(server); n != 0 {
			t.Errorf("%d names left in the index", n)
		}
		cancel()
		server.Wait()
	})
}
