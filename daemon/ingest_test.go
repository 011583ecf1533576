package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// What clients report becomes a policy within a tick, and goes out by itself.
func TestReportsBecomeAPolicyWithinATick(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		s := w.subscribe("node", orders.String(), "")
		defer s.close()
		p, _, nonce := s.one()
		if p.Mode != policy.ModeActive || p.Reason.Code != policy.ReasonNoData || len(p.Methods) != 0 {
			t.Errorf("before any data: %+v", p)
		}
		s.answer(nonce, "")

		r := w.report(clientSource("client-1"))
		defer r.close()
		if got := r.first.Cadence.AsDuration(); got != w.cfg.Cadence {
			t.Errorf("cadence %v, want %v", got, w.cfg.Cadence)
		}
		r.take(frame(1, "orders", get, 2000, 10*time.Millisecond))
		w.tick()
		p, _, _ = s.one()
		if d := p.Methods[get].Delay; d < 10*time.Millisecond || d > 110*time.Millisecond {
			t.Errorf("delay %v, want it between what 95 and what all of 100 calls took", d)
		}
		if got := w.service("orders"); got.Load.Calls != 2000 || got.Clients != 1 {
			t.Errorf("status: %d calls of %d clients, want 2000 of 1", got.Load.Calls, got.Clients)
		}
	})
}

// A frame that was not acknowledged is sent again as it was, and counts once.
func TestFrameSentAgainCountsOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		for seq := uint64(1); seq <= 3; seq++ {
			r.take(frame(seq, "orders", get, 100, time.Millisecond))
		}
		r.close() // the acknowledgements of 2 and 3 were lost, say

		r = w.report(clientSource("client-1"))
		defer r.close()
		if r.first.Acknowledged != 3 {
			t.Errorf("a new stream is told that %d is the last, want 3", r.first.Acknowledged)
		}
		for seq := uint64(2); seq <= 3; seq++ {
			if a := r.send(frame(seq, "orders", get, 100, time.Millisecond)); a.Acknowledged != 3 || a.Refused != "" {
				t.Errorf("repetition of %d: answered %v", seq, a)
			}
		}
		r.take(frame(4, "orders", get, 100, time.Millisecond))
		w.tick()
		if got := w.service("orders").Load.Calls; got != 400 {
			t.Errorf("%d calls, want 400", got)
		}
		m := w.metrics()
		m.want("hedged_report_frames_total", "", 4)
		m.want("hedged_report_frames_duplicate_total", "", 2)

		// Another life of the same client numbers from 1 again.
		next := clientSource("client-1")
		next.Incarnation = 2
		r2 := w.report(next)
		defer r2.close()
		r2.take(frame(1, "orders", get, 100, time.Millisecond))
		w.tick()
		if got := w.service("orders").Load.Calls; got != 500 {
			t.Errorf("%d calls, want 500", got)
		}
	})
}

// A source may let one answer stand for several frames: fewer writes at both ends.
// What is refused is answered at once, and so is all when it closes its side.
func TestOneAnswerForSeveralFrames(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		src := clientSource("client-1")
		src.FramesPerAnswer = 4
		r := w.report(src)
		defer r.close()
		answers := make(chan *hedgedv1.ReportResponse, 100)
		go func() {
			defer close(answers)
			for {
				a, err := r.stream.Recv()
				if err != nil {
					return
				}
				answers <- a
			}
		}()
		send := func(f *hedgedv1.Frame) {
			t.Helper()
			if err := r.stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: f}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		want := func(when string, acknowledged ...uint64) {
			t.Helper()
			var got []uint64
			for len(answers) > 0 {
				got = append(got, (<-answers).Acknowledged)
			}
			if !slices.Equal(got, acknowledged) {
				t.Errorf("%s: answered %d, want %d", when, got, acknowledged)
			}
		}
		for seq := uint64(1); seq <= 9; seq++ {
			send(frame(seq, "orders", get, 100, time.Millisecond))
		}
		want("nine frames", 4, 8)
		send(frame(9, "orders", get, 100, time.Millisecond))
		want("a frame that came again", 9)
		bad := frame(10, "orders", get, 100, time.Millisecond)
		bad.Dropped = 1e18
		send(bad)
		want("a frame that is refused", 10)
		send(frame(11, "orders", get, 100, time.Millisecond))
		want("a frame")
		if err := r.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want("the end", 11)
		w.tick()
		if got := w.service("orders").Load.Calls; got != 1000 {
			t.Errorf("%d calls, want 1000", got)
		}
	})
}

// A frame whose stream breaks while its service's owner is busy was not taken:
// when it comes again it counts.
func TestFrameOfABrokenStreamIsTakenFromTheNext(t *testing.T) {
	t.Parallel()
	taken, busy := 0, true
	in := &ingest{ctx: t.Context(), logger: slog.New(slog.DiscardHandler), sources: map[sourceKey]*source{}}
	broken, cancel := context.WithCancel(t.Context())
	in.post = func(ctx context.Context, _ *report.Report) error {
		if busy {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		taken++
		return nil
	}
	src, err := in.open(report.Source{ID: "client-1", Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer in.close(src)
	req := &hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: frame(1, "orders", get, 1, time.Millisecond)}}
	if a, _, err := in.handle(broken, src, req); err == nil {
		t.Errorf("on the broken stream: answered %v, want an error", a)
	}
	busy = false
	for range 2 {
		if a, _, err := in.handle(t.Context(), src, req); err != nil || a.Acknowledged != 1 || a.Refused != "" {
			t.Errorf("on the next stream: %v, %v", a, err)
		}
	}
	if taken != 1 {
		t.Errorf("taken %d times, want once", taken)
	}
}

// While a broken stream is not noticed, its frame may still wait for the owner
// when it comes again on the next stream: it counts once.
func TestFrameOnTwoStreamsOfOneSourceCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		in := &ingest{ctx: t.Context(), logger: slog.New(slog.DiscardHandler), sources: map[sourceKey]*source{}}
		in.post = func(context.Context, *report.Report) error {
			taken++
			time.Sleep(time.Second) // the owner is busy
			return nil
		}
		src, err := in.open(report.Source{ID: "client-1", Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		req := &hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: frame(1, "orders", get, 1, time.Millisecond)}}
		var streams sync.WaitGroup
		for range 2 {
			streams.Go(func() {
				if a, _, err := in.handle(t.Context(), src, req); err != nil || a.Acknowledged != 1 || a.Refused != "" {
					t.Errorf("answered %v, %v", a, err)
				}
			})
		}
		streams.Wait()
		if taken != 1 {
			t.Errorf("taken %d times, want once", taken)
		}
	})
}

// A frame that is out of bounds is refused with field, value and bound, and
// counted; neither its stream nor other clients notice more. Among them are bad
// times: a clock that went backwards makes an interval negative.
func TestFrameOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		good := w.report(clientSource("good"))
		defer good.close()
		bad := w.report(clientSource("bad"))
		defer bad.close()
		var refused float64
		for i, c := range []struct {
			change func(*hedgedv1.Frame)
			want   string
		}{
			{func(f *hedgedv1.Frame) { f.Sequence = 0 }, "sequence: 0, want at least 1"},
			{func(f *hedgedv1.Frame) { f.Service = "" }, "service: "},
			{func(f *hedgedv1.Frame) { f.Service = "default/a\x1b[2J" }, "unprintable character U+001B"},
			{func(f *hedgedv1.Frame) { f.Service = "default/" + strings.Repeat("x", 10<<10) }, "10240 bytes long, want at most 256"},
			{func(f *hedgedv1.Frame) { f.Interval = durationpb.New(-1) }, "interval: 0 s -1 ns, want 0 to 1h0m0s"},
			{func(f *hedgedv1.Frame) { f.Interval = durationpb.New(-2 * time.Hour) }, "interval: -7200 s 0 ns, want 0 to 1h0m0s"},
			{func(f *hedgedv1.Frame) { f.Interval = durationpb.New(time.Hour + 1) }, "interval: 3600 s 1 ns, want 0 to 1h0m0s"},
			{func(f *hedgedv1.Frame) { f.Interval = &durationpb.Duration{Seconds: 1 << 62} }, "interval: "},
			{func(f *hedgedv1.Frame) { f.Dropped = 2e9 }, "dropped: 2000000000, want at most 1000000000"},
			{func(f *hedgedv1.Frame) { f.Methods[get].Calls = 1 << 63 }, "calls: 9223372036854775808, want at most 1000000000"},
			{func(f *hedgedv1.Frame) { f.Methods[get].Safe = 500_000_000 }, "safe: 500000000, want at most"},
			{func(f *hedgedv1.Frame) { f.Methods["/a\x00b"] = &hedgedv1.MethodReport{} }, "methods key: "},
			{func(f *hedgedv1.Frame) { f.Methods[get].Suppressed = map[string]uint64{"mood": 1} }, `suppressed: key "mood" is unknown`},
			{func(f *hedgedv1.Frame) {
				f.Methods[get].Replicas["r"] = &hedgedv1.ReplicaReport{PrimaryCompleted: []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}}
			}, "primary_completed: "},
			{func(f *hedgedv1.Frame) {
				f.Methods[get].Replicas["r"] = &hedgedv1.ReplicaReport{HedgeCensored: make([]byte, 17<<10)}
			}, "hedge_censored: 17408 bytes, want at most 16384"},
			{func(f *hedgedv1.Frame) { f.Methods[get].Server = &hedgedv1.ServerReport{Attempts: 1} }, "server: set by a client"},
		} {
			f := frame(uint64(i+1), "orders", get, 10, time.Second)
			c.change(f)
			a := bad.send(f)
			refused++
			if !strings.Contains(a.Refused, c.want) {
				t.Errorf("answer %q, want it to say %q", a.Refused, c.want)
			}
			if a.Acknowledged != max(f.Sequence, uint64(i)) {
				t.Errorf("%s: acknowledged %d, want %d: it must not come again", c.want, a.Acknowledged, f.Sequence)
			}
			good.take(frame(uint64(i+1), "orders", get, 100, time.Millisecond))
		}
		bad.take(frame(100, "orders", get, 1, time.Millisecond)) // its stream goes on
		w.tick()
		w.metrics().want("hedged_report_frames_refused_total", "", refused)
		if got := w.client("bad").RefusedFrames; float64(got) != refused {
			t.Errorf("%d refused frames of the client, want %g", got, refused)
		}
		if got := w.service("orders"); float64(got.Load.Calls) != 100*refused+1 || got.Methods[0].P50.AsDuration() > 2*time.Millisecond {
			t.Errorf("%d calls, half within %v: something of a refused frame was used", got.Load.Calls, got.Methods[0].P50.AsDuration())
		}
		servers := w.report(serverSource("replica-1"))
		defer servers.close()
		f := frame(1, "orders", get, 0, 0)
		f.Methods[get].Server = &hedgedv1.ServerReport{Attempts: 1, Cancelled: 1, Wasted: durationpb.New(-time.Second)}
		if a := servers.send(f); !strings.Contains(a.Refused, "wasted: -1 s 0 ns, want 0 to 1000h0m0s") {
			t.Errorf("negative waste: answered %q", a.Refused)
		}
	})
}

// What is not a source, or not a frame, ends the stream with a reason.
func TestSourceOutOfBoundsEndsTheStream(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		frame1 := &hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: frame(1, "orders", get, 1, time.Millisecond)}}
		source := func(s *hedgedv1.Source) *hedgedv1.ReportRequest {
			return &hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: s}}
		}
		long := clientSource(strings.Repeat("x", 10<<10))
		control := clientSource("a\nb")
		none := clientSource("a")
		none.Incarnation = 0
		for _, c := range []struct {
			req  *hedgedv1.ReportRequest
			want string
		}{
			{frame1, "source: is absent"},
			{source(long), "source.id: "},
			{source(control), "unprintable character U+000A"},
			{source(none), "source.incarnation: 0, want more than 0"},
		} {
			r := hedgedv1.NewReportServiceClient(w.conn)
			stream, err := r.Report(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(c.req); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want InvalidArgument with %q", err, c.want)
			}
		}
		r := w.report(clientSource("twice"))
		defer r.close()
		if err := r.stream.Send(source(clientSource("twice"))); err != nil {
			t.Fatal(err)
		}
		if _, err := r.stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a second source: %v, want InvalidArgument", err)
		}
		w.metrics().want("hedged_report_frames_refused_total", "", 4)
	})
}

// A source that closes its side gets its answers and a clean end.
func TestSourceMayCloseItsSide(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		r.take(frame(1, "orders", get, 1, time.Millisecond))
		if err := r.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end of the stream", err)
		}
		r.close()
		w.metrics().want("hedged_report_streams", "", 0)
		if c := w.client("client-1"); c.Streaming || c.ReportAge == nil {
			t.Errorf("the client is remembered without a stream: %v", c)
		}
		time.Sleep(sourceMemory + 2*time.Minute)
		w.metrics().want("hedged_report_sources", "", 0)
	})
}

// Names without end make a bounded number of services and sources, and hurt
// nobody who is known already.
func TestNamesWithoutEndAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		good := w.report(clientSource("good"))
		defer good.close()
		good.take(frame(1, "orders", get, 1, time.Millisecond))
		r := w.report(clientSource("bad"))
		defer r.close()

		src := w.d.ingest.sources[sourceKey{"bad", 1, report.Client}]
		for i := range maxSourceServices {
			src.generations[policy.Key{Tenant: "t", Service: fmt.Sprint(i)}] = policy.Generation{}
		}
		if a := r.send(frame(1, "one-more", get, 1, time.Millisecond)); !strings.Contains(a.Refused, "default/one-more would be one more than 1000 of one source") {
			t.Errorf("answered %q", a.Refused)
		}

		known := w.d.owners[orders]
		for i := len(w.d.owners); i < maxServices; i++ {
			w.d.owners[policy.Key{Tenant: "t", Service: fmt.Sprint(i)}] = known
		}
		if a := good.send(frame(2, "new", get, 1, time.Millisecond)); !strings.Contains(a.Refused, "default/new would be one more than 10000") {
			t.Errorf("answered %q", a.Refused)
		}
		if _, err := w.override("new", hedgedv1.Mode_MODE_OFF); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("override of one service too many: %v, want ResourceExhausted", err)
		}
		good.take(frame(3, "orders", get, 1, time.Millisecond))

		for i := len(w.d.ingest.sources); i < maxSources; i++ {
			w.d.ingest.sources[sourceKey{fmt.Sprint(i), 1, report.Client}] = src
		}
		stream, err := hedgedv1.NewReportServiceClient(w.conn).Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: clientSource("new")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "want at most 100000") {
			t.Errorf("one source too many: %v", err)
		}
		good.take(frame(4, "orders", get, 1, time.Millisecond))
	})
}

// A source that sent nothing is not remembered.
func TestSilentSourceIsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		for i := range uint64(50) {
			src := clientSource("client-1")
			src.Incarnation = i + 1
			w.report(src).close()
		}
		w.metrics().want("hedged_report_sources", "", 0)
	})
}

// A frame of the size at which clients cut theirs gets through.
func TestLargestFrameOfAClientIsTaken(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		f := frame(1, "orders", get, 1, time.Millisecond)
		for i := range 10_000 {
			name := fmt.Sprintf("%04d", i) + strings.Repeat("x", 250)
			f.Methods[get].Replicas[name] = &hedgedv1.ReplicaReport{Failed: 1}
		}
		f.Methods["/m"] = f.Methods[get]
		delete(f.Methods, get)
		if a := r.send(f); !strings.Contains(a.Refused, "replicas: 10001, want at most 10000") {
			t.Errorf("answered %.200q", a.Refused)
		}
		delete(f.Methods["/m"].Replicas, "10.0.0.0:80")
		f.Sequence = 2
		r.take(f)
	})
}
