package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// plainUniform is steadyUniform without its stalls.
func plainUniform(w *world, _ string) time.Duration {
	return 5*time.Millisecond + time.Duration(w.rng.Int64N(int64(10*time.Millisecond)))
}

// stalling makes a share of calls take so much longer on every copy.
func (w *world) stalling(share float64, long time.Duration) func() time.Duration {
	return func() time.Duration {
		if w.rng.Float64() < share {
			return long
		}
		return 0
	}
}

// One call in a hundred stalls on every copy: hedges rescue nothing, so after some
// seconds they are but a few, to learn of the end. That may be that copies stall by
// themselves, which hedges rescue, or that nothing stalls any more.
func TestSharedSlownessRestrainsHedging(t *testing.T) {
	for name, after := range map[string]func(*world, string) time.Duration{"own": steadyUniform, "nothing": plainUniform} {
		for _, clients := range []int{1, 20} {
			now := plainUniform
			w := newWorld(configured(), clients, 1000, 3, func(w *world, r string) time.Duration { return now(w, r) })
			w.stalls = w.stalling(.01, time.Second)
			w.run(15 * time.Second)
			m, _ := w.policy.Method(testMethod)
			if m.Reason.Code != policy.ReasonShared || !strings.Contains(m.Reason.Text, "slow on every copy") {
				t.Fatalf("%s, %d clients: %+v, want it restrained", name, clients, m)
			}
			within(t, "probability", m.Probability, .15, .2)
			within(t, "attempts", m.MaxAttempts, 2, 2)
			within(t, "delay", m.Delay, 36*time.Millisecond, 38*time.Millisecond)
			var p paused
			p.watch(w, policy.ReasonShared)
			w.run(20 * time.Second)
			within(t, "restrained", w.now.Sub(p.since), 20*time.Second, 20*time.Second)
			extra, _ := w.svc.Status(w.now).Load.ExtraLoad()
			within(t, "extra load", extra, .0002, .004)
			end := w.now
			now, w.stalls = after, nil
			w.run(10 * time.Second)
			within(t, name+": hedges again after", p.last.Sub(end), 0, 8*time.Second)
			within(t, "delay", w.delay(), 14*time.Millisecond, 15*time.Millisecond)
		}
	}
}

// In an episode three calls in ten stall on every copy.
func TestSharedEpisode(t *testing.T) {
	for _, clients := range []int{1, 20, 200} {
		w := newWorld(configured(), clients, 1000, 5, lognormal)
		w.run(40 * time.Second)
		start := w.now
		var p paused
		p.watch(w, policy.ReasonShared)
		w.stalls = w.stalling(.3, 300*time.Millisecond)
		w.run(5 * time.Second)
		if p.first.IsZero() || p.since.IsZero() {
			t.Errorf("%d clients: restrained at %v, at the end %v", clients, p.first.Sub(start), !p.since.IsZero())
		}
		within(t, "restrained after", p.first.Sub(start), 0, 1250*time.Millisecond)
		w.stalls = nil
		w.run(8 * time.Second)
		if !p.since.IsZero() {
			t.Errorf("%d clients: still restrained after 8 s", clients)
		}
	}
}

// Copies that stall by themselves, or are alike in part, are what hedges are for.
func TestOwnSlownessIsNotShared(t *testing.T) {
	for name, latency := range map[string]func(*world, string) time.Duration{
		"stalls":    steadyUniform,
		"lognormal": lognormal,
		"pareto": func(w *world, _ string) time.Duration {
			return time.Duration(float64(2*time.Millisecond) / math.Pow(1-w.rng.Float64(), 1/1.5))
		},
		"one slow replica": func(w *world, r string) time.Duration {
			if r == "replica-0" {
				return 3 * w.uniform(1)
			}
			return w.uniform(1)
		},
	} {
		w := newWorld(configured(), 5, 1000, 3, latency)
		var p paused
		p.watch(w, policy.ReasonShared)
		w.run(40 * time.Second)
		if !p.first.IsZero() {
			t.Errorf("%s: restrained after %v", name, p.first.Sub(epoch))
		}
	}
}

// While reports mix what was before a shift with what came after it, hedges look
// alike with their primaries. That ends with the mixture.
func TestShiftIsNoSharedSlowness(t *testing.T) {
	for _, clients := range []int{1, 20, 200} {
		for _, factor := range []float64{3, 10} {
			scale := 1.0
			w := newWorld(configured(), clients, 1000, 3, func(w *world, _ string) time.Duration { return w.uniform(scale) })
			w.run(20 * time.Second)
			var p paused
			p.watch(w, policy.ReasonShared)
			scale = factor
			w.run(10 * time.Second)
			within(t, "restrained by the rise", p.total, 0, 1200*time.Millisecond)
			scale = 1
			w.run(10 * time.Second)
			within(t, "and the fall", p.total, 0, 1200*time.Millisecond)
			if !p.since.IsZero() {
				t.Errorf("%d clients, times %v: still restrained", clients, factor)
			}
		}
	}
}

// told makes a shared that hears of so many hedges at once.
type told struct {
	s   shared
	now time.Time
	in  sharedInput
}

func newTold() *told {
	sample := &estimator.Sample{}
	sample.Completed.RecordN(10*time.Millisecond, 950)
	sample.Completed.RecordN(time.Second, 50)
	return &told{now: epoch, in: sharedInput{
		inForce:  20 * time.Millisecond,
		max:      10 * time.Second,
		sample:   sample,
		target:   .05,
		crowding: 1,
	}}
}

func (o *told) hear(t *testing.T, fail, succeed, silent uint64, want bool) {
	t.Helper()
	o.now = o.now.Add(time.Second)
	o.s.hedges.Completed.RecordN(10*time.Millisecond, succeed)
	o.s.hedges.Censored.RecordN(10*time.Millisecond, silent) // cancelled early: they tell nothing
	o.s.hedges.Completed.RecordN(time.Second, fail/2)
	o.s.hedges.Censored.RecordN(time.Second, fail-fail/2)
	if got, text := o.s.decide(o.now, o.in); got != want {
		t.Errorf("after %d, %d and %d hedges: %v, want %v (%s, %v nats)", fail, succeed, silent, got, want, text, o.s.nats)
	}
}

func TestSharedWeighsHedges(t *testing.T) {
	o := newTold()
	o.hear(t, 0, 0, 1000, false)
	o.hear(t, 12, 0, 0, false)
	o.hear(t, 1, 0, 0, true) // 13 that fail
	o.hear(t, 0, 2, 0, true)
	o.hear(t, 0, 0, 10, true)
	o.hear(t, 0, 1, 0, false) // 3 that succeed
	o.hear(t, 30, 10, 0, false)
	o.hear(t, 1000, 0, 0, true)
	o.hear(t, 0, 4, 0, true)
	o.hear(t, 0, 2, 0, false) // no more evidence was kept than sharedMost
}

// Where nearly all primaries outlive the delay, it is nothing that hedges do, too.
func TestSharedNeedsQuickerPrimaries(t *testing.T) {
	o := newTold()
	o.hear(t, 1000, 0, 0, true)
	o.in.sample.Completed.RecordN(time.Second, 10000)
	o.hear(t, 0, 0, 0, false)
	o.hear(t, 1000, 0, 0, false)
}

// Without an estimate nothing is restrained, and an estimate starts anew.
func TestSharedEndsWithTheEstimate(t *testing.T) {
	s := New(testKey, configured())
	feed(s, epoch, 1000, 10*time.Millisecond, 3)
	s.Tick(epoch)
	hedges := &report.Replica{}
	hedges.Hedge.Completed.RecordN(time.Second, 100)
	s.Add(epoch, &report.Report{Methods: map[string]*report.Method{testMethod: {
		Replicas: map[string]*report.Replica{"a": hedges},
	}}})
	if p := s.Tick(epoch).Policy; p.Methods[testMethod].Reason.Code != policy.ReasonShared || p.Reason.Code != policy.ReasonShared {
		t.Fatalf("%+v, want it restrained", p)
	}
	now := epoch.Add(2 * memory)
	if m := s.Tick(now).Policy.Methods[testMethod]; m.Reason.Code != policy.ReasonNoData {
		t.Errorf("after silence: %+v, want no data", m)
	}
	feed(s, now, 1000, 10*time.Millisecond, 3)
	if m := s.Tick(now).Policy.Methods[testMethod]; m.Reason.Code != policy.ReasonTracking || m.Probability != 1 {
		t.Errorf("with data again: %+v, want it tracked", m)
	}
}

// Hedges of before a longer delay are held against the delay that they had.
func TestSharedHoldsTheDelay(t *testing.T) {
	o := newTold()
	o.hear(t, 0, 0, 0, false)
	o.in.inForce = 2 * time.Second // as long as the slow ones
	o.hear(t, 20, 0, 0, true)
	within(t, "late delay", o.s.late, 50*time.Millisecond, 50*time.Millisecond)

	o = newTold()
	o.hear(t, 0, 0, 0, false)
	o.in.inForce = 2 * time.Second
	for range 4 {
		o.hear(t, 0, 0, 0, false)
	}
	o.hear(t, 20, 0, 0, false)
}

func TestSharedEnds(t *testing.T) {
	o := newTold()
	o.hear(t, 100, 0, 0, true)
	o.in.recent = freezeCount{safe: 2000, eligible: 40}
	o.hear(t, 0, 0, 0, true)
	o.in.recent = freezeCount{safe: 999, eligible: 0} // 20 were to be expected
	o.hear(t, 0, 0, 0, true)
	o.in.recent = freezeCount{safe: 2000, eligible: 10}
	o.hear(t, 0, 0, 0, true)
	o.in.recent = freezeCount{safe: 2000, eligible: 9}
	o.hear(t, 0, 0, 0, false)

	o = newTold()
	o.hear(t, 100, 0, 0, true)
	for range int(sharedQuiet / time.Second) {
		o.hear(t, 0, 0, 10, true)
	}
	o.hear(t, 0, 0, 10, false)
}

// However many calls outlive the late delay, hedges stay a twentieth of the target.
func TestRestrainedHedgesAreFew(t *testing.T) {
	var s shared
	for _, c := range []struct{ eligible, want float64 }{
		{0, .2}, {.01, .2}, {.3, .0025 / .3}, {.2, .0025 / .3}, {.15, .0025 / .15}, {1, .0025}, {0, .2},
	} {
		s.spend(c.eligible, .05)
		within(t, "share", s.share, c.want-1e-9, c.want+1e-9)
	}
}

// Hedges on a replica in probation are slow by themselves.
func TestHedgesOfProbationTellNothing(t *testing.T) {
	s := New(testKey, configured())
	s.probation.restore("sick", policy.Replica{State: policy.ReplicaProbation, Share: .1})
	sick, well := &report.Replica{}, &report.Replica{}
	sick.Hedge.Completed.RecordN(time.Second, 100)
	well.Hedge.Completed.RecordN(time.Second, 10)
	s.Add(epoch, &report.Report{Methods: map[string]*report.Method{testMethod: {
		Replicas: map[string]*report.Replica{"sick": sick, "well": well},
	}}})
	within(t, "hedges", s.methods[testMethod].shared.hedges.Count(), uint64(10), uint64(10))
}
