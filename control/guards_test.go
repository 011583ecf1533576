package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

var testKey = policy.Key{Tenant: policy.DefaultTenant, Service: "cart"}

// feed adds one report of n calls of d each, spread over replicas a, b, ...
func feed(s *Service, now time.Time, n uint64, d time.Duration, replicas int) *report.Report {
	m := &report.Method{Calls: n, Safe: n, Replicas: map[string]*report.Replica{}}
	for i := range uint64(replicas) {
		r := &report.Replica{}
		share := n / uint64(replicas)
		if i == 0 {
			share += n % uint64(replicas)
		}
		// A little spread, so that there is a quantile to follow.
		for j := range uint64(10) {
			k := share / 10
			if j == 0 {
				k += share % 10
			}
			r.Primary.Completed.RecordN(d+d*time.Duration(j)/50, k)
		}
		m.Replicas[string(rune('a'+i))] = r
	}
	r := &report.Report{
		Source:   report.Source{ID: "client", Incarnation: 1},
		Interval: time.Second,
		Methods:  map[string]*report.Method{testMethod: m},
	}
	s.Add(now, r)
	return r
}

func TestGuardsInTheirOrder(t *testing.T) {
	shadow, on := policy.ModeShadow, policy.ModeActive
	for _, c := range []struct {
		name     string
		cfg      func(*Config)
		override *Override
		calls    uint64
		replicas int
		failures uint64
		mode     policy.Mode
		reason   policy.ReasonCode
		method   policy.ReasonCode
		hedges   bool // delay and probability
		text     string
	}{
		{name: "tracking", calls: 1000, replicas: 3, mode: on, reason: policy.ReasonTracking, method: policy.ReasonTracking, hedges: true, text: "1,000 calls in 10s"},
		{name: "off by override", override: &Override{HasMode: true}, calls: 1000, replicas: 3,
			mode: policy.ModeOff, reason: policy.ReasonOverride, method: policy.ReasonTracking, hedges: true, text: "an operator said off"},
		{name: "on by override, not configured", cfg: func(c *Config) { c.Configured = false }, override: &Override{HasMode: true, Mode: on}, calls: 1000, replicas: 3,
			mode: on, reason: policy.ReasonTracking, method: policy.ReasonTracking, hedges: true, text: "1,000 calls in 10s; extra load 0% of 5%"},
		{name: "not configured still advises", cfg: func(c *Config) { c.Configured = false }, calls: 1000, replicas: 3,
			mode: shadow, reason: policy.ReasonNotConfigured, method: policy.ReasonTracking, hedges: true, text: "nobody configured it"},
		{name: "configured as shadow", cfg: func(c *Config) { c.Mode = shadow }, calls: 1000, replicas: 3,
			mode: shadow, reason: policy.ReasonTracking, method: policy.ReasonTracking, hedges: true, text: "calls"},
		{name: "no data comes before too few replicas", calls: 100, replicas: 1,
			mode: on, reason: policy.ReasonNoData, method: policy.ReasonNoData, text: "1 of 1 methods have no estimate"},
		{name: "too few replicas comes before failing", calls: 1000, replicas: 1, failures: 500,
			mode: on, reason: policy.ReasonTooFewReplicas, method: policy.ReasonTooFewReplicas, text: "1 replicas in normal service, hedging needs 2"},
		{name: "failing", calls: 1000, replicas: 2, failures: 100,
			mode: on, reason: policy.ReasonFailing, method: policy.ReasonFailing, text: "1 of 1 methods fail"},
		{name: "failures below the break-even of the throttle", calls: 1000, replicas: 2, failures: 80,
			mode: on, reason: policy.ReasonTracking, method: policy.ReasonTracking, hedges: true, text: "calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := configured()
			if c.cfg != nil {
				c.cfg(&cfg)
			}
			s := New(testKey, cfg)
			s.Configure(cfg, c.override)
			r := feed(s, epoch, c.calls, 10*time.Millisecond, c.replicas)
			fail := &report.Report{Source: r.Source, Interval: time.Millisecond, Methods: map[string]*report.Method{testMethod: {Failures: c.failures}}}
			s.Add(epoch, fail)
			d := s.Tick(epoch)
			m := d.Policy.Methods[testMethod]
			if d.Policy.Mode != c.mode || d.Policy.Reason.Code != c.reason || m.Reason.Code != c.method {
				t.Errorf("mode %v, reason %v, method's %v; want %v, %v, %v", d.Policy.Mode, d.Policy.Reason.Code, m.Reason.Code, c.mode, c.reason, c.method)
			}
			if hedges := m.Delay > 0 && m.Probability > 0; hedges != c.hedges {
				t.Errorf("method %+v: hedges %v, want %v", m, hedges, c.hedges)
			}
			if !strings.Contains(d.Policy.Reason.Text, c.text) {
				t.Errorf("text %q does not contain %q", d.Policy.Reason.Text, c.text)
			}
			decided := map[string]int{}
			for _, g := range d.Guards {
				if g.Text == "" {
					t.Errorf("guard %v says nothing", g.Code)
				}
				if g.Decided {
					decided[g.Method]++
				}
			}
			if decided[""] != 1 || decided[testMethod] != 1 {
				t.Errorf("guards that decided: %v, want one for the service and one for the method", decided)
			}
		})
	}
}

func TestTargetOfOverride(t *testing.T) {
	s := New(testKey, configured())
	feed(s, epoch, 1000, 10*time.Millisecond, 3)
	before := s.Tick(epoch)
	s.Configure(configured(), &Override{Target: .02})
	after := s.Tick(epoch)
	within(t, "ratio", after.Policy.Budget.Ratio, .018, .02)
	if b, a := before.Policy.Methods[testMethod].Delay, after.Policy.Methods[testMethod].Delay; a <= b {
		t.Errorf("delay %v at 2%%, %v at 5%%: want it longer", a, b)
	}
	if after.Policy.Mode != policy.ModeActive || !after.Publish || !after.Tightens {
		t.Errorf("mode %v, publish %v, tightens %v; want active, true, true", after.Policy.Mode, after.Publish, after.Tightens)
	}
}

func TestFailingRecoversWithHysteresis(t *testing.T) {
	bound := failureBound(policy.Throttle{MaxTokens: 10, TokenRatio: .1})
	within(t, "bound", bound, .0909, .0910)
	for _, c := range []struct {
		was             bool
		calls, failures uint64
		want            bool
	}{
		{false, 0, 0, false},
		{false, 1000, 90, false},
		{false, 1000, 92, true},
		{false, 9, 9, false}, // too few
		{true, 1000, 60, true},
		{true, 1000, 40, false},
		{true, 0, 0, false},
		{false, 10, math.MaxUint64, true},
	} {
		if got, text := isFailing(c.was, c.calls, c.failures, bound); got != c.want {
			t.Errorf("was %v, %d of %d: got %v, want %v (%s)", c.was, c.failures, c.calls, got, c.want, text)
		}
	}
}

// p95 of .4 ms: the floor holds. The same service at three calls a minute: too
// few for an estimate, so the default delay, not the quantile.
func TestFloorAndDefaultDelay(t *testing.T) {
	cfg := configured()
	cfg.DefaultDelay = 20 * time.Millisecond
	s := New(testKey, cfg)
	now := epoch
	var d Decision
	for range 40 {
		feed(s, now, 100, 350*time.Microsecond, 3)
		d = s.Tick(now)
		if got := d.Policy.Methods[testMethod].Delay; got != time.Millisecond && got != cfg.DefaultDelay {
			t.Fatalf("delay %v, want the floor of 1 ms", got)
		}
		now = now.Add(time.Second)
	}
	if m := d.Policy.Methods[testMethod]; m.Delay != time.Millisecond || !strings.Contains(m.Reason.Text, "least delay") {
		t.Errorf("delay %v, reason %q: want the floor, and said", m.Delay, m.Reason.Text)
	}
	for range 60 {
		now = now.Add(20 * time.Second)
		feed(s, now, 1, 350*time.Microsecond, 1)
		d = s.Tick(now)
	}
	if m := d.Policy.Methods[testMethod]; m.Delay != cfg.DefaultDelay || m.Reason.Code != policy.ReasonNoData {
		t.Errorf("at 3 calls a minute: delay %v, %v; want the default delay of 20 ms and no_data", m.Delay, m.Reason)
	}
}

// 1,000 samples at 500 ms, then silence for three windows: no estimate, neither
// 500 ms nor 0 that hedges; and the first new sample does not revive them.
func TestSilenceEndsTheEstimate(t *testing.T) {
	s := New(testKey, configured())
	feed(s, epoch, 1000, 500*time.Millisecond, 3)
	m := s.Tick(epoch).Policy.Methods[testMethod]
	within(t, "delay with data", m.Delay, 500*time.Millisecond, 600*time.Millisecond)
	var d Decision
	now := epoch
	published := 0
	for range 4 * 31 {
		now = now.Add(250 * time.Millisecond)
		if d = s.Tick(now); d.Publish {
			published++
			if !d.Tightens {
				t.Errorf("taking the delay away does not tighten")
			}
		}
	}
	m = d.Policy.Methods[testMethod]
	if m.Delay != 0 || m.Reason.Code != policy.ReasonNoData || published != 1 {
		t.Errorf("after silence: delay %v, %v, %d pushes; want none, no_data, 1", m.Delay, m.Reason, published)
	}
	if st := s.Status(now); st.Methods[0].P95.OK {
		t.Errorf("p95 after silence: %v, want none", st.Methods[0].P95)
	}
	feed(s, now, 1, 10*time.Millisecond, 1)
	m = s.Tick(now).Policy.Methods[testMethod]
	if m.Delay != 0 || m.Reason.Code != policy.ReasonNoData {
		t.Errorf("after one new sample: delay %v, %v; want none", m.Delay, m.Reason)
	}
}

// Traffic, two minutes of nothing, traffic again: the budget is there all the
// while and no larger than its cap, and hedging is back within one window.
func TestIdleTimeLeavesTheBudgetUsable(t *testing.T) {
	w := newWorld(configured(), 2, 400, 3, steadyUniform)
	w.run(30 * time.Second)
	before := w.policy.Budget
	w.rps = 0
	w.run(2 * time.Minute)
	if w.delay() != 0 {
		t.Errorf("delay %v after two minutes of nothing, want none", w.delay())
	}
	w.rps = 400
	w.run(Window)
	st := w.svc.Status(w.now)
	extra, ok := st.Load.ExtraLoad()
	if !ok || st.Load.Hedges == 0 || w.delay() == 0 {
		t.Errorf("one window after the idle time: delay %v, load %+v; want hedges", w.delay(), st.Load)
	}
	within(t, "extra load", extra, 0, .05)
	if w.policy.Budget != before || w.policy.Budget.Burst > maxBurst {
		t.Errorf("budget %+v, want %+v as before", w.policy.Budget, before)
	}
}

// The denominator is calls: 100 calls with 11 hedges are 11%, not 11 of 111, and
// hedges' latencies are no part of the distribution that the delay is taken from.
func TestDenominatorIsCalls(t *testing.T) {
	s := New(testKey, configured())
	r := feed(s, epoch, 1000, 10*time.Millisecond, 3)
	r2 := &report.Report{Source: r.Source, Interval: time.Second, Methods: map[string]*report.Method{testMethod: {
		Hedges: 110, Wins: 110,
		Replicas: map[string]*report.Replica{"a": {}},
	}}}
	r2.Methods[testMethod].Replicas["a"].Hedge.Completed.RecordN(time.Second, 110)
	s.Add(epoch, r2)
	m := s.Tick(epoch).Policy.Methods[testMethod]
	within(t, "delay", m.Delay, 11*time.Millisecond, 12*time.Millisecond)
	st := s.Status(epoch)
	extra, ok := st.Load.ExtraLoad()
	if !ok || math.Abs(extra-.11) > 1e-9 {
		t.Errorf("extra load %v, want 0.11", extra)
	}
	if _, ok := (Load{}).ExtraLoad(); ok {
		t.Error("no calls have an extra load")
	}
}

// A restart serves the stored policy: nothing is pushed before there is data, not
// even that no replica was seen yet; after a minute without any, the estimate ends.
func TestRestoreServesTheStoredPolicy(t *testing.T) {
	w := newWorld(configured(), 2, 1000, 3, steadyUniform)
	w.run(30 * time.Second)
	stored := *w.policy
	stored.Replicas = map[string]policy.Replica{"replica-9": {State: policy.ReplicaProbation, Share: .1}}

	s := New(testKey, configured())
	s.Restore(&stored)
	now := w.now
	for range 4 * 59 {
		if d := s.Tick(now); d.Publish {
			t.Fatalf("pushed %v after the restart: %+v", now.Sub(w.now), d.Policy)
		}
		now = now.Add(250 * time.Millisecond)
	}
	pushed := 0
	for range 20 {
		if d := s.Tick(now); d.Publish {
			pushed++
			if m := d.Policy.Methods[testMethod]; m.Delay != 0 || !d.Tightens {
				t.Errorf("after a minute: delay %v, tightens %v; want no estimate", m.Delay, d.Tightens)
			}
		}
		now = now.Add(250 * time.Millisecond)
	}
	if pushed != 1 {
		t.Errorf("%d pushes after a minute without data, want 1", pushed)
	}

	// With traffic the same latencies change nothing.
	stored.Replicas = nil
	w.svc = New(testKey, configured())
	w.svc.Restore(&stored)
	from := w.now
	w.run(30 * time.Second)
	within(t, "pushes after a restart under load", w.pushes(from), 0, 0)
}

func TestConfigureIsPublished(t *testing.T) {
	s := New(testKey, configured())
	if d := s.Tick(epoch); !d.Publish || d.Tightens {
		t.Errorf("first decision: publish %v, tightens %v; want true, false", d.Publish, d.Tightens)
	}
	if s.Tick(epoch).Publish {
		t.Error("the same again is published")
	}
	s.Configure(configured(), &Override{HasMode: true})
	if d := s.Tick(epoch); !d.Publish || !d.Tightens || d.Policy.Mode != policy.ModeOff {
		t.Errorf("off: publish %v, tightens %v, mode %v", d.Publish, d.Tightens, d.Policy.Mode)
	}
	s.Configure(configured(), nil)
	if d := s.Tick(epoch); !d.Publish || d.Tightens || d.Policy.Mode != policy.ModeActive {
		t.Errorf("on again: publish %v, tightens %v, mode %v", d.Publish, d.Tightens, d.Policy.Mode)
	}
}

// A rate of calls about the fewest that an estimate needs makes nothing flap.
func TestCallsAboutTheFewestNeeded(t *testing.T) {
	s := New(testKey, configured())
	now := epoch
	published := 0
	for i := range 300 {
		n := uint64(8) // 240 and 150 in 30 s by turns
		if i/30%2 == 1 {
			n = 5
		}
		feed(s, now, n, 10*time.Millisecond, 2)
		if d := s.Tick(now); d.Publish && i > 60 {
			published++
		}
		now = now.Add(time.Second)
	}
	within(t, "pushes", published, 0, 1)
}

// A client's counts are held against a delay from its second report on of a
// generation that carries it: part of the first one's calls are older.
func TestCountsBelongToADelay(t *testing.T) {
	s := New(testKey, configured())
	feed(s, epoch, 1000, 10*time.Millisecond, 3)
	p := *s.Tick(epoch).Policy
	p.Generation = policy.Generation{Epoch: 1, Number: 5}
	s.Published(&p)
	for i, c := range []struct {
		number uint64
		want   uint64 // calls that count
	}{{4, 0}, {5, 0}, {5, 100}, {5, 200}, {6, 200}} {
		s.Add(epoch, &report.Report{
			Source:     report.Source{ID: "client", Incarnation: 1},
			Generation: policy.Generation{Epoch: 1, Number: c.number}, // 6 was never published
			Methods:    map[string]*report.Method{testMethod: {Calls: 100, Safe: 100, Eligible: 4}},
		})
		got := s.methods[testMethod].counts.sum(epoch, memorySubs).forcedSafe
		if got != c.want {
			t.Errorf("report %d of generation %d: %d calls count, want %d", i, c.number, got, c.want)
		}
	}
}
