package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"github.com/hedged-project/hedged/xds"
)

// still returns a daemon that does not run: its owners decide when told to.
func still(b *testing.B) *Daemon {
	cfg := DefaultConfig()
	cfg.StateDir = b.TempDir()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Listen = func(string, string) (net.Listener, error) { return bufconn.Listen(1 << 16), nil }
	d, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.running = ctx
	d.xds = xds.NewServer(ctx, d.cache, xds.Options{})
	d.ingest = &ingest{ctx: ctx, post: d.post, logger: d.logger, sources: map[sourceKey]*source{}}
	b.Cleanup(func() {
		stop()
		d.xds.Wait()
		d.tasks.Wait()
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return d
}

// bigFrame is a frame of so many methods on so many replicas.
func bigFrame(service string, methods, replicas int) *hedgedv1.Frame {
	r := &report.Report{
		Service:  policy.Key{Tenant: policy.DefaultTenant, Service: service},
		Sequence: 1, Interval: time.Second, Methods: map[string]*report.Method{},
	}
	for i := range methods {
		m := &report.Method{Replicas: map[string]*report.Replica{}}
		for j := range replicas {
			seen := &report.Replica{}
			for k := range 100 {
				seen.Primary.Completed.Record(time.Duration(5000+100*k+37*j) * time.Microsecond)
			}
			seen.Primary.Completed.Record(time.Second)
			m.Replicas[fmt.Sprintf("10.0.%d.%d:80", j/250, j%250)] = seen
			m.Calls += 101
			m.Safe += 101
			m.Eligible += 5
		}
		r.Methods[fmt.Sprintf("/shop.Orders/Get%d", i)] = m
	}
	return wire.FrameToProto(r)
}

// A frame of 10 methods on 12 replicas, from the handler to the law.
func BenchmarkIngest(b *testing.B) {
	d := still(b)
	src, err := d.ingest.open(report.Source{ID: "client-1", Incarnation: 1})
	if err != nil {
		b.Fatal(err)
	}
	f := bigFrame("orders", 10, 12)
	req := &hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: f}}
	b.ReportAllocs()
	for b.Loop() {
		if a, _, err := d.ingest.handle(b.Context(), src, req); err != nil || a.Refused != "" {
			b.Fatal(a, err)
		}
		f.Sequence++
	}
}

// A decision on a service of so many methods and replicas, with its snapshot.
func BenchmarkTick(b *testing.B) {
	for _, size := range [][2]int{{1, 3}, {10, 100}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			d := still(b)
			o := d.newOwner(orders, stored{})
			r, err := wire.FrameFromProto(report.Source{ID: "client-1", Incarnation: 1}, bigFrame("orders", size[0], size[1]))
			if err != nil {
				b.Fatal(err)
			}
			now := time.Now()
			for range 10 {
				o.law.Add(now, r)
				o.totals.add(now, r)
				now = now.Add(tickEvery)
				o.tick(now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				o.tick(now)
			}
		})
	}
}

// A scrape of 400 services of 10 methods.
func BenchmarkScrape(b *testing.B) {
	d := still(b)
	f := bigFrame("any", 10, 3)
	r, err := wire.FrameFromProto(report.Source{ID: "client-1", Incarnation: 1}, f)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	for i := range 400 {
		key := policy.Key{Tenant: policy.DefaultTenant, Service: fmt.Sprintf("service-%d", i)}
		o := d.newOwner(key, stored{})
		o.law.Add(now, r)
		o.totals.add(now, r)
		o.tick(now)
		d.owners[key] = o
	}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		size = len(d.metrics())
	}
	b.ReportMetric(float64(size), "bytes")
}
