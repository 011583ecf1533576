package control

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"pgregory.net/rapid"
)

// anyReport is what passes the wire's bounds, sensible or not.
func anyReport(t *rapid.T) *report.Report {
	count := rapid.OneOf(rapid.Uint64Range(0, 2000), rapid.Uint64Range(0, 1e9), rapid.Just[uint64](math.MaxUint64))
	some := rapid.Uint64Range(0, 1000)
	latency := rapid.OneOf(rapid.Int64Range(0, int64(100*time.Millisecond)), rapid.Int64Range(math.MinInt64, math.MaxInt64))
	r := &report.Report{
		Source: report.Source{
			ID:          rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"),
			Incarnation: 1,
			Zone:        rapid.SampledFrom([]string{"", "z"}).Draw(t, "zone"),
			Kind:        rapid.SampledFrom([]report.Kind{report.Client, report.Client, report.Server}).Draw(t, "kind"),
		},
		Interval:   time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(t, "interval")),
		Generation: policy.Generation{Epoch: rapid.Uint64Range(0, 1).Draw(t, "epoch"), Number: rapid.Uint64Range(0, 50).Draw(t, "number")},
		Methods:    map[string]*report.Method{},
	}
	for range rapid.IntRange(0, 2).Draw(t, "methods") {
		m := &report.Method{
			Calls: count.Draw(t, "calls"), Safe: count.Draw(t, "safe"), Eligible: count.Draw(t, "eligible"),
			Hedges: count.Draw(t, "hedges"), Wins: count.Draw(t, "wins"), Failures: count.Draw(t, "failures"),
			Replicas: map[string]*report.Replica{},
			Served:   report.Served{Attempts: count.Draw(t, "attempts"), Cancelled: count.Draw(t, "cancelled"), Wasted: time.Duration(latency.Draw(t, "wasted"))},
		}
		for range rapid.IntRange(0, 3).Draw(t, "replicas") {
			rep := &report.Replica{Failed: count.Draw(t, "failed")}
			rep.Primary.Completed.RecordN(time.Duration(latency.Draw(t, "x")), some.Draw(t, "n"))
			rep.Primary.Completed.RecordN(time.Duration(latency.Draw(t, "x")), some.Draw(t, "n"))
			rep.Primary.Censored.RecordN(time.Duration(latency.Draw(t, "c")), some.Draw(t, "n"))
			rep.Hedge.Completed.RecordN(time.Duration(latency.Draw(t, "y")), some.Draw(t, "n"))
			rep.Hedge.Censored.RecordN(time.Duration(latency.Draw(t, "c")), some.Draw(t, "n"))
			m.Replicas[rapid.SampledFrom([]string{"r1", "r2", "r3", "r4"}).Draw(t, "replica")] = rep
		}
		r.Methods[rapid.SampledFrom([]string{"/s/A", "/s/B", "/s/C"}).Draw(t, "method")] = m
	}
	return r
}

// Whatever is reported, and however time jumps, each decision validates and
// keeps the bounds of the configuration.
func TestAnyReportsMakeAValidPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configured()
		cfg.Target = rapid.Float64Range(MinTarget, MaxTarget).Draw(t, "target")
		cfg.Objective = rapid.Float64Range(MinObjective, MaxObjective).Draw(t, "objective")
		cfg.ProbationCap = rapid.Float64Range(0, 1).Draw(t, "cap")
		cfg.DefaultDelay = rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond}).Draw(t, "default")
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		s := New(testKey, cfg)
		now := epoch
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "reports") {
				s.Add(now, anyReport(t))
			}
			now = now.Add(time.Duration(rapid.Int64Range(int64(-time.Second), int64(3*time.Second)).Draw(t, "pass")))
			d := s.Tick(now)
			if err := d.Policy.Validate(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			b := d.Policy.Budget
			if b.Ratio > cfg.Target || b.Burst > policy.MaxBurst || b.Start > maxStart {
				t.Fatalf("step %d: budget %+v at target %v", i, b, cfg.Target)
			}
			for name, m := range d.Policy.Methods {
				if m.Delay != 0 && (m.Delay < cfg.MinDelay || m.Delay > cfg.MaxDelay) {
					t.Fatalf("step %d: %s has delay %v", i, name, m.Delay)
				}
			}
			present, serving := s.probation.census()
			if out := len(d.Policy.Replicas); out > 0 && out > allowance(present, cfg.ProbationCap) && now.Sub(epoch) > settleTime+Window {
				t.Fatalf("step %d: %d of %d out of service, %d serving, cap %v", i, out, present, serving, cfg.ProbationCap)
			}
			if d.Publish {
				p := *d.Policy
				p.Generation = policy.Generation{Epoch: 1, Number: uint64(i + 1)}
				s.Published(&p)
			}
			s.Status(now)
		}
	})
}

// The order of reports between two ticks changes nothing, whether there are enough
// clients to tell who is unlike the others or not.
func TestOrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(testKey, configured()), New(testKey, configured())
		now := epoch
		if rapid.Bool().Draw(t, "fleet") {
			f := &crowd{svc: a, now: now, rng: rand.New(rand.NewPCG(1, 2))}
			for _, r := range f.of(30, 20)() {
				a.Add(now, r)
				b.Add(now, r)
			}
			a.Tick(now)
			b.Tick(now)
		}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var reports []*report.Report
			for i := range rapid.IntRange(0, 4).Draw(t, "reports") {
				r := anyReport(t)
				r.Source.ID = string(rune('a' + i)) // one client's own reports stay in order
				reports = append(reports, r)
			}
			for _, r := range reports {
				a.Add(now, r)
			}
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			for _, i := range rng.Perm(len(reports)) {
				b.Add(now, reports[i])
			}
			da, db := a.Tick(now), b.Tick(now)
			if !same(da.Policy, db.Policy) || da.Publish != db.Publish || da.Tightens != db.Tightens || !reflect.DeepEqual(da.Guards, db.Guards) {
				t.Fatalf("orders differ:\n%+v\n%+v\n%+v\n%+v", da.Policy, db.Policy, da.Publish, db.Publish)
			}
			now = now.Add(250 * time.Millisecond)
		}
	})
}

func TestTightens(t *testing.T) {
	base := func() *policy.Policy {
		return &policy.Policy{
			Mode:   policy.ModeActive,
			Budget: policy.Budget{Ratio: .05, Burst: 10, Start: 2},
			Methods: map[string]policy.Method{
				"m": {Delay: time.Second, Probability: 1, MaxAttempts: 3},
			},
		}
	}
	method := func(change func(*policy.Method)) func(*policy.Policy) {
		return func(p *policy.Policy) {
			m := p.Methods["m"]
			change(&m)
			p.Methods["m"] = m
		}
	}
	for _, c := range []struct {
		name           string
		change         func(*policy.Policy)
		same, tightens bool
	}{
		{"nothing", func(*policy.Policy) {}, true, false},
		{"wording", method(func(m *policy.Method) { m.Reason.Text = "other" }), true, false},
		{"generation", func(p *policy.Policy) { p.Generation.Number = 7 }, true, false},
		{"shadow", func(p *policy.Policy) { p.Mode = policy.ModeShadow }, false, true},
		{"less ratio", func(p *policy.Policy) { p.Budget.Ratio = .04 }, false, true},
		{"more burst", func(p *policy.Policy) { p.Budget.Burst = 20 }, false, false},
		{"longer delay", method(func(m *policy.Method) { m.Delay *= 2 }), false, true},
		{"shorter delay", method(func(m *policy.Method) { m.Delay /= 2 }), false, false},
		{"no delay", method(func(m *policy.Method) { m.Delay = 0 }), false, true},
		{"method gone", func(p *policy.Policy) { p.Methods = nil }, false, true},
		{"coin", method(func(m *policy.Method) { m.Probability = .5 }), false, true},
		{"two attempts", method(func(m *policy.Method) { m.MaxAttempts = 2 }), false, true},
		{"another method", func(p *policy.Policy) {
			p.Methods["n"] = policy.Method{Delay: time.Second, Probability: 1, MaxAttempts: 3}
		}, false, false},
		{"a replica", func(p *policy.Policy) { p.Replicas = map[string]policy.Replica{"r": {State: policy.ReplicaProbation}} }, false, false},
	} {
		b := base()
		c.change(b)
		if got := same(base(), b); got != c.same {
			t.Errorf("%s: same %v, want %v", c.name, got, c.same)
		}
		if got := tightens(base(), b); got != c.tightens {
			t.Errorf("%s: tightens %v, want %v", c.name, got, c.tightens)
		}
	}
}
