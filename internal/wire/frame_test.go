package wire

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// validReport is what one client saw of a service of nMethods and nReplicas in
// one second at 1,000 calls per second.
func validReport(nMethods, nReplicas int) *report.Report {
	r := &report.Report{
		Source:     clientSource(),
		Service:    policy.Key{Tenant: "default", Service: "search"},
		Sequence:   7,
		Interval:   time.Second,
		Generation: policy.Generation{Epoch: 1_700_000_000_000, Number: 42},
		Methods:    make(map[string]*report.Method),
	}
	for i := range nMethods {
		m := &report.Method{
			Calls: 1000, Safe: 1000, Eligible: 46, Hedges: 45, CancelledUnsent: 1, Wins: 40, Failures: 2,
			Replicas: make(map[string]*report.Replica),
		}
		m.Suppressed[policy.SuppressedBudget] = 1
		m.Hedged.RecordN(30*time.Millisecond, 45)
		m.Unhedged.Record(400 * time.Millisecond)
		m.HeldOut.Record(400 * time.Millisecond)
		m.Observed = 9
		for k := range 9 {
			m.Pairs = append(m.Pairs, estimator.NewPair(time.Duration(25+k)*time.Millisecond, time.Duration(5+k)*time.Millisecond))
		}
		for j := range nReplicas {
			rep := &report.Replica{Failed: 1}
			for k := range 100 {
				rep.Primary.Completed.Record(time.Duration(5+k%11) * time.Millisecond)
			}
			rep.Primary.Censored.RecordN(30*time.Millisecond, 4)
			rep.Hedge.Completed.RecordN(12*time.Millisecond, 4)
			m.Replicas[fmt.Sprintf("10.0.0.%d:8080", j)] = rep
		}
		r.Methods[fmt.Sprintf("/shop.Search/Method%d", i)] = m
	}
	return r
}

var (
	counts     = rapid.Uint64Range(0, MaxCount)
	histograms = rapid.Custom(func(t *rapid.T) estimator.Histogram {
		var h estimator.Histogram
		for _, ns := range rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 0, 6).Draw(t, "latencies") {
			h.RecordN(time.Duration(ns), rapid.Uint64Range(1, 1e6).Draw(t, "times"))
		}
		return h
	})
	samples = rapid.Custom(func(t *rapid.T) estimator.Sample {
		return estimator.Sample{Completed: histograms.Draw(t, "completed"), Censored: histograms.Draw(t, "censored")}
	})
	buckets        = rapid.Int16Range(estimator.MinIndex-1, estimator.MaxIndex)
	pairsOfBuckets = rapid.Custom(func(t *rapid.T) estimator.Pair {
		return estimator.Pair{Primary: buckets.Draw(t, "primary"), Hedge: buckets.Draw(t, "hedge")}
	})
	replicas = rapid.Custom(func(t *rapid.T) *report.Replica {
		return &report.Replica{
			Primary: samples.Draw(t, "primary"),
			Hedge:   samples.Draw(t, "hedge"),
			Failed:  counts.Draw(t, "failed"),
		}
	})
	reports = rapid.Custom(func(t *rapid.T) *report.Report {
		r := &report.Report{
			Source:     clientSource(),
			Service:    keys.Draw(t, "service"),
			Sequence:   rapid.Uint64Min(1).Draw(t, "sequence"),
			Interval:   time.Duration(rapid.Int64Range(0, int64(MaxInterval)).Draw(t, "interval")),
			Generation: generations.Draw(t, "generation"),
			Early:      rapid.Bool().Draw(t, "early"),
			Silent:     rapid.Bool().Draw(t, "silent"),
			Dropped:    counts.Draw(t, "dropped"),
		}
		if rapid.Bool().Draw(t, "server") {
			r.Source.Kind = report.Server
		}
		r.Methods = rapid.MapOfN(names, rapid.Custom(func(t *rapid.T) *report.Method {
			m := &report.Method{}
			if r.Source.Kind == report.Server {
				m.Served.Attempts = counts.Draw(t, "attempts")
				m.Served.Hedges = upTo(t, "hedges", m.Served.Attempts)
				m.Served.Cancelled = upTo(t, "cancelled", m.Served.Attempts)
				m.Served.Wasted = time.Duration(rapid.Int64Range(0, int64(MaxWasted)).Draw(t, "wasted"))
				return m
			}
			m.Calls = counts.Draw(t, "calls")
			m.Safe = upTo(t, "safe", m.Calls)
			m.Eligible = upTo(t, "eligible", m.Safe)
			m.Hedges = counts.Draw(t, "hedges")
			m.CancelledUnsent = upTo(t, "cancelled unsent", m.Hedges)
			m.Wins = upTo(t, "wins", m.Calls)
			m.Failures = upTo(t, "failures", m.Calls)
			for s := range m.Suppressed {
				m.Suppressed[s] = upTo(t, "suppressed", m.Calls)
			}
			m.Observed = upTo(t, "observed", m.Hedges)
			m.Pairs = rapid.SliceOfN(pairsOfBuckets, 0, 5).Draw(t, "pairs")
			m.Hedged = histograms.Draw(t, "hedged")
			m.Unhedged = histograms.Draw(t, "unhedged")
			m.HeldOut = histograms.Draw(t, "held out")
			m.Replicas = rapid.MapOfN(names, replicas, 0, 3).Draw(t, "replicas")
			return m
		}), 0, 3).Draw(t, "methods")
		return r
	})
)

// upTo draws a part of whole, calls under way included.
func upTo(t *rapid.T, label string, whole uint64) uint64 {
	return rapid.Uint64Range(0, min(whole+MaxUnderWay, MaxCount)).Draw(t, label)
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := reports.Draw(t, "report")
		got, err := FrameFromProto(r.Source, overTheWire(t, FrameToProto(r)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(got, r); diff != "" {
			t.Fatal(diff)
		}
	})
}

// difference tells where two reports differ; a histogram is what it encodes to.
func difference(got, want *report.Report) string {
	g, w := *got, *want
	g.Methods, w.Methods = nil, nil
	if !reflect.DeepEqual(g, w) {
		return fmt.Sprintf("report: got %+v, want %+v", g, w)
	}
	if len(got.Methods) != len(want.Methods) {
		return fmt.Sprintf("methods: got %d, want %d", len(got.Methods), len(want.Methods))
	}
	for name, wm := range want.Methods {
		gm := got.Methods[name]
		if gm == nil {
			return fmt.Sprintf("methods[%q] is missing", name)
		}
		if gm.Suppressed != wm.Suppressed || gm.Served != wm.Served || numbers(gm) != numbers(wm) ||
			!slices.Equal(gm.Pairs, wm.Pairs) || !bytes.Equal(waits(gm), waits(wm)) || len(gm.Replicas) != len(wm.Replicas) {
			return fmt.Sprintf("methods[%q]: got %+v, want %+v", name, gm, wm)
		}
		for replica, wr := range wm.Replicas {
			gr := gm.Replicas[replica]
			if gr == nil || gr.Failed != wr.Failed || !bytes.Equal(encoded(gr), encoded(wr)) {
				return fmt.Sprintf("methods[%q].replicas[%q]: got %+v, want %+v", name, replica, gr, wr)
			}
		}
	}
	return ""
}

func numbers(m *report.Method) [8]uint64 {
	return [...]uint64{m.Calls, m.Safe, m.Eligible, m.Hedges, m.CancelledUnsent, m.Wins, m.Failures, m.Observed}
}

func waits(m *report.Method) []byte { return forms(&m.Hedged, &m.Unhedged, &m.HeldOut) }

func encoded(r *report.Replica) []byte {
	return forms(&r.Primary.Completed, &r.Primary.Censored, &r.Hedge.Completed, &r.Hedge.Censored)
}

func forms(hs ...*estimator.Histogram) (b []byte) {
	for _, h := range hs {
		one, err := h.AppendBinary(nil)
		b = fmt.Appendf(b, "%d: %x %v\n", h.Count(), one, err)
	}
	return b
}

// What a broken, old or hostile client might send: each frame is refused with
// an error that names field, value and bound. Clock skew is among it: a negative
// interval must not become a huge one.
func TestFrameRefused(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	method := func(f *hedgedv1.Frame) *hedgedv1.MethodReport { return f.Methods["/shop.Search/Method0"] }
	replica := func(f *hedgedv1.Frame) *hedgedv1.ReplicaReport { return method(f).Replicas["10.0.0.0:8080"] }
	const inMethod = `methods["/shop.Search/Method0"].`
	const inReplica = inMethod + `replicas["10.0.0.0:8080"].`
	for _, test := range []struct {
		name  string
		spoil func(f *hedgedv1.Frame)
		want  string
	}{
		{"sequence 0", func(f *hedgedv1.Frame) { f.Sequence = 0 }, `sequence: 0, want at least 1`},
		{"no service", func(f *hedgedv1.Frame) { f.Service = "" }, `service: service: is empty, want 1 to 256 bytes`},
		{"no tenant", func(f *hedgedv1.Frame) { f.Service = "search" }, `service: "search" has no tenant, want "tenant/service"`},
		{"10 KB service", func(f *hedgedv1.Frame) { f.Service = "default/" + long }, `is 10240 bytes long, want at most 256`},
		{"service with a control character", func(f *hedgedv1.Frame) { f.Service = "default/a\x7f" }, `service: service: "a\x7f" has the unprintable character U+007F at byte 1`},
		{"interval of -1 ns", func(f *hedgedv1.Frame) { f.Interval = durationpb.New(-1) }, `interval: 0 s -1 ns, want 0 to 1h0m0s`},
		{"interval of -2 h", func(f *hedgedv1.Frame) { f.Interval = durationpb.New(-2 * time.Hour) }, `interval: -7200 s 0 ns, want 0 to 1h0m0s`},
		{"interval over 1 h", func(f *hedgedv1.Frame) { f.Interval = durationpb.New(time.Hour + 1) }, `interval: 3600 s 1 ns, want 0 to 1h0m0s`},
		{"huge interval", func(f *hedgedv1.Frame) { f.Interval.Seconds = math.MaxInt64 }, `interval: 9223372036854775807 s 0 ns, want 0 to 1h0m0s`},
		{"interval below all", func(f *hedgedv1.Frame) { f.Interval.Seconds = math.MinInt64 }, `interval: -9223372036854775808 s 0 ns, want 0 to 1h0m0s`},
		{"interval that is no duration", func(f *hedgedv1.Frame) { f.Interval = &durationpb.Duration{Seconds: 2, Nanos: -1} }, `interval: 2 s -1 ns, want 0 to 1h0m0s`},
		{"huge dropped", func(f *hedgedv1.Frame) { f.Dropped = 1e9 + 1 }, `dropped: 1000000001, want at most 1000000000`},
		{"1,001 methods", func(f *hedgedv1.Frame) { fill(f.Methods, 1001) }, `methods: 1001, want at most 1000`},
		{"10 KB method", func(f *hedgedv1.Frame) { f.Methods[long] = nil }, `methods key: "xxxxx`},
		{"empty method", func(f *hedgedv1.Frame) { f.Methods[""] = nil }, `methods key: is empty, want 1 to 256 bytes`},
		{"method with a control character", func(f *hedgedv1.Frame) { f.Methods["/a/\r\n"] = nil }, `methods key: "/a/\r\n" has the unprintable character U+000D at byte 3`},
		{"huge calls", func(f *hedgedv1.Frame) { method(f).Calls = math.MaxUint64 }, inMethod + `calls: 18446744073709551615, want at most 1000000000`},
		{"huge hedges", func(f *hedgedv1.Frame) { method(f).Hedges = 1e9 + 1 }, inMethod + `hedges: 1000000001, want at most 1000000000`},
		{"a sum that wraps", func(f *hedgedv1.Frame) { method(f).Safe = math.MaxUint64 }, inMethod + `safe: 18446744073709551615, want at most 1000000000`},
		{"more safe than calls", func(f *hedgedv1.Frame) { method(f).Safe = 101_001 }, inMethod + `safe: 101001, want at most 100000 more than the 1000 of calls`},
		{"more eligible than safe", func(f *hedgedv1.Frame) { method(f).Eligible = 101_001 }, inMethod + `eligible: 101001, want at most 100000 more than the 1000 of safe`},
		{"more unsent than hedges", func(f *hedgedv1.Frame) { method(f).CancelledUnsent = 100_046 }, inMethod + `cancelled_unsent: 100046, want at most 100000 more than the 45 of hedges`},
		{"more wins than calls", func(f *hedgedv1.Frame) { method(f).Wins = 101_001 }, inMethod + `wins: 101001, want at most`},
		{"more failures than calls", func(f *hedgedv1.Frame) { method(f).Failures = 101_001 }, inMethod + `failures: 101001, want at most`},
		{"more suppressed than calls", func(f *hedgedv1.Frame) { method(f).Suppressed["budget"] = 101_001 }, inMethod + `suppressed["budget"]: 101001, want at most`},
		{"more observed than hedges", func(f *hedgedv1.Frame) { method(f).Observed = 100_046 }, inMethod + `observed: 100046, want at most 100000 more than the 45 of hedges`},
		{"half a pair", func(f *hedgedv1.Frame) { method(f).Pairs = []int32{1, 2, 3} }, inMethod + `pairs: 3 buckets, want two for each pair`},
		{"1,025 pairs", func(f *hedgedv1.Frame) { method(f).Pairs = make([]int32, 2050) }, inMethod + `pairs: 1025, want at most 1024`},
		{"a bucket below all", func(f *hedgedv1.Frame) { method(f).Pairs = []int32{0, 0, 0, -1922} }, inMethod + `pairs[1]: bucket -1922, want -1921 to 767`},
		{"a bucket above all", func(f *hedgedv1.Frame) { method(f).Pairs = []int32{768, 0} }, inMethod + `pairs[0]: bucket 768, want -1921 to 767`},
		{"hedged of garbage", func(f *hedgedv1.Frame) { method(f).Hedged = garbage }, inMethod + `hedged: `},
		{"unhedged of garbage", func(f *hedgedv1.Frame) { method(f).Unhedged = garbage }, inMethod + `unhedged: `},
		{"held_out of garbage", func(f *hedgedv1.Frame) { method(f).HeldOut = garbage }, inMethod + `held_out: `},
		{"unknown suppression", func(f *hedgedv1.Frame) { method(f).Suppressed["moon"] = 1 }, inMethod + `suppressed: key "moon" is unknown`},
		{"10 KB suppression", func(f *hedgedv1.Frame) { method(f).Suppressed[long] = 1 }, inMethod + `suppressed: key "xxxxx`},
		{"17 suppressions", func(f *hedgedv1.Frame) {
			for i := range 16 {
				method(f).Suppressed[fmt.Sprint(i)] = 1
			}
		}, inMethod + `suppressed: 17 keys, want at most 16`},
		{"10,001 replicas", func(f *hedgedv1.Frame) { fill(method(f).Replicas, 10_001) }, inMethod + `replicas: 10001, want at most 10000`},
		{"10 KB replica", func(f *hedgedv1.Frame) { method(f).Replicas[long] = nil }, inMethod + `replicas key: "xxxxx`},
		{"replica with a control character", func(f *hedgedv1.Frame) { method(f).Replicas["r\x00"] = nil }, inMethod + `replicas key: "r\x00" has the unprintable character U+0000 at byte 1`},
		{"huge failed", func(f *hedgedv1.Frame) { replica(f).Failed = 2e9 }, inReplica + `failed: 2000000000, want at most 1000000000`},
		{"histogram over 16 KiB", func(f *hedgedv1.Frame) { replica(f).PrimaryCompleted = make([]byte, 16<<10+1) }, inReplica + `primary_completed: 16385 bytes, want at most 16384`},
		{"primary_completed of garbage", func(f *hedgedv1.Frame) { replica(f).PrimaryCompleted = garbage }, inReplica + `primary_completed: `},
		{"primary_censored of garbage", func(f *hedgedv1.Frame) { replica(f).PrimaryCensored = garbage }, inReplica + `primary_censored: `},
		{"hedge_completed of garbage", func(f *hedgedv1.Frame) { replica(f).HedgeCompleted = garbage }, inReplica + `hedge_completed: `},
		{"hedge_censored of garbage", func(f *hedgedv1.Frame) { replica(f).HedgeCensored = garbage }, inReplica + `hedge_censored: `},
		{"histogram cut short", func(f *hedgedv1.Frame) {
			b := replica(f).PrimaryCompleted
			replica(f).PrimaryCompleted = b[:len(b)-1]
		}, inReplica + `primary_completed: `},
		{"histogram of too many observations", func(f *hedgedv1.Frame) {
			var h estimator.Histogram
			h.RecordN(time.Millisecond, 1e9)
			h.RecordN(time.Second, 1)
			replica(f).HedgeCompleted, _ = h.AppendBinary(nil)
		}, inReplica + `hedge_completed: 1000000001 observations, want at most 1000000000`},
		{"a client's server part", func(f *hedgedv1.Frame) { method(f).Server = &hedgedv1.ServerReport{Attempts: 1} }, inMethod + `server: set by a client, want it absent`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := FrameToProto(validReport(1, 1))
			test.spoil(f)
			_, err := FrameFromProto(clientSource(), f)
			refused(t, err, test.want)
		})
	}
	if _, err := FrameFromProto(clientSource(), nil); err == nil {
		t.Error("no error for no frame")
	}
}

// garbage is no histogram in any version of the layout.
var garbage = bytes.Repeat([]byte{0xff}, 64)

func TestServerFrameRefused(t *testing.T) {
	src := report.Source{ID: "server-1", Incarnation: 1, Kind: report.Server, Replica: "r1"}
	for _, test := range []struct {
		name  string
		spoil func(s *hedgedv1.ServerReport)
		want  string
	}{
		{"huge attempts", func(s *hedgedv1.ServerReport) { s.Attempts = 1e9 + 1 }, `attempts: 1000000001, want at most 1000000000`},
		{"more hedges than attempts", func(s *hedgedv1.ServerReport) { s.Hedges = 100_101 }, `hedges: 100101, want at most 100000 more than the 100 of attempts`},
		{"more cancelled than attempts", func(s *hedgedv1.ServerReport) { s.Cancelled = 100_101 }, `cancelled: 100101, want at most 100000 more than the 100 of attempts`},
		{"negative waste", func(s *hedgedv1.ServerReport) { s.Wasted = durationpb.New(-time.Second) }, `wasted: -1 s 0 ns, want 0 to 1000h0m0s`},
		{"huge waste", func(s *hedgedv1.ServerReport) { s.Wasted = durationpb.New(1001 * time.Hour) }, `wasted: 3603600 s 0 ns, want 0 to 1000h0m0s`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &hedgedv1.ServerReport{Attempts: 100, Hedges: 5, Cancelled: 3, Wasted: durationpb.New(time.Second)}
			test.spoil(s)
			_, err := FrameFromProto(src, &hedgedv1.Frame{
				Sequence: 1, Service: "default/search",
				Methods: map[string]*hedgedv1.MethodReport{"/a.B/C": {Server: s}},
			})
			refused(t, err, `methods["/a.B/C"].server.`+test.want)
		})
	}
}

// A call that is sent in one interval and hedged or ended in the next makes a
// part larger than its whole.
func TestFrameOfCallsUnderWay(t *testing.T) {
	r, err := FrameFromProto(clientSource(), &hedgedv1.Frame{
		Sequence: 1, Service: "default/search",
		Methods: map[string]*hedgedv1.MethodReport{"/a.B/C": {Eligible: 40, CancelledUnsent: 1, Wins: 39, Failures: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Methods["/a.B/C"].Wins; got != 39 {
		t.Errorf("%d wins, want 39", got)
	}
}

func TestFrameWithoutItsParts(t *testing.T) {
	r, err := FrameFromProto(clientSource(), &hedgedv1.Frame{
		Sequence: 1, Service: "default/search",
		Methods: map[string]*hedgedv1.MethodReport{
			"/a.B/C": nil,
			"/a.B/D": {Replicas: map[string]*hedgedv1.ReplicaReport{"r1": nil}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Interval != 0 || !r.Generation.IsZero() || r.Methods["/a.B/C"] == nil || r.Methods["/a.B/D"].Replicas["r1"] == nil {
		t.Errorf("got %+v", r)
	}
}

// A histogram of a few bytes that asks for terabytes, or that was cut or
// damaged, costs its sender that one frame and the receiver next to nothing.
func TestHostileHistogramsCostNothing(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f} // 2^63 - 1 as a varint
	layout := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	head := []byte{1<<5 | 6, 0, 0} // version 1, scale 6, no zeros, first bucket 0
	valid := layout(head, []byte{0, 0xfe, 64, 0})
	for name, b := range map[string][]byte{
		"gap of 2^63":               layout(head, []byte{0, 0xfe}, huge, []byte{0}),
		"count of 2^63":             layout(head, []byte{0xff}, huge),
		"zeros of 2^63":             layout(head[:1], huge),
		"first bucket at 2^62":      layout(head[:2], huge, []byte{0}),
		"many gaps":                 layout(head, bytes.Repeat([]byte{0xfe, 0xff, 0x0f}, 5000), []byte{0}),
		"counts beyond the buckets": layout(head, bytes.Repeat([]byte{0}, 16000)),
		"gap without a count":       valid[:len(valid)-1],
		"cut inside a number":       layout(head, []byte{0xff, 0x80}),
		"unknown version":           layout([]byte{7<<5 | 6}, valid[1:]),
		"coarser scale":             layout([]byte{1<<5 | 2}, valid[1:]),
	} {
		t.Run(name, func(t *testing.T) {
			f := FrameToProto(validReport(1, 1))
			replica := f.Methods["/shop.Search/Method0"].Replicas["10.0.0.0:8080"]
			replica.HedgeCensored = valid
			if _, err := FrameFromProto(clientSource(), f); err != nil {
				t.Fatalf("refused the frame before it was spoilt: %v", err)
			}
			replica.HedgeCensored = b
			var err error
			cost := allocated(func() { _, err = FrameFromProto(clientSource(), f) })
			refused(t, err, `replicas["10.0.0.0:8080"].hedge_censored: `)
			if cost > 64<<10 {
				t.Errorf("refusing it allocated %d bytes, want at most 64 KiB", cost)
			}
		})
	}
}

// A byte of a frame can touch an octave of a histogram, which is 512 bytes of
// memory. The sum over a frame is bounded, whether it is accepted or refused.
func TestDearestFrameIsBounded(t *testing.T) {
	var h estimator.Histogram
	for d := time.Duration(1); d < 4096*time.Second; d *= 2 {
		h.Record(d)
	}
	dear := report.Replica{Primary: estimator.Sample{Completed: h, Censored: h}, Hedge: estimator.Sample{Completed: h, Censored: h}}
	for _, test := range []struct {
		replicas int
		want     string
	}{
		{1400, ""},
		{6000, "bytes decoded, want at most 134217728"},
	} {
		r := validReport(1, 0)
		for i := range test.replicas {
			r.Methods["/shop.Search/Method0"].Replicas[fmt.Sprint(i)] = &dear
		}
		f := FrameToProto(r)
		var err error
		cost := allocated(func() { _, err = FrameFromProto(clientSource(), f) })
		if test.want != "" {
			refused(t, err, test.want)
		} else if err != nil {
			t.Fatal(err)
		}
		if cost > MaxDecodedBytes+MaxDecodedBytes/8 {
			t.Errorf("a frame of %d bytes allocated %d, want at most %d and an eighth", proto.Size(f), cost, MaxDecodedBytes)
		}
		t.Logf("a frame of %d bytes allocated %d", proto.Size(f), cost)
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The widest histogram there is fits the bound on its bytes, so that an honest
// client never loses one.
func TestWidestHistogramFits(t *testing.T) {
	var h estimator.Histogram
	for d := 1.0; d < 1e9*3600*24; d *= math.Pow(2, 1./128) {
		h.RecordN(time.Duration(d), 300_000)
	}
	rep := &report.Replica{}
	rep.Primary.Completed = h
	r := validReport(1, 0)
	r.Methods["/shop.Search/Method0"].Replicas["r1"] = rep
	f := FrameToProto(r)
	if f.Dropped != 0 || len(f.Methods["/shop.Search/Method0"].Replicas["r1"].PrimaryCompleted) == 0 {
		t.Errorf("%d observations dropped", f.Dropped)
	}
}

func FuzzFrame(f *testing.F) {
	add := func(m *hedgedv1.Frame, server bool) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, server)
		f.Add(b[:len(b)/2], server)
	}
	add(FrameToProto(validReport(2, 2)), false)
	add(&hedgedv1.Frame{}, false)
	add(&hedgedv1.Frame{
		Sequence: 1, Service: "default/search", Interval: durationpb.New(time.Second),
		Methods: map[string]*hedgedv1.MethodReport{"/a.B/C": {Server: &hedgedv1.ServerReport{Attempts: 3, Hedges: 1}}},
	}, true)
	hostile := FrameToProto(validReport(1, 1))
	hostile.Methods["/shop.Search/Method0"].Replicas["10.0.0.0:8080"].HedgeCensored = garbage
	add(hostile, false)

	f.Fuzz(func(t *testing.T, b []byte, server bool) {
		var m hedgedv1.Frame
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		src := clientSource()
		if server {
			src.Kind = report.Server
		}
		r, err := FrameFromProto(src, &m)
		if err != nil {
			return
		}
		again, err := FrameFromProto(src, overTheWire(t, FrameToProto(r)))
		if err != nil {
			t.Fatalf("refused what it made itself: %v", err)
		}
		if diff := difference(again, r); diff != "" {
			t.Fatal(diff)
		}
	})
}

// One frame of 10 methods by 12 replicas, 1,000 calls of each method.

func BenchmarkFrameToProto(b *testing.B) {
	r := validReport(10, 12)
	b.ReportAllocs()
	for b.Loop() {
		FrameToProto(r)
	}
	b.ReportMetric(float64(proto.Size(FrameToProto(r))), "wire-bytes")
}

func BenchmarkFrameFromProto(b *testing.B) {
	f := FrameToProto(validReport(10, 12))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FrameFromProto(clientSource(), f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFrameUnmarshal(b *testing.B) {
	encoded, err := proto.Marshal(FrameToProto(validReport(10, 12)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var f hedgedv1.Frame
		if err := proto.Unmarshal(encoded, &f); err != nil {
			b.Fatal(err)
		}
		if _, err := FrameFromProto(clientSource(), &f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPolicyVersion(b *testing.B) {
	p := validPolicy()
	b.ReportAllocs()
	for b.Loop() {
		PolicyVersion(p)
	}
}
