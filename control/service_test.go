package control

import (
	"math"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

func TestSteadyFleetCausesNoPushes(t *testing.T) {
	for _, c := range []struct {
		name    string
		clients int
		rps     float64
	}{{"one client at 1,000 rps", 1, 1000}, {"200 clients at 5 rps", 200, 1000}, {"one client at 300 rps", 1, 300}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(configured(), c.clients, c.rps, 3, steadyUniform)
			w.run(40 * time.Second)
			learned := w.now
			w.run(2 * time.Minute)
			st := w.svc.Status(w.now)
			rate, _ := st.Load.EligibleRate()
			extra, _ := st.Load.ExtraLoad()
			t.Logf("delay %v, eligible %.2f%%, extra %.2f%%, pushes while learning %d, later %d, reason %q",
				w.delay(), 100*rate, 100*extra, w.pushes(epoch), w.pushes(learned), st.Methods[0].Policy.Reason.Text)
			within(t, "pushes while learning", w.pushes(epoch)-w.pushes(learned), 1, 8)
			within(t, "pushes of a steady fleet in 2 min", w.pushes(learned), 0, 1)
			within(t, "eligible rate", rate, .03, .055)
			within(t, "extra load", extra, .03, .05)
		})
	}
}

func TestStepInLatencyIsPublishedAtOnce(t *testing.T) {
	for _, clients := range []int{1, 200} {
		scale := 1.0
		w := newWorld(configured(), clients, 1000, 3, nil)
		w.latency = func(string) time.Duration {
			if w.rng.Float64() < .01 {
				return 500 * time.Millisecond
			}
			return time.Duration(scale * 10 * math.Exp(.5*w.rng.NormFloat64()) * float64(time.Millisecond))
		}
		w.run(40 * time.Second)
		before, stepped := w.delay(), w.now
		scale = 3
		w.run(10 * time.Second)
		first := w.now
		for _, c := range w.published {
			if c.at.After(stepped) && c.policy.Methods[testMethod].Delay > before {
				first = c.at
				break
			}
		}
		// Replay of the published delays: the last moment at which it was far off.
		want := 3 * before
		settled := stepped
		delayAt := before
		for _, c := range w.published {
			if !c.at.After(stepped) {
				continue
			}
			if delayAt < want*85/100 || delayAt > want*125/100 {
				settled = c.at
			}
			delayAt = c.policy.Methods[testMethod].Delay
		}
		t.Logf("%d clients: %v -> %v, first push after %v, settled after %v, pushes %d",
			clients, before, w.delay(), first.Sub(stepped), settled.Sub(stepped), w.pushes(stepped))
		within(t, "first push after the step", first.Sub(stepped), 0, time.Second)
		within(t, "settled after the step", settled.Sub(stepped), 0, 2*time.Second)
		within(t, "delay after the step", float64(w.delay())/float64(before), 2.5, 3.6)
	}
}

func TestDriftKeepsExtraLoadWithinTarget(t *testing.T) {
	scale := 1.0
	w := newWorld(configured(), 40, 2000, 3, nil)
	w.latency = func(string) time.Duration { return w.uniform(scale) }
	w.run(30 * time.Second)
	for _, s := range []float64{1.5, 1} {
		scale = s
		before := w.now
		for range 2 {
			w.run(10 * time.Second)
			extra, _ := w.svc.Status(w.now).Load.ExtraLoad()
			t.Logf("x%v: delay %v, extra %.2f%%", scale, w.delay(), 100*extra)
			within(t, "extra load in 10 s", extra, .02, .05+40*10/20000.)
		}
		within(t, "pushes after a drift", w.pushes(before), 1, 8)
		within(t, "delay", w.delay(), time.Duration(scale*13.5*1e6), time.Duration(scale*15.2*1e6))
	}
}

// Timers fire late: what was predicted to be 4.3% is 1% at the same delay. The
// counts, not the prediction, must end near the wanted rate.
func TestMeasuredRateCorrectsForLateTimers(t *testing.T) {
	w := newWorld(configured(), 4, 2000, 3, steadyUniform)
	w.late = 400 * time.Microsecond
	w.run(2 * time.Minute)
	rate, _ := w.svc.Status(w.now).Load.EligibleRate()
	t.Logf("delay %v, eligible %.2f%%, pushes %d", w.delay(), 100*rate, len(w.published))
	within(t, "eligible rate", rate, .033, .052)
	within(t, "delay below the 14.66 ms for timers in time", w.delay(), 13*time.Millisecond, 14400*time.Microsecond)
}

// One of three replicas never answers, and every call that it holds up is
// reported with its full wait. The delay stays near the healthy replicas'
// quantile for ten minutes and never climbs towards the timeout of 2 s, whether
// probation may take the replica out or not.
func TestSilentReplicaDoesNotRatchetTheDelayUp(t *testing.T) {
	for _, limit := range []float64{.34, 0} {
		cfg := configured()
		cfg.ProbationCap = limit
		silent := false
		w := newWorld(cfg, 1, 300, 3, nil)
		w.latency = func(r string) time.Duration {
			if silent && r == "replica-0" {
				return forever
			}
			return w.uniform(1)
		}
		w.run(30 * time.Second)
		silent = true
		longest := time.Duration(0)
		w.onTick = func(d Decision) { longest = max(longest, d.Policy.Methods[testMethod].Delay) }
		w.run(10 * time.Minute)
		t.Logf("cap %v: delay %v, longest %v, pushes %d, replicas %v", limit, w.delay(), longest, len(w.published), w.policy.Replicas)
		within(t, "longest delay", longest, 13*time.Millisecond, 25*time.Millisecond)
		if limit > 0 && w.policy.Replicas["replica-0"].State != policy.ReplicaProbation {
			t.Errorf("the silent replica is not in probation: %v", w.policy.Replicas)
		}
	}
}

// A replica in probation still answers, slowly, a trickle of calls: a tenth of
// its share at this rate. The delay is that of the others.
func TestTrickleDoesNotSetTheDelay(t *testing.T) {
	w := newWorld(configured(), 2, 300, 3, nil)
	w.latency = func(r string) time.Duration {
		if r == "replica-0" {
			return 200*time.Millisecond + w.uniform(1)
		}
		return w.uniform(1)
	}
	w.run(90 * time.Second)
	if state(w, "replica-0") != policy.ReplicaProbation {
		t.Fatalf("not in probation: %v", w.policy.Replicas)
	}
	within(t, "delay", w.delay(), 13*time.Millisecond, 16*time.Millisecond)
}

// A client that stops calling reports last the slow ones of its calls, of which it
// reported the quick ones before: they count to that time, even with nothing to
// report in between. Alone they would look like a change of all latencies.
func TestLateCallsCountToTheirTime(t *testing.T) {
	s := New(policy.Key{Tenant: policy.DefaultTenant, Service: "s"}, configured())
	now := epoch
	send := func(after time.Duration, id string, calls uint64, took ...time.Duration) {
		now = now.Add(after)
		r := &report.Report{Source: report.Source{ID: id}, Interval: 250 * time.Millisecond}
		if calls > 0 || len(took) > 0 {
			m := &report.Method{Calls: calls, Safe: calls, Replicas: map[string]*report.Replica{}}
			for i, d := range took {
				name := []string{"a", "b", "c"}[i%3]
				if m.Replicas[name] == nil {
					m.Replicas[name] = &report.Replica{}
				}
				m.Replicas[name].Primary.Completed.Record(d)
			}
			r.Methods = map[string]*report.Method{testMethod: m}
		}
		s.Add(now, r)
		s.Tick(now)
	}
	quick := make([]time.Duration, 3970)
	for i := range quick {
		quick[i] = time.Duration(10+i%20) * time.Millisecond
	}
	stalls := make([]time.Duration, 30)
	for i := range stalls {
		stalls[i] = time.Second
	}
	send(250*time.Millisecond, "first", 4000, quick...)
	send(750*time.Millisecond, "first", 0)
	send(190*time.Millisecond, "first", 0, stalls...)
	early := make([]time.Duration, 130) // only the quickest have ended so soon
	for i := range early {
		early[i] = time.Duration(10+i%4) * time.Millisecond
	}
	send(50*time.Millisecond, "second", 530, early...)
	if d := s.methods[testMethod].delay; d > 40*time.Millisecond {
		t.Errorf("delay %v, want that of calls that take 10 to 30 ms", d)
	}
}
