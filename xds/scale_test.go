package xds_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/xds"
)

// A client that stops reading, under publishes every 10 ms to 20 types or 1,000
// names: no publish waits (in synthetic time: takes any time at all), the other
// clients are current after each, and the one that stopped gets the newest
// content only, once it reads again.
func TestStoppedReaderHoldsNobodyUp(t *testing.T) {
	padding := strings.Repeat(".", 200) // fills the flow-control window many times over
	for _, tt := range []struct{ types, names int }{{20, 50}, {1, 1000}} {
		t.Run(fmt.Sprintf("%d types of %d names", tt.types, tt.names), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				typ := func(i int) string { return fmt.Sprintf("type.googleapis.com/test.T%d", i) }
				names := manyNames(tt.names)
				for i := range tt.types {
					for _, name := range names {
						w.setType(typ(i), name, "v0"+padding)
					}
				}
				stopped, reader := w.silentSotW(), w.delta()
				for i := range tt.types {
					if err := stopped.stream.Send(&discovery.DiscoveryRequest{TypeUrl: typ(i), ResourceNames: names}); err != nil {
						t.Fatal(err)
					}
					reader.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typ(i), ResourceNamesSubscribe: names})
				}
				for _, r := range reader.take() {
					reader.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
				}
				const rounds = 200
				for round := 1; round <= rounds; round++ {
					time.Sleep(10 * time.Millisecond)
					began := time.Now()
					version := fmt.Sprintf("v%d", round)
					for i := range tt.types {
						w.setType(typ(i), names[round%tt.names], version+padding)
					}
					if d := time.Since(began); d != 0 {
						t.Fatalf("round %d: publishing waited %v", round, d)
					}
					got := reader.take()
					if len(got) != tt.types {
						t.Fatalf("round %d: the reader got %d responses, want %d", round, len(got), tt.types)
					}
					for _, r := range got {
						if v := r.GetResources()[0].GetVersion(); v != version+padding {
							t.Fatalf("round %d: the reader got %.10q", round, v)
						}
						reader.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
					}
				}

				stopped.read(stopped.stream.Recv)
				messages := 0
				last := map[string]*discovery.DiscoveryResponse{}
				for {
					got := stopped.take()
					if len(got) == 0 {
						break
					}
					for _, r := range got {
						messages++
						last[r.GetTypeUrl()] = r
						_ = stopped.stream.Send(&discovery.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(),
							VersionInfo: r.GetVersionInfo(), ResourceNames: names})
					}
				}
				if messages > 2*tt.types {
					t.Errorf("the stopped reader got %d messages for %d types and %d rounds, want at most 2 a type", messages, tt.types, rounds)
				}
				for _, c := range w.server.Clients() {
					for _, r := range c.Resources {
						if !r.Current {
							t.Fatalf("not current at the end: %v %+v", c.Kind, r)
						}
					}
				}
				if len(last) != tt.types {
					t.Errorf("the stopped reader got %d types, want %d", len(last), tt.types)
				}
			})
		})
	}
}

// A server goes away under 200 streams and another takes its place: all have
// the content again, and what they still hold is not sent again.
func TestReconnectStorm(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const streams = 200
		w.set("same", "v1")
		w.set("changed", "v1")
		connect := func(w *world, held map[string]string) []*deltaClient {
			clients := make([]*deltaClient, streams)
			for i := range clients {
				clients[i] = w.delta()
				clients[i].send(&discovery.DeltaDiscoveryRequest{
					ResourceNamesSubscribe: []string{"same", "changed"}, InitialResourceVersions: held,
				})
			}
			return clients
		}
		for _, c := range connect(w, nil) {
			r := c.one()
			wantChange(t, r, []string{"changed=v1", "same=v1"}, nil)
			c.ack(r)
		}
		w.stop()
		w.server.Wait()

		again := start(t, xds.NewCache(color))
		defer again.end()
		again.set("same", "v1")
		again.set("changed", "v2")
		for _, c := range connect(again, map[string]string{"same": "v1", "changed": "v1"}) {
			r := c.one()
			wantChange(t, r, []string{"changed=v2"}, nil)
			c.ack(r)
		}
		synctest.Wait()
		for _, c := range again.server.Clients() {
			for _, r := range c.Resources {
				if !r.Current {
					t.Fatalf("%+v", r)
				}
			}
		}
		if s := again.server.Stats(); s.OpenDelta != streams || s.Responses != streams {
			t.Errorf("stats: %+v", s)
		}
	})
}

// Streams that end leave nothing behind.
func TestEndedStreamsLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i := range 300 {
			c := w.delta()
			c.subscribe(manyNames(20)...)
			if i%3 == 0 {
				c.one()
			}
			c.quit()
		}
		synctest.Wait()
		if n := xds.Indexed(w.server); n != 0 {
			t.Errorf("%d names still watched", n)
		}
		if got := len(w.server.Clients()); got != 0 {
			t.Errorf("%d clients left", got)
		}
	})
}

// 10,000 streams come and go under pushes: nothing of them is left.
func TestTenThousandStreamsLeaveNoMemory(t *testing.T) {
	w := start(t, xds.NewCache(color))
	defer w.end()
	w.set("x", "v0")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	churn := func(streams int) {
		var workers sync.WaitGroup
		for range 20 {
			workers.Go(func() {
				for i := range streams / 20 {
					ctx, cancel := context.WithCancel(context.Background())
					s, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(ctx)
					if err == nil {
						err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: color, ResourceNamesSubscribe: []string{"x", fmt.Sprint(i), "*"}})
					}
					if i%2 == 0 && err == nil {
						_, err = s.Recv()
					}
					if err != nil {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		done := make(chan struct{})
		go func() { workers.Wait(); close(done) }()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				w.set("x", fmt.Sprint("v", i%10))
			}
		}
	}
	gone := func() {
		for deadline := time.Now().Add(30 * time.Second); len(w.server.Clients()) > 0 && time.Now().Before(deadline); {
			runtime.Gosched()
		}
	}
	churn(1000)
	gone()
	before := heap()
	churn(10_000)
	gone()
	if n := len(w.server.Clients()); n > 0 {
		t.Errorf("%d clients left", n)
	}
	if n := xds.Indexed(w.server); n > 0 {
		t.Errorf("%d names still watched", n)
	}
	if n := xds.Accounts(w.server); n > 0 {
		t.Errorf("%d accounts left", n)
	}
	if after := heap(); after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// 200 readers stop for two minutes under 1,000 changes a second: memory stays
// within bounds, and when they read again they get the newest state at once.
func TestStoppedReadersStayWithinBounds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const readers, seconds = 200, 120
		names := manyNames(100)
		for _, name := range names {
			w.set(name, "v")
		}
		clients := make([]*sotwClient, readers)
		for i := range clients {
			clients[i] = w.silentSotW()
			clients[i].ask("", "", names...)
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for round := range seconds * 10 {
			time.Sleep(100 * time.Millisecond)
			for _, name := range names {
				w.set(name, fmt.Sprint("v", round))
			}
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		for i, c := range clients {
			c.read(c.stream.Recv)
			for messages := 0; ; messages++ {
				got := c.take()
				if len(got) == 0 {
					break
				}
				if messages == 2 || len(got) > 1 {
					t.Fatalf("reader %d got more than two messages", i)
				}
				c.ack(got[0], names...)
			}
		}
		for _, c := range w.server.Clients() {
			for _, r := range c.Resources {
				if !r.Current {
					t.Fatalf("not current at the end: %+v", r)
				}
			}
		}
	})
}

// Urgent content for a client that does not read fills its stream's buffers: the
// shard that sends it goes on with the others.
func TestUrgentContentForAStoppedReaderHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		large := strings.Repeat(".", 200<<10)
		off := func(version string) {
			if err := w.cache.SetUrgent(color, "x", wrapperspb.String(large), version); err != nil {
				t.Fatal(err)
			}
		}
		off("v0")
		w.set("y", "v0")
		stopped, reader := w.silentSotW(), w.delta()
		stopped.ask("", "", "x")
		reader.subscribe("y")
		reader.ack(reader.one())
		for i := range 20 {
			version := fmt.Sprint("off", i)
			off(version)
			w.set("y", version)
			r := reader.one()
			wantChange(t, r, []string{"y=" + version}, nil)
			reader.ack(r)
		}
	})
}

// Names that come and go while a client answers nothing are not kept.
func TestDroppedNamesAreNotKept(t *testing.T) {
	w := start(t, xds.NewCache(color))
	defer w.end()
	c := w.silentDelta()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const changes = 100_000
	for i := range changes {
		c.send(&discovery.DeltaDiscoveryRequest{
			ResourceNamesSubscribe:   []string{fmt.Sprintf("%0100d", i)},
			ResourceNamesUnsubscribe: []string{fmt.Sprintf("%0100d", i-1)},
		})
	}
	for deadline := time.Now().Add(30 * time.Second); w.server.Stats().Requests < changes && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// A publish under 1,000 streams that watch the name and never answer.
func BenchmarkPublish1000IdleWatchers(b *testing.B) {
	w, end := watched(b, 1000)
	defer end()
	versions := [2]string{"a", "b"}
	content := make([]byte, 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := w.SetBytes(color, "x", content, versions[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// From a publish until the last of 1,000 streams has handed the content to its
// transport and got the answer; without gRPC.
func BenchmarkFanOut1000(b *testing.B) {
	const streams = 1000
	cache := xds.NewCache(color)
	ctx, cancel := context.WithCancel(context.Background())
	server := xds.NewServer(ctx, cache, xds.Options{})
	delivered := make(chan struct{}, streams)
	closeAll := xds.Acknowledging(server, streams, color, "x", delivered)
	defer func() { closeAll(); cancel(); server.Wait() }()
	versions := [2]string{"a", "b"}
	content := make([]byte, 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := cache.SetBytes(color, "x", content, versions[i%2]); err != nil {
			b.Fatal(err)
		}
		for range streams {
			<-delivered
		}
	}
}

// watched returns the cache of a server with streams that watch x and do not answer.
func watched(b *testing.B, streams int) (*xds.Cache, func()) {
	cache := xds.NewCache(color)
	ctx, cancel := context.WithCancel(context.Background())
	server := xds.NewServer(ctx, cache, xds.Options{})
	closeAll := xds.Idle(server, streams, color, "x")
	return cache, func() { closeAll(); cancel(); server.Wait() }
}
