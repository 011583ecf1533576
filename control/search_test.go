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
)

// drawn is a sample of n calls by the inverse of their distribution, at its quantiles.
func drawn(n int, quantile func(p float64) float64) *estimator.Sample {
	var s estimator.Sample
	for i := range n {
		s.Completed.Record(time.Duration(quantile((float64(i)+.5)/float64(n)) * float64(time.Millisecond)))
	}
	return &s
}

func logarithmic(p float64) float64 { return 10 * math.Exp(math.Sqrt2*math.Erfinv(2*p-1)) }
func pareto(p float64) float64      { return 2 * math.Pow(1-p, -1/1.5) }
func stalling(p float64) float64 { // 2%
	if p > .98 {
		return 1005 + 500*(p-.98)
	}
	return 5 + 10*p/.98
}

func unknown(_, _ time.Duration) (float64, bool) { return 0, false }

func searching(s *estimator.Sample, wanted, objective float64) searchInput {
	return searchInput{sample: s, wanted: wanted, correction: 1, objective: objective, min: time.Microsecond, max: time.Hour, rescues: unknown}
}

// The best that a coin makes of p99 is 89.5 ms of lognormal calls at 1%, 31.6 of
// Pareto's and 25.1 of 2% stalls at 2%; at these rates it is what is said here.
func TestSearchFindsTheBest(t *testing.T) {
	const n = 100000
	for _, c := range []struct {
		name              string
		sample            *estimator.Sample
		wanted, objective float64
		from, to          float64 // probability
		tail              float64 // ms
	}{
		{"lognormal, p99", drawn(n, logarithmic), .0091, .99, .3, .5, 90.5},
		{"lognormal, p99.9", drawn(n, logarithmic), .0091, .999, 1, 1, 129.8},
		{"Pareto, p99", drawn(n, pareto), .0091, .99, .35, .5, 32.3},
		{"Pareto, p99.9", drawn(n, pareto), .0091, .999, 1, 1, 53.3},
		{"2% stalls, p99", drawn(n, stalling), .0172, .99, .7, .84, 25.9},
		{"lognormal at 5%, p99", drawn(n, logarithmic), .0455, .99, 1, 1, 68},
		{"lognormal at 5%, p99.9", drawn(n, logarithmic), .0455, .999, 1, 1, 94.5},
	} {
		in := searching(c.sample, c.wanted, c.objective)
		var s search
		q := s.decide(epoch, in)
		within(t, c.name, q, c.from, c.to)
		without, _ := c.sample.Quantile(c.objective)
		if got := in.tail(q, without).Seconds() * 1000; math.Abs(got-c.tail) > .03*c.tail {
			t.Errorf("%s: %v ms, want %v", c.name, got, c.tail)
		}
		if told := strings.Contains(s.text, "of these are hedged"); told != (q < 1) {
			t.Errorf("%s: probability %v is told as %q", c.name, q, s.text)
		}
	}
}

// What is slow on every copy is not rescued sooner by hedging sooner.
func TestSearchAsksPairs(t *testing.T) {
	in := searching(drawn(100000, pareto), .0091, .99)
	in.rescues = func(_, _ time.Duration) (float64, bool) { return 0, true }
	var s search
	within(t, "probability where no hedge rescues", s.decide(epoch, in), 1, 1)
}

func TestSearchHolds(t *testing.T) {
	in := searching(drawn(100000, pareto), .0091, .99)
	var s search
	q := s.decide(epoch, in)

	few := in
	few.sample = drawn(900, logarithmic) // 9 beyond p99
	few.wanted = .02
	if got := s.decide(epoch.Add(time.Minute), few); got != q {
		t.Errorf("9 calls beyond the objective: %v, want %v kept", got, q)
	}
	other := in
	other.sample = drawn(100000, logarithmic)
	other.rescues = func(_, _ time.Duration) (float64, bool) { return 0, true }
	if got := s.decide(epoch.Add(searchEvery-1), other); got != q {
		t.Errorf("within %v: %v, want %v kept", searchEvery, got, q)
	}
	if got := s.decide(epoch.Add(searchEvery), other); got != 1 {
		t.Errorf("where no hedge rescues any more: %v, want 1", got)
	}

	// One that is nearly the best stays, another does not.
	for held, want := range map[float64]float64{.39: .39, .84: q} {
		s = restoredSearch(held)
		if got := s.decide(epoch, in); got != want {
			t.Errorf("%v in force: %v, want %v", held, got, want)
		}
	}
	s = restoredSearch(.4)
	in.wanted = 1.01 * searchBelow * .01
	in.sample = few.sample
	if got := s.decide(epoch, in); got != 1 {
		t.Errorf("at a target of 3 times what is beyond the objective: %v, want 1", got)
	}

	// Lognormal calls at 1.6% gain 7%: not enough to begin, enough to go on.
	in = searching(drawn(100000, logarithmic), .016, .99)
	s = search{}
	within(t, "to begin", s.decide(epoch, in), 1, 1)
	s = restoredSearch(.5)
	within(t, "to go on", s.decide(epoch, in), .3, .7)

	for _, none := range []float64{0, .05, .9, 1, math.NaN()} {
		s = restoredSearch(none)
		within(t, "restored", s.probability(), 1, 1)
	}
}

// Whatever is measured, the probability is within its bounds, and in another unit of
// time it is the same one.
func TestSearchKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		searchesAlike(t, rapid.Uint64().Draw(t, "seed"), rapid.Float64Range(MinTarget*.86, MaxTarget).Draw(t, "wanted"),
			rapid.Float64Range(MinObjective, MaxObjective).Draw(t, "objective"),
			rapid.Float64Range(minCorrection, maxCorrection).Draw(t, "correction"),
			rapid.Float64Range(0, 3).Draw(t, "sigma"),
			rapid.SampledFrom([]float64{0, .01, .5}).Draw(t, "cancelled"),
			rapid.IntRange(0, 3000).Draw(t, "calls"))
	})
}

// Two probabilities with the same tail but for a nanosecond are no choice.
func TestSearchOfEqualTails(t *testing.T) {
	searchesAlike(t, 0xf3aa, .0703125, .6640625, minCorrection, 1.18212890625, .5, 1304)
}

// searchesAlike fails t where the probability is out of its bounds, or another one
// in another unit of time.
func searchesAlike(t rapid.TB, seed uint64, wanted, objective, correction, sigma, cancelled float64, calls int) {
	const unit = 16 // whole octaves, so that buckets are the same
	rng := rand.New(rand.NewPCG(seed, 1))
	in := searching(new(estimator.Sample), wanted, objective)
	in.correction = correction
	other := in
	other.sample = new(estimator.Sample)
	other.min, other.max = unit*in.min, unit*in.max
	for range calls {
		d := time.Duration(1e6 * math.Exp(sigma*rng.NormFloat64()))
		h, o := &in.sample.Completed, &other.sample.Completed
		if rng.Float64() < cancelled {
			h, o = &in.sample.Censored, &other.sample.Censored
		}
		h.Record(d)
		o.Record(unit * d)
	}
	var a, b search
	q, same := a.decide(epoch, in), b.decide(epoch, other)
	if !(q == 1 || q >= searchLeast && q <= searchMost) {
		t.Errorf("probability %v", q)
	}
	if q != same {
		t.Errorf("in ms %v, in units of 1/16 ms %v", q, same)
	}
}

// The fleet tosses the coin, and hedges no more than the target for all that.
func TestObjectiveIsSteeredFor(t *testing.T) {
	cfg := configured()
	cfg.Target, cfg.Objective = .01, .99
	w := newWorld(cfg, 2, 1000, 3, func(w *world, _ string) time.Duration {
		return time.Duration(pareto(w.rng.Float64()) * float64(time.Millisecond))
	})
	w.run(60 * time.Second)
	m := w.policy.Methods[testMethod]
	within(t, "probability", m.Probability, .25, .6)
	within(t, "hedges per call", m.Probability*math.Pow(2/(m.Delay.Seconds()*1000), 1.5), .0075, .01)
	within(t, "delay", m.Delay, 20*time.Millisecond, 35*time.Millisecond)

	// What was counted with another probability is forgotten.
	method := w.svc.methods[testMethod]
	before := method.buys.all().safe
	method.search = search{} // as if all were hedged
	w.run(2 * time.Second)
	if after := method.buys.all().safe; before < 10000 || after > 3000 {
		t.Errorf("%d calls tell what hedging buys, and %d after another probability; want 10,000 and no more than 3,000", before, after)
	}
	if !strings.Contains(m.Reason.Text, "of these are hedged") {
		t.Errorf("the reason does not tell: %s", m.Reason.Text)
	}

	// A restart keeps it.
	stored := *w.policy
	m = stored.Methods[testMethod]
	w.svc = New(testKey, cfg)
	w.svc.Restore(&stored)
	from := w.now
	w.run(5 * time.Second)
	if now := w.policy.Methods[testMethod]; now.Probability != m.Probability || now.Delay != m.Delay {
		t.Errorf("after a restart: %v of calls after %v, want %v after %v (%d pushes)", now.Probability, now.Delay, m.Probability, m.Delay, w.pushes(from))
	}

	shortest := policy.Policy{Budget: policy.Budget{Ratio: .01}, Methods: w.policy.Methods}
	within(t, "expected", shortest.Expected(), .009/m.Probability, .011/m.Probability)
}
