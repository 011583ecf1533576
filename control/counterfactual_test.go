package control

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// hedgedCalls is what a client reports of n calls that it hedges after d: of every
// fifth hedged call both copies run to their ends, every hundredth is held out.
func hedgedCalls(n int, d time.Duration, call func() (primary, copied time.Duration)) *report.Method {
	m := &report.Method{Calls: uint64(n), Safe: uint64(n)}
	for range n {
		x, y := call()
		if x <= d {
			continue
		}
		m.Eligible++
		switch {
		case m.Eligible%100 == 0:
			m.Unhedged.Record(x)
			m.HeldOut.Record(x)
			continue
		case m.Eligible%5 == 0:
			m.Observed++
			m.Pairs = append(m.Pairs, estimator.NewPair(x, y))
		}
		m.Hedges++
		m.Hedged.Record(min(x, d+y))
	}
	return m
}

// lognormals are two copies whose logs have a correlation.
func lognormals(rng *rand.Rand, sigma, correlation float64) func() (x, y time.Duration) {
	of := func(z float64) time.Duration { return time.Duration(10e6 * math.Exp(sigma*z)) }
	return func() (x, y time.Duration) {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		return of(a), of(correlation*a + math.Sqrt(1-correlation*correlation)*b)
	}
}

// However alike copies are, the tail without hedging is what primaries have, and
// the hedged one what callers got.
func TestCounterfactualOfAlikeCopies(t *testing.T) {
	const sigma, z99, z999 = 1, 2.3263, 3.0902
	for _, correlation := range []float64{0, .5, 1} {
		rng := rand.New(rand.NewPCG(1, 2))
		var c counterfactual
		for i := range 400 { // more than two eras
			c.add(epoch.Add(time.Duration(i)*time.Second), hedgedCalls(2000, 50*time.Millisecond, lognormals(rng, sigma, correlation)))
		}
		said := c.status(epoch.Add(400*time.Second), &estimator.Sample{})
		for _, q := range []struct {
			got Interval
			z   float64
		}{{said.P99, z99}, {said.P999, z999}} {
			want := 10 * math.Exp(sigma*q.z)
			within(t, "quantile", q.got.Value.Seconds()*1e3, want*.88, want*1.12)
			if low, high := q.got.Low.Seconds()*1e3, q.got.High.Seconds()*1e3; !(low < want && want < high && high < 1.6*low) {
				t.Errorf("correlation %g: %g to %g ms, want them around %g and not far off", correlation, low, high, want)
			}
		}
		if !said.Efficacy.OK || said.Efficacy.Beyond != said.P999.Value {
			t.Fatalf("correlation %g: efficacy %+v, want it known", correlation, said.Efficacy)
		}
		low, high := .9, 1.0
		if correlation == 1 {
			low, high = -.3, .3 // nothing is rescued
		}
		within(t, "efficacy", said.Efficacy.Share, low, high)
		if correlation == 1 {
			within(t, "hedged", said.HedgedP999.Value.Seconds(), .95*said.P999.Value.Seconds(), 1.2*said.P999.Value.Seconds())
		} else if said.HedgedP999.Value > said.P999.Value*3/4 {
			t.Errorf("correlation %g: p99.9 %v hedged and %v not", correlation, said.HedgedP999.Value, said.P999.Value)
		}
		if text := said.String(); !strings.Contains(text, "without hedging p99.9 would be 2") || !strings.Contains(text, "hedges rescue") {
			t.Error(text)
		}
	}
}

// With few slow calls seen it says that it does not know.
func TestCounterfactualNotIdentified(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c counterfactual
	if text := c.status(epoch, &estimator.Sample{}).String(); text != "no call was hedged yet" {
		t.Error(text)
	}
	for i := range 600 {
		now := epoch.Add(time.Duration(i) * time.Second)
		c.add(now, hedgedCalls(1000, 60*time.Millisecond, lognormals(rng, 1, 0)))
		e := c.all()
		enough := float64(e.alone.Count())*.001*float64(e.safe)/float64(e.eligible) >= 20
		said := c.status(now, &estimator.Sample{})
		if said.P999.OK != enough || enough != !strings.Contains(said.String(), "not identified") {
			t.Fatalf("after %d calls, %d of them chosen: %+v", e.safe, e.alone.Count(), said)
		}
		if said.Efficacy.OK && !said.P99.OK {
			t.Fatalf("efficacy %+v, and p99 is not known", said.Efficacy)
		}
	}
	c.forget()
	if said := c.status(epoch, &estimator.Sample{}); said != (Counterfactual{}) {
		t.Errorf("%+v, want it forgotten", said)
	}
}

// Below the delay nothing is censored, so all primaries tell.
func TestCounterfactualBelowTheDelay(t *testing.T) {
	sample := &estimator.Sample{}
	for i := range 1000 {
		sample.Completed.Record(time.Duration(i+1) * time.Millisecond)
	}
	e := &era{safe: 1000, eligible: 5}
	for _, got := range []Quantile{e.without(.9, sample).Quantile, e.with(.9, sample)} {
		within(t, "p90", got.Value, 890*time.Millisecond, 910*time.Millisecond)
	}
	if got := e.without(.9, sample); got.Low >= got.Value || got.High <= got.Value {
		t.Errorf("%+v, want bounds around it", got)
	}
	if got := e.without(.999, sample); got.OK {
		t.Errorf("%+v beyond the delay, of no call that was chosen", got)
	}
}

// Only the last two eras are remembered.
func TestCounterfactualForgets(t *testing.T) {
	slow := hedgedCalls(100_000, 60*time.Millisecond, lognormals(rand.New(rand.NewPCG(1, 2)), 1.2, 0))
	quick := hedgedCalls(100_000, 30*time.Millisecond, lognormals(rand.New(rand.NewPCG(1, 2)), .6, 0))
	var c counterfactual
	for range 12 {
		c.add(epoch, slow)
	}
	for range 12 {
		c.add(epoch, quick)
	}
	if got := c.status(epoch, &estimator.Sample{}).P999.Value; got > 100*time.Millisecond {
		t.Errorf("p99.9 %v, want that of the last calls, 64 ms", got)
	}
	if n := c.all().safe; n < 100_000 || n > 800_000 {
		t.Errorf("%d calls remembered", n)
	}
}

// What pairs say of a second copy: independent ones are as quick as any, alike ones
// as slow as the first.
func TestRescues(t *testing.T) {
	const d, at = 50 * time.Millisecond, 100 * time.Millisecond
	for correlation, want := range map[float64]struct{ least, most float64 }{0: {.92, .98}, .5: {.56, .72}, 1: {0, .01}} {
		var c counterfactual
		if _, ok := c.rescues(at, d); ok {
			t.Error("known without a pair")
		}
		c.add(epoch, hedgedCalls(100_000, d, lognormals(rand.New(rand.NewPCG(1, 2)), 1, correlation)))
		got, ok := c.rescues(at, d)
		if !ok {
			t.Fatal("not known")
		}
		within(t, "rescued", got, want.least, want.most)

		// Where chance chooses another share of calls, pairs are all that still tells.
		c.rechosen()
		if after, ok := c.rescues(at, d); !ok || after != got {
			t.Errorf("with another share: rescued %v, want %v", after, got)
		}
		if e := c.all(); e.safe != 0 || e.alone.Count() != 0 || !e.since.IsZero() {
			t.Errorf("with another share: %d calls remembered", e.safe)
		}
	}
}

// Observers are at most 1% of calls, and holdouts too few to keep p99.9 as it was.
func TestSharesOfChosenCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.Float64Range(MinTarget, MaxTarget).Draw(t, "target")
		if o := observe(target, 1.01); o != 0 {
			t.Errorf("observes %g of crowded calls", o)
		}
		if o := observe(target, 1); !(o > 0 && o <= .2 && o*target <= .01+1e-12) {
			t.Errorf("observes %g at a target of %g", o, target)
		}
		m := &report.Method{Safe: 100_000, Eligible: 4000}
		m.Hedged.RecordN(time.Second, rapid.Uint64Range(0, 2000).Draw(t, "hedged"))
		var c counterfactual
		c.add(epoch, m)
		h := c.holdout(target)
		if (h > 0) != (m.Hedged.Count() >= 1000) || h > .005 || h > policy.MaxHoldout || h*target > .0003+1e-12 {
			t.Errorf("holds out %g at a target of %g, of %d calls hedged", h, target, m.Hedged.Count())
		}
		m.Observed = 1
		c.add(epoch, m)
		if h := c.holdout(target); h != 0 {
			t.Errorf("holds out %g though calls are observed", h)
		}
	})
}

// Whatever is reported, in whatever unit of time and order: no NaN, bounds in order,
// and figures that scale with the unit.
func TestCounterfactualProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts, scaled []*report.Method
		for range rapid.IntRange(1, 4).Draw(t, "reports") {
			a, b := &report.Method{}, &report.Method{}
			a.Safe = rapid.Uint64Range(0, 100_000).Draw(t, "safe")
			a.Eligible = rapid.Uint64Range(0, 5_000).Draw(t, "eligible")
			a.Observed = rapid.Uint64Range(0, 50).Draw(t, "observed")
			b.Safe, b.Eligible, b.Observed = a.Safe, a.Eligible, a.Observed
			for range rapid.IntRange(0, 3).Draw(t, "latencies") {
				d := time.Duration(rapid.Int64Range(1000, int64(time.Second)).Draw(t, "latency"))
				n := rapid.Uint64Range(0, 300).Draw(t, "times")
				for _, m := range []struct {
					*report.Method
					d time.Duration
				}{{a, d}, {b, 64 * d}} {
					m.HeldOut.RecordN(m.d, n/10)
					m.Unhedged.RecordN(m.d, n/5)
					m.Hedged.RecordN(m.d/2, n)
					for range n / 10 {
						m.Pairs = append(m.Pairs, estimator.NewPair(m.d, m.d/3))
					}
				}
			}
			parts, scaled = append(parts, a), append(scaled, b)
		}
		var c, back, longer counterfactual
		for i, m := range parts {
			c.add(epoch, m)
			back.add(epoch, parts[len(parts)-1-i])
			longer.add(epoch, scaled[i])
		}
		said := c.status(epoch, &estimator.Sample{})
		for _, q := range []Interval{said.P99, said.P999} {
			if q.Low < 0 || q.Low > q.Value || q.Value > q.High || !q.OK && q != (Interval{}) {
				t.Fatalf("%+v", q)
			}
		}
		if e := said.Efficacy; math.IsNaN(e.Share) || math.IsNaN(e.Off) || e.Off < 0 || e.Share > 1 {
			t.Fatalf("%+v", e)
		}
		if c.older.since.IsZero() && back.older.since.IsZero() { // an era's end is where the order may matter
			if got := back.status(epoch, &estimator.Sample{}); got != said {
				t.Fatalf("in another order %+v, want %+v", got, said)
			}
		}
		for _, q := range [][2]Interval{{said.P99, longer.status(epoch, &estimator.Sample{}).P99}, {said.P999, longer.status(epoch, &estimator.Sample{}).P999}} {
			if ratio := float64(q[1].Value) / float64(max(64*q[0].Value, 1)); q[0].OK != q[1].OK || q[0].OK && math.Abs(ratio-1) > .02 {
				t.Fatalf("%v, and times 64 %v", q[0], q[1])
			}
		}
	})
}

// What is counted while nothing is hedged, or of latencies that are no more, tells
// nothing of what hedging buys.
func TestCounterfactualOfHedgedTimesOnly(t *testing.T) {
	said := func(w *world) Counterfactual { return w.svc.Status(w.now).Methods[0].Counterfactual }
	now := 1.0
	w := newWorld(configured(), 1, 1000, 3, func(w *world, _ string) time.Duration { return w.uniform(now) })
	w.run(20 * time.Second)
	if n := said(w).Calls; n < 12_000 || n > 20_000 {
		t.Errorf("%d calls counted in 20 s of 1,000 calls a second", n)
	}
	if m, _ := w.policy.Method(testMethod); math.Abs(m.Observe-.2) > 1e-9 || m.Holdout != 0 {
		t.Errorf("%+v, want calls observed and none held out", m)
	}
	now = 1.4
	w.run(5 * time.Second)
	if n := said(w).Calls; n > 5_000 {
		t.Errorf("%d calls counted 5 s after all latencies changed", n)
	}
	w.svc.Configure(configured(), &Override{HasMode: true, Mode: policy.ModeShadow})
	w.run(3 * time.Second)
	before := said(w).Calls
	w.run(5 * time.Second)
	if n := said(w).Calls; n != before {
		t.Errorf("%d calls counted, and %d before 5 s of shadow", n, before)
	}
}
