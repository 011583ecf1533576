package client

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

const get = "/shop.Orders/Get"

// silent answers nothing.
func silent(*hedgedv1.Frame) (*hedgedv1.ReportResponse, error) { return nil, nil }

// calls adds up what frames report of a method.
func calls(frames []*hedgedv1.Frame, method string) (n uint64) {
	for _, f := range frames {
		n += f.Methods[method].GetCalls()
	}
	return n
}

func TestReportsCarryWhatWasCounted(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		m := s.method(get)
		for range 99 {
			s.noteCall(m, true)
			m.replica("a").primary.completed.Record(10 * time.Millisecond)
		}
		s.noteEligible(m)
		m.hedges.Add(1)
		m.suppressed[policy.SuppressedBudget].Add(2)
		m.replica("b").hedge.censored.Record(5 * time.Millisecond)
		m.replica("b").failed.Add(3)
		s.pending(ms)
		time.Sleep(2 * ms)
		s.pending(ms)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()

		frames := d.reported()
		if len(frames) != 1 {
			t.Fatalf("%d frames within 1.1 s, want 1", len(frames))
		}
		f := frames[0]
		got := f.Methods[get]
		if f.Sequence != 1 || f.Service != "default/orders" || f.Interval.AsDuration() != time.Second || f.Generation != nil || f.Early || !f.Silent {
			t.Errorf("frame is %v", f)
		}
		if got.GetCalls() != 99 || got.GetSafe() != 99 || got.GetEligible() != 1 || got.GetHedges() != 1 || got.GetSuppressed()["budget"] != 2 {
			t.Errorf("counts are %v", got)
		}
		if len(got.Replicas["a"].GetPrimaryCompleted()) == 0 || len(got.Replicas["b"].GetHedgeCensored()) == 0 || got.Replicas["b"].GetFailed() != 3 {
			t.Errorf("replicas are %v", got.Replicas)
		}
		if src := d.sources[0]; src.Id != "client-1" || src.Zone != "zone-a" || src.Incarnation == 0 || src.Kind != hedgedv1.SourceKind_SOURCE_KIND_CLIENT {
			t.Errorf("source is %v", src)
		}

		s.silence.Answered()
		time.Sleep(time.Second)
		synctest.Wait()
		if frames = d.reported(); len(frames) != 2 || len(frames[1].Methods) != 0 || frames[1].Silent || frames[1].Sequence != 2 {
			t.Errorf("after a second without calls the frames are %v, want an empty second one", frames)
		}
	})
}

// A service that is busy is reported four times as often, others and servers are not.
func TestBusyServiceIsReportedAheadOfTheCadence(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		m := s.method(get)
		calls := func(n int) (frames int) {
			before := len(d.reported())
			for range 4 {
				for range n {
					s.noteCall(m, true)
				}
				time.Sleep(defaultCadence / 4)
				synctest.Wait()
			}
			return len(d.reported()) - before
		}
		time.Sleep(ms)
		if got := calls(100); got != 4 {
			t.Errorf("%d frames of a second with 400 calls, want 4", got)
		}
		if got := calls(20); got != 1 {
			t.Errorf("%d frames of a second with 80 calls, want 1", got)
		}
	})
}

func TestPolicyCutsTheReport(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		m := s.method(get)
		time.Sleep(400 * time.Millisecond)
		s.noteCall(m, true)
		d.pushPolicy(activePolicy(1))
		synctest.Wait()
		s.noteCall(m, true)
		s.noteCall(m, true)
		d.pushPolicy(activePolicy(2))
		synctest.Wait()
		frames := d.reported()
		if len(frames) != 2 {
			t.Fatalf("%d frames, want one for each policy that came", len(frames))
		}
		if frames[0].Generation != nil || calls(frames[:1], get) != 1 || frames[0].Interval.AsDuration() != 400*time.Millisecond {
			t.Errorf("first frame is %v, want one call without a policy in 400 ms", frames[0])
		}
		if frames[1].Generation.GetNumber() != 1 || calls(frames[1:], get) != 2 {
			t.Errorf("second frame is %v, want two calls under generation 1", frames[1])
		}
	})
}

func TestEligibilityThatRunsAwayIsReportedEarly(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		quiet := c.service(policy.Key{Tenant: "shop", Service: "quiet"})
		quiet.noteCall(quiet.method(get), true)
		d.pushPolicy(activePolicy(1))
		synctest.Wait()
		before := len(d.reported())
		start := time.Now()
		m := s.method(get)
		var at []time.Duration
		d.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
			if f.Early {
				at = append(at, time.Since(start))
			}
			return &hedgedv1.ReportResponse{Acknowledged: f.Sequence}, nil
		})
		for range 900 { // everything freezes
			s.noteCall(m, true)
			s.noteEligible(m)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if len(at) < 4 || at[0] > 20*time.Millisecond {
			t.Fatalf("early reports came at %v, want the first within 20 ms", at)
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < hedge.EarlyGap {
				t.Errorf("early reports came at %v, want %v between them", at, hedge.EarlyGap)
			}
		}
		for _, f := range d.reported()[before:] {
			if f.Service != "default/orders" {
				t.Errorf("%s reported early although its eligibility did not run away", f.Service)
			}
		}
	})
}

// A frame that was not acknowledged when the stream broke is sent again as it
// was; one that was acknowledged is not.
func TestUnacknowledgedFrameIsSentAgainAsItWas(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		m := s.method(get)
		breaking := true
		d.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
			if breaking && f.Sequence >= 3 {
				return nil, errors.New("break")
			}
			return &hedgedv1.ReportResponse{Acknowledged: f.Sequence}, nil
		})
		for range 5 {
			s.noteCall(m, true)
			m.replica("a").primary.completed.Record(time.Millisecond)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		d.mu.Lock()
		breaking = false
		d.mu.Unlock()
		for range 10 {
			s.noteCall(m, true)
			time.Sleep(time.Second)
		}
		synctest.Wait()

		seen := map[uint64]*hedgedv1.Frame{}
		again := map[uint64]int{}
		var distinct []*hedgedv1.Frame
		for _, f := range d.reported() {
			if first := seen[f.Sequence]; first != nil {
				again[f.Sequence]++
				if !proto.Equal(first, f) {
					t.Errorf("frame %d was sent again as %v, first as %v", f.Sequence, f, first)
				}
				continue
			}
			seen[f.Sequence] = f
			distinct = append(distinct, f)
		}
		if again[3] == 0 || again[1]+again[2] != 0 {
			t.Errorf("sent again: %v; want frame 3, and neither 1 nor 2", again)
		}
		if got := calls(distinct, get); got != 15 {
			t.Errorf("%d calls in distinct frames, want 15", got)
		}
	})
}

func TestCadenceComesFromTheDaemon(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
			return &hedgedv1.ReportResponse{Acknowledged: f.Sequence, Cadence: durationpb.New(250 * time.Millisecond)}, nil
		})
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		if got := len(d.reported()); got != 5 {
			t.Errorf("%d frames in 2 s, want 1 at 1 s and 4 at 250 ms each", got)
		}
	})
}

// Each answer repeats the cadence; that must not put the next report off.
func TestRepeatedCadenceDoesNotDelayReports(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		for range 10 {
			c.SetCadence(defaultCadence)
			time.Sleep(300 * time.Millisecond)
		}
		synctest.Wait()
		if got := len(d.reported()); got < 2 {
			t.Errorf("%d frames in 3 s at a cadence of 1 s", got)
		}
	})
}

func TestCadenceIsClamped(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		c.SetCadence(time.Nanosecond)
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if got := len(d.reported()); got != 10 {
			t.Errorf("%d frames in 1 s at a cadence of 1 ns, want 10", got)
		}
	})
}

func TestRefusedReportIsLoggedOncePerKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := startFake(t)
		o := d.options()
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := newClient(t, o)
		c.service(orders)
		d.answers(func(f *hedgedv1.Frame) (*hedgedv1.ReportResponse, error) {
			return &hedgedv1.ReportResponse{Acknowledged: f.Sequence, Refused: "methods[\"a\"].calls: 2e9, want at most 1e9"}, nil
		})
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if got := c.RefusedReports(); got != 5 {
			t.Errorf("%d refused reports, want 5", got)
		}
		if got := strings.Count(log.String(), "refused"); got != 1 {
			t.Errorf("%d log lines, want 1:\n%s", got, log.String())
		}
		if got := len(d.reported()); got != 5 {
			t.Errorf("%d frames, want 5: a refused one is not sent again", got)
		}
	})
}

func TestCloseSendsTheLastCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		c := newClient(t, d.options())
		s := c.service(orders)
		synctest.Wait()
		d.pushPolicy(activePolicy(1))
		time.Sleep(100 * time.Millisecond)
		s.noteCall(s.method(get), true)
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := calls(d.reported(), get); got != 1 {
			t.Errorf("%d calls were reported, want 1", got)
		}
		if s.policy() != nil {
			t.Error("a closed client still hedges")
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestCloseIsBoundedWithoutADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		d.stop()
		c := newClient(t, d.options())
		s := c.service(orders)
		s.noteCall(s.method(get), true)
		time.Sleep(3 * time.Second)
		start := time.Now()
		err := c.Close()
		if took := time.Since(start); err == nil || took > closeTimeout {
			t.Errorf("Close took %v and returned %v, want an error within %v", took, err, closeTimeout)
		}
	})
}
