package control

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"pgregory.net/rapid"
)

// gaveUp is n attempts that callers cancelled after waited, of which a server was busy
// with each for served.
func gaveUp(c *costly, n uint64, waited, served time.Duration) {
	var h estimator.Histogram
	h.RecordN(waited, n)
	c.addWaited(&h)
	c.addServed(report.Served{Cancelled: n, Wasted: time.Duration(n) * served})
}

func TestCostlyIsWhatServersGoOnWithWhileCallsQueue(t *testing.T) {
	const waited = 100 * time.Millisecond
	for name, c := range map[string]struct {
		n        uint64
		served   time.Duration
		crowding float64
		want     bool
	}{
		"finished though cancelled": {30, 160 * time.Millisecond, 5, true},
		"ended when cancelled":      {30, waited, 5, false},
		"ended soon after":          {30, 140 * time.Millisecond, 5, false},
		"nothing queues":            {30, 160 * time.Millisecond, 1, false},
		"few":                       {29, 160 * time.Millisecond, 5, false},
		"none":                      {0, 0, 5, false},
	} {
		var x costly
		gaveUp(&x, c.n, waited, c.served)
		if got, text := x.decide(epoch, c.crowding); got != c.want {
			t.Errorf("%s: %v (%s), want %v", name, got, text, c.want)
		}
	}
}

// Servers that learn to cancel are believed within minutes; between the bounds the
// verdict stays, and so it does for a while when hardly anything is cancelled.
func TestCostlyEnds(t *testing.T) {
	var c costly
	now := epoch
	pass := func(n uint64, served time.Duration, d time.Duration) (on bool) {
		for range d / time.Second {
			gaveUp(&c, n, 100*time.Millisecond, served)
			now = now.Add(time.Second)
			on, _ = c.decide(now, 5)
		}
		return on
	}
	if !pass(5, 170*time.Millisecond, time.Minute) {
		t.Fatal("not costly, though cancelled attempts run on")
	}
	if !pass(5, 135*time.Millisecond, 30*time.Minute) {
		t.Error("not costly any more between the bounds")
	}
	if !pass(0, 0, 2*time.Minute) {
		t.Error("not costly any more after two minutes in which nothing was cancelled")
	}
	if pass(5, 100*time.Millisecond, 10*time.Minute) {
		t.Error("still costly ten minutes after servers learnt to cancel")
	}
	if !pass(5, 170*time.Millisecond, 20*time.Minute) {
		t.Fatal("not costly again")
	}
	if pass(0, 0, time.Hour) {
		t.Error("still costly after an hour in which nothing was cancelled")
	}
}

// The verdict depends on no unit of time, nor on the order of reports; it only ever
// comes with longer work and goes with longer waiting; and there is no NaN.
func TestCostlyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type given struct {
			n              uint64
			waited, served time.Duration
		}
		length := rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second))
		var all []given
		for range rapid.IntRange(1, 10).Draw(t, "reports") {
			all = append(all, given{
				rapid.Uint64Range(0, 50).Draw(t, "n"),
				time.Duration(length.Draw(t, "waited")), time.Duration(length.Draw(t, "served")),
			})
		}
		verdict := func(all []given, served, waited float64) bool {
			var c costly
			for _, g := range all {
				gaveUp(&c, g.n, time.Duration(waited*float64(g.waited)), time.Duration(served*float64(g.served)))
			}
			on, text := c.decide(epoch, 3)
			if strings.Contains(text, "NaN") {
				t.Fatal(text)
			}
			return on
		}
		is := verdict(all, 1, 1)
		// Powers of two, by which buckets map to buckets.
		if k := math.Exp2(float64(rapid.IntRange(-4, 6).Draw(t, "scale"))); verdict(all, k, k) != is {
			// What is within a bucket's rounding of the bound may go either way.
			if verdict(all, 1.01*k, k) == verdict(all, .99*k, k) {
				t.Fatalf("with all times %v-fold: %v, was %v", k, !is, is)
			}
		}
		if is && !verdict(all, 1.5, 1) || !is && verdict(all, 1, 1.5) {
			t.Fatal("not monotone")
		}
		rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order"))).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if verdict(all, 1, 1) != is {
			t.Fatal("the order of reports matters")
		}
	})
}

// Whatever is reported, the verdict's text has no number that is none.
func TestCostlyTakesAnything(t *testing.T) {
	var c costly
	c.addServed(report.Served{Cancelled: math.MaxUint64, Wasted: math.MinInt64})
	c.addServed(report.Served{Cancelled: 0, Wasted: math.MaxInt64})
	var h estimator.Histogram
	h.RecordN(0, 40)
	c.addWaited(&h)
	for i := range 3 {
		if _, text := c.decide(epoch.Add(time.Duration(i-1)*time.Hour), 3); strings.Contains(text, "NaN") || strings.Contains(text, "-") {
			t.Error(text)
		}
	}
}

// Costly hedges spend half the target, in small bursts, and operators can read why.
func TestCostlyHedgesShrinkTheBudget(t *testing.T) {
	w := newWorld(configured(), 1, 400, 3, steadyUniform)
	w.run(30 * time.Second)
	before := w.policy
	w.svc.crowding.pairs, w.svc.crowding.ratios, w.svc.crowding.on = 60, 600, true
	gaveUp(&w.svc.costly, 1000, 20*time.Millisecond, 20*time.Millisecond)
	d := w.svc.Tick(w.now)
	if d.Policy.Reason.Code != policy.ReasonTracking || d.Policy.Budget.Ratio < before.Budget.Ratio {
		t.Fatalf("cancelling works: %v, %+v, want tracking and %+v", d.Policy.Reason, d.Policy.Budget, before.Budget)
	}
	full := d.Policy.Budget
	gaveUp(&w.svc.costly, 1000, 20*time.Millisecond, 80*time.Millisecond)
	d = w.svc.Tick(w.now)
	if d.Policy.Reason.Code != policy.ReasonCostly || !strings.Contains(d.Policy.Reason.Text, "servers for 50 ms where callers had waited for 1") {
		t.Errorf("reason %+v, want costly with its times", d.Policy.Reason)
	}
	if got, want := d.Policy.Budget.Ratio, full.Ratio/2; math.Abs(got-want) > 1e-6 {
		t.Errorf("ratio %v, want %v", got, want)
	}
	if got := d.Policy.Budget.Burst; got > full.Burst/2 {
		t.Errorf("burst %v, want at most half of %v", got, full.Burst)
	}
	if !d.Tightens || !d.Publish {
		t.Error("the smaller budget does not go out as one that tightens")
	}
}
