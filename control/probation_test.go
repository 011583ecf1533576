package control

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// lognormal has the median and a sigma of .5.
func (w *world) lognormal(median float64) time.Duration {
	return time.Duration(median * math.Exp(.5*w.rng.NormFloat64()) * float64(time.Millisecond))
}

func state(w *world, name string) policy.ReplicaState {
	if w.policy == nil {
		return policy.ReplicaServing
	}
	return w.policy.Replicas[name].State
}

// until runs until cond holds and returns how long that took, at most limit.
func (w *world) until(limit time.Duration, cond func() bool) time.Duration {
	start := w.now
	for w.now.Sub(start) < limit && !cond() {
		w.run(50 * time.Millisecond)
	}
	return w.now.Sub(start)
}

func TestSlowReplicaIsFlaggedAndReleased(t *testing.T) {
	for _, c := range []struct {
		name     string
		clients  int
		rps      float64
		replicas int
		slow     float64
		flagged  time.Duration
		uniform  bool
	}{
		{"one of three, three times slower", 10, 2000, 3, 3, 5 * time.Second, true},
		{"one of three, three times slower, one client", 1, 2000, 3, 3, 5 * time.Second, true},
		{"one of ten, 1.5 times slower", 10, 1000, 10, 1.5, 4 * time.Second, false},
		{"one of ten, 1.5 times slower, one client", 1, 1000, 10, 1.5, 4 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			scale := 1.0
			w := newWorld(configured(), c.clients, c.rps, c.replicas, nil)
			w.latency = func(r string) time.Duration {
				s := 1.0
				if r == "replica-0" {
					s = scale
				}
				if c.uniform {
					return w.uniform(s)
				}
				return w.lognormal(10 * s)
			}
			w.run(20 * time.Second)
			scale = c.slow
			flagged := w.until(time.Minute, func() bool { return state(w, "replica-0") == policy.ReplicaProbation })
			p := w.policy.Replicas["replica-0"]
			w.run(20 * time.Second)
			if got := state(w, "replica-0"); got != policy.ReplicaProbation {
				t.Errorf("20 s later, still slow: %v, want probation", got)
			}
			scale = 1
			released := w.until(time.Minute, func() bool { return state(w, "replica-0") == policy.ReplicaRecovering })
			served := w.until(time.Minute, func() bool { return state(w, "replica-0") == policy.ReplicaServing })
			t.Logf("flagged after %v with share %.3f (%s); released after %v, in service %v later", flagged, p.Share, p.Reason, released, served)
			within(t, "flagged", flagged, 1500*time.Millisecond, c.flagged)
			within(t, "in service", released+served, 5*time.Second, 15*time.Second)
		})
	}
}

func TestHealthyReplicasAreNotFlagged(t *testing.T) {
	for _, c := range []struct {
		name     string
		clients  int
		rps      float64
		replicas int
	}{
		{"10 x 100 rps", 10, 1000, 10},
		{"100 x 10 rps", 20, 1000, 100},
		{"20 x 5 rps", 5, 100, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(configured(), c.clients, c.rps, c.replicas, func(w *world, _ string) time.Duration {
				if w.rng.Float64() < .01 {
					return time.Second
				}
				return w.lognormal(10)
			})
			w.onTick = func(d Decision) {
				for name, r := range d.Policy.Replicas {
					t.Fatalf("%s is in %v after %v: %s", name, r.State, w.now.Sub(epoch), r.Reason)
				}
			}
			w.run(time.Minute)
		})
	}
}

// Two sick replicas of ten must not hide each other, nor most replicas be
// ejected when most are slow.
func TestSeveralSlowReplicas(t *testing.T) {
	for _, c := range []struct{ slow, want int }{{2, 2}, {3, 3}, {4, 3}, {6, 0}, {9, 0}, {10, 0}} {
		scale := 1.0
		w := newWorld(configured(), 4, 1000, 10, nil)
		w.latency = func(r string) time.Duration {
			var n int
			fmt.Sscanf(r, "replica-%d", &n)
			if n < c.slow {
				return w.uniform(scale)
			}
			return w.uniform(1)
		}
		w.run(5 * time.Second)
		scale = 3
		w.run(7 * time.Second)
		if got := len(w.policy.Replicas); got != c.want {
			t.Errorf("%d of 10 slow: %d out of service, want %d: %v", c.slow, got, c.want, w.policy.Replicas)
		}
	}
}

// All replicas turn slow one by one: at every instant at most floor(n x cap) are
// out of service, never one of one, and two always serve.
func TestProbationCapHoldsAtEveryInstant(t *testing.T) {
	for n := 1; n <= 10; n++ {
		for _, limit := range []float64{0, .10, .34, .50, .67, 1} {
			cfg := configured()
			cfg.ProbationCap = limit
			allowed := min(int(math.Floor(float64(n)*limit+1e-9)), max(0, n-2))
			s, now, most := New(testKey, cfg), epoch, 0
			for second := range 5 * (n + 1) {
				slow := second / 5 // one more every 5 s
				m := &report.Method{Calls: 40 * uint64(n), Safe: 40 * uint64(n), Replicas: map[string]*report.Replica{}}
				for i := range n {
					r := &report.Replica{}
					for j := range 40 {
						d := 9*time.Millisecond + time.Duration(j)*50*time.Microsecond
						if i < slow {
							d = 60 * time.Millisecond
						}
						r.Primary.Completed.Record(d)
					}
					m.Replicas[fmt.Sprintf("replica-%d", i)] = r
				}
				s.Add(now, &report.Report{Interval: time.Second, Methods: map[string]*report.Method{testMethod: m}})
				for range 4 {
					out := len(s.Tick(now).Policy.Replicas)
					most = max(most, out)
					if out > allowed {
						t.Fatalf("n %d, cap %v, %d slow: %d out of service, want at most %d", n, limit, slow, out, allowed)
					}
					now = now.Add(250 * time.Millisecond)
				}
			}
			if want := min(allowed, max(0, (n-1)/2)); most < want {
				t.Errorf("n %d, cap %v: never more than %d out of service, want %d", n, limit, most, want)
			}
		}
	}
}

// The cap holds too when healthy replicas go away.
func TestProbationCapHoldsWhenReplicasGoAway(t *testing.T) {
	w := newWorld(configured(), 2, 600, 9, nil)
	w.latency = func(r string) time.Duration {
		if r <= "replica-2" {
			return 60 * time.Millisecond
		}
		return time.Duration(9+2*w.rng.Float64()) * time.Millisecond
	}
	w.run(15 * time.Second)
	if got := len(w.policy.Replicas); got != 3 {
		t.Fatalf("out of service: %d, want 3: %v", got, w.policy.Replicas)
	}
	w.setReplicas(5)
	w.run(12 * time.Second)
	if got := len(w.policy.Replicas); got > 1 {
		t.Errorf("out of 5 replicas %d are out of service, want at most 1: %v", got, w.policy.Replicas)
	}
}

// 50 replicas at 10.0 +- .05 ms: one at 10.4 ms is not sick, one at 60 ms is, and
// where all are identical nobody is.
func TestAbsoluteFloor(t *testing.T) {
	for _, c := range []struct {
		name   string
		spread float64
		odd    float64
		want   bool
	}{
		{"one at 10.4 ms", .05, 10.4, false},
		{"one at 60 ms", .05, 60, true},
		{"no spread", 0, 10, false},
		{"no spread, one at 60 ms", 0, 60, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(configured(), 4, 2000, 50, nil)
			w.latency = func(r string) time.Duration {
				at := 10.0
				if r == "replica-7" {
					at = c.odd
				}
				at += c.spread * (2*w.rng.Float64() - 1)
				return time.Duration(at * float64(time.Millisecond))
			}
			flagged := false
			w.onTick = func(d Decision) {
				for name := range d.Policy.Replicas {
					flagged = true
					if name != "replica-7" {
						t.Fatalf("%s is flagged: %v", name, d.Policy.Replicas)
					}
				}
			}
			w.run(20 * time.Second)
			if flagged != c.want {
				t.Errorf("flagged: %v, want %v", flagged, c.want)
			}
		})
	}
}

// A fourth replica joins under load without any samples: it gets its quarter,
// is neither preferred nor flagged, and a few slow first answers are not enough.
func TestNewReplicaIsNeitherPreferredNorFlagged(t *testing.T) {
	w := newWorld(configured(), 4, 1000, 3, steadyUniform)
	w.run(20 * time.Second)
	w.setReplicas(4)
	w.picked = map[string]int{}
	w.onTick = func(d Decision) {
		if len(d.Policy.Replicas) > 0 {
			t.Fatalf("out of service: %v", d.Policy.Replicas)
		}
	}
	w.run(20 * time.Second)
	total := 0
	for _, n := range w.picked {
		total += n
	}
	within(t, "share of the new replica", float64(w.picked["replica-3"])/float64(total), .23, .27)

	// Fewer samples in a window than count: 60 ms for each of them, for a minute.
	p := newProbation()
	now := epoch
	for range 60 {
		for i, n := range []uint64{300, 300, 300, minJudged - 1} {
			var s estimator.Sample
			s.Completed.RecordN(10*time.Millisecond, n)
			if i == 3 {
				s.Reset()
				s.Completed.RecordN(60*time.Millisecond, n)
			}
			p.add(now, fmt.Sprint(i), "m", "", &s, 0)
		}
		now = now.Add(windowTime)
		p.tick(now, .34, 900)
	}
	if out := p.policies(); len(out) > 0 {
		t.Errorf("flagged with %d samples a window: %v", minJudged-1, out)
	}
}

// A far zone or a heavy method makes none of its replicas look sick.
func TestStrataAreComparedApart(t *testing.T) {
	p := newProbation()
	now := epoch
	for range 30 {
		for i := range 4 {
			near, far := uint64(100), uint64(0)
			if i == 3 { // nearly all of its calls come from afar
				near, far = 10, 100
			} else {
				far = 8
			}
			for n := range near {
				var s estimator.Sample
				s.Completed.Record(time.Duration(8+n%5) * time.Millisecond)
				p.add(now, fmt.Sprint(i), "m", "near", &s, 0)
			}
			for n := range far {
				var s estimator.Sample
				s.Completed.Record(time.Duration(60+n%5) * time.Millisecond)
				p.add(now, fmt.Sprint(i), "m", "far", &s, 0)
			}
		}
		now = now.Add(windowTime)
		p.tick(now, .34, 500)
	}
	if out := p.policies(); len(out) > 0 {
		t.Errorf("flagged: %v", out)
	}
}

// sick feeds one window of four replicas, of which the last answers in at.
func sick(p *probation, now time.Time, at time.Duration, n uint64) {
	for i := range 4 {
		var s estimator.Sample
		for j := range uint64(60) {
			if i == 3 && j >= n {
				break
			}
			d := time.Duration(8+j%5) * time.Millisecond
			if i == 3 && at > 0 {
				d = at
			}
			s.Completed.Record(d)
		}
		p.add(now, fmt.Sprint(i), "m", "", &s, 0)
	}
}

// A replica is slow for an hour but for a few good seconds now and then: each
// time it is let back it is in probation again within one window.
func TestStillSlowReplicaReturnsEveryTime(t *testing.T) {
	p := newProbation()
	now := epoch
	step := func(at time.Duration, n uint64) {
		sick(p, now, at, n)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	for range slowWindows {
		step(60*time.Millisecond, 60)
	}
	r := p.replicas["3"]
	cycles := 0
	for end := now.Add(time.Hour); now.Before(end); cycles++ {
		if r.state != policy.ReplicaProbation {
			t.Fatalf("cycle %d: %v after slow windows, want probation", cycles, r.state)
		}
		for range 60 { // slow, and measured by the trickle
			step(60*time.Millisecond, 10)
			if r.state != policy.ReplicaProbation {
				t.Fatalf("cycle %d: released while slow: %s", cycles, r.reason)
			}
		}
		for i := 0; r.state == policy.ReplicaProbation; i++ {
			if i > 400 {
				t.Fatalf("cycle %d: not released by good samples", cycles)
			}
			step(0, 10)
		}
		step(60*time.Millisecond, 60)
	}
	if cycles < 6 {
		t.Errorf("%d cycles in an hour", cycles)
	}
	within(t, "doublings", r.doublings, maxDoublings, maxDoublings)
}

// A repeat offender that gets no traffic has proved nothing: its stay neither
// ends nor shrinks by time, grows with each relapse, and is capped.
func TestOnlyGoodSamplesShortenProbation(t *testing.T) {
	p := newProbation()
	now := epoch
	step := func(at time.Duration, n uint64) {
		sick(p, now, at, n)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	for range slowWindows {
		step(60*time.Millisecond, 60)
	}
	r := p.replicas["3"]
	stay := r.stay()
	for range 120 { // no traffic at all
		step(0, 0)
	}
	if r.state != policy.ReplicaProbation {
		t.Fatalf("released without a sample: %v", r.state)
	}
	for r.state != policy.ReplicaServing {
		step(0, 50)
	}
	for range 300 { // in service, without traffic
		step(0, 0)
	}
	step(60*time.Millisecond, 60) // slow on its first calls
	if r.state != policy.ReplicaProbation || r.stay() != 2*stay {
		t.Fatalf("relapse after an idle time: %v for at least %v, want probation for %v", r.state, r.stay(), 2*stay)
	}
	for range 20 {
		step(0, 0)
	}
	step(0, 60) // what it proved before the relapse does not count with these
	if r.state != policy.ReplicaProbation {
		t.Fatalf("released on 60 samples since the relapse: %v", r.state)
	}
	for r.state != policy.ReplicaServing {
		step(0, 50)
	}
	for range 2*forgiveWindows + 1 {
		step(0, 60)
	}
	if r.doublings != 0 {
		t.Errorf("after good samples: %d doublings, want 0", r.doublings)
	}
	for range 20 {
		r.relapse(now, .02, evidence{})
	}
	within(t, "longest stay", r.stay(), firstStay<<(maxDoublings-1), firstStay<<(maxDoublings-1))
}

// Fast failures are not low latency: a replica in probation that fails most
// attempts at once is not released by the few that it answers well.
func TestFastFailuresProveNothing(t *testing.T) {
	p := newProbation()
	now := epoch
	for range slowWindows {
		sick(p, now, 60*time.Millisecond, 60)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	r := p.replicas["3"]
	for range 60 {
		sick(p, now, 0, 20)
		r.failed += 100
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	if r.state != policy.ReplicaProbation {
		t.Errorf("released into %v, want probation", r.state)
	}
}
