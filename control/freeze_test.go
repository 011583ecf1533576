package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// lognormal is latencies with a median of 10 ms, and a stall of 500 ms once in a hundred.
func lognormal(w *world, _ string) time.Duration {
	if w.rng.Float64() < .01 {
		return 500 * time.Millisecond
	}
	return time.Duration(10 * float64(time.Millisecond) * math.Exp(.5*w.rng.NormFloat64()))
}

// freezing makes lognormal stand still from a time on for so long.
func freezing(from time.Time, long time.Duration) func(*world, string) time.Duration {
	end := from.Add(long)
	return func(w *world, r string) time.Duration {
		d := lognormal(w, r)
		if done := w.now.Add(d); !done.Before(from) && w.now.Before(end) {
			d += min(long, end.Sub(w.now))
		}
		return d
	}
}

// paused watches a world and says when hedging was paused by a guard, and for how
// long in all.
type paused struct {
	first time.Time
	last  time.Time
	total time.Duration
	since time.Time // of the pause under way
	delay []time.Duration
}

func (p *paused) watch(w *world, code policy.ReasonCode) {
	w.onTick = func(d Decision) {
		m := d.Policy.Methods[testMethod]
		on := m.Reason.Code == code
		if on && p.since.IsZero() {
			p.since = w.now
			if p.first.IsZero() {
				p.first = w.now
			}
		}
		if on {
			p.delay = append(p.delay, m.Delay)
		}
		if !on && !p.since.IsZero() {
			p.total += w.now.Sub(p.since)
			p.since, p.last = time.Time{}, w.now
		}
	}
}

// Everything stands still for three seconds: hedging pauses within half a second,
// the delay stays, and both are back soon afterwards, although 3,000 calls of up to
// three seconds end at once.
func TestFreezePausesHedging(t *testing.T) {
	for _, clients := range []int{1, 20} {
		from := epoch.Add(40 * time.Second)
		w := newWorld(configured(), clients, 1000, 3, freezing(from, 3*time.Second))
		w.run(40 * time.Second)
		before := w.delay()
		var p paused
		p.watch(w, policy.ReasonFreeze)
		w.run(3 * time.Second)
		m, _ := w.policy.Method(testMethod)
		if m.Probability != 0 || m.Reason.Code != policy.ReasonFreeze || !strings.Contains(m.Reason.Text, "everything is slow") {
			t.Errorf("%d clients, in the freeze: %+v, want no hedges for it", clients, m)
		}
		if p.first.IsZero() {
			t.Errorf("%d clients: no pause", clients)
			continue
		}
		within(t, "paused after", p.first.Sub(from), 0, 500*time.Millisecond)
		for _, d := range p.delay {
			within(t, "delay in the pause", d, p.delay[0], p.delay[0])
		}
		for range 60 { // what was held up is nobody's latency
			w.run(50 * time.Millisecond)
			within(t, "delay at the thaw", w.delay(), before*9/10, before*5/4)
		}
		within(t, "hedges again after", p.last.Sub(from.Add(3*time.Second)), 0, 2*time.Second)
		w.run(10 * time.Second)
		within(t, "pause", p.total, 2*time.Second, 5*time.Second)
	}
}

// Latencies of three times and of ten times what they were are no freeze: the delay
// follows, with at most a short pause before it does.
func TestShiftIsNoFreeze(t *testing.T) {
	for _, clients := range []int{1, 20, 200} {
		for _, factor := range []float64{3, 10} {
			scale := 1.0
			w := newWorld(configured(), clients, 1000, 3, func(w *world, _ string) time.Duration { return w.uniform(scale) })
			w.run(40 * time.Second)
			before := w.delay()
			var p paused
			p.watch(w, policy.ReasonFreeze)
			scale = factor
			w.run(10 * time.Second)
			within(t, "pause", p.total, 0, 800*time.Millisecond)
			if !p.since.IsZero() {
				t.Errorf("%d clients, times %v: still paused", clients, factor)
			}
			within(t, "delay over the one before", float64(w.delay())/float64(before), .9*factor, 1.2*factor)
			scale = 1
			w.run(10 * time.Second)
			within(t, "pause with the fall", p.total, 0, 800*time.Millisecond)
		}
	}
}

func TestFreezeVerdicts(t *testing.T) {
	var f freeze
	now := epoch
	step := func(safe, eligible uint64, want bool, text string) {
		t.Helper()
		now = now.Add(freezeTime)
		f.add(now, safe, eligible, false)
		on, got := f.decide(now)
		if on != want || !strings.Contains(got, text) {
			t.Errorf("%d of %d: %v, %q; want %v, %q", eligible, safe, on, got, want, text)
		}
	}
	step(49, 49, false, "0% of 49 calls") // too few
	step(100, 79, false, "79% of 100 calls outlived the delay in 200ms, and in 0% of reports")
	step(100, 80, true, "80% of 100 calls outlived the delay in 200ms, and in 0% of reports nothing was answered: everything is slow, hedging pauses")
	step(100, 51, true, "51%") // hysteresis
	step(100, 49, false, "49%")
	step(100, 79, false, "79%")
	step(412, 383, true, "93% of 412 calls")
	step(0, 0, true, "93% of 412 calls outlived the delay in 300ms") // silence is no news
	now = now.Add(freezeLongest)
	step(0, 0, true, "0% of 0 calls")
	step(100, 200, true, "100% of 100 calls") // calls of an earlier report may add to it
	f.forget()
	step(0, 0, false, "0% of 0 calls")
}

// A freeze is known at once where many clients say that nothing is answered to them.
func TestSilentReportsAreAFreeze(t *testing.T) {
	for _, c := range []struct {
		reports, silent int
		want            bool
	}{{19, 19, false}, {20, 9, false}, {20, 10, true}, {1000, 499, false}, {1000, 500, true}} {
		var f freeze
		now := epoch
		report := func(n, silent int, eligible uint64) bool {
			for i := range n {
				f.add(now, 5, eligible, i < silent)
			}
			on, _ := f.decide(now)
			return on
		}
		if got := report(c.reports, c.silent, 1); got != c.want {
			t.Errorf("%d of %d reports are silent: %v, want %v", c.silent, c.reports, got, c.want)
		}
		if !c.want {
			continue
		}
		// The pause itself makes every client report, those too that made no call since.
		if !report(c.reports/2, 0, 0) {
			t.Errorf("%d of %d reports are silent: over for half as many that are not", c.silent, c.reports)
		}
		now = now.Add(freezeTime + freezeSlot)
		if report(c.reports, 0, 0) {
			t.Errorf("%d of %d reports are silent: not over when none is any more", c.silent, c.reports)
		}
	}
	var f freeze
	for range 100 {
		f.add(epoch, 0, 0, true) // nothing was called
	}
	f.add(epoch, 100, 0, false)
	if on, text := f.decide(epoch); on {
		t.Errorf("reports without calls: %s", text)
	}
}

// What a client counted in part before it had the delay says nothing of a freeze at it.
func TestFreezeCountsTheDelayInForce(t *testing.T) {
	s := New(testKey, configured())
	feed(s, epoch, 1000, 10*time.Millisecond, 3)
	p := *s.Tick(epoch).Policy
	p.Generation = policy.Generation{Epoch: 1, Number: 5}
	s.Published(&p)
	for _, c := range []struct {
		number uint64
		want   policy.ReasonCode
	}{{4, policy.ReasonTracking}, {5, policy.ReasonFreeze}} {
		s.Add(epoch, &report.Report{
			Source:     report.Source{ID: "client", Incarnation: 1},
			Generation: policy.Generation{Epoch: 1, Number: c.number},
			Methods:    map[string]*report.Method{testMethod: {Calls: 100, Safe: 100, Eligible: 99}},
		})
		got := s.Tick(epoch).Policy
		if got.Methods[testMethod].Reason.Code != c.want || got.Reason.Code != c.want {
			t.Errorf("counted under generation %d: %v and %v, want %v", c.number, got.Methods[testMethod].Reason.Code, got.Reason.Code, c.want)
		}
	}
}
