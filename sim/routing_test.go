package sim

import (
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// picks routes primaries and, after each, a hedge, and counts them by replica.
func picks(t *testing.T, routing string, calls int, prepare func(*World)) (primaries, hedges [4]int) {
	t.Helper()
	s := world(t, "latency constant 1s\nreplicas 4 workers 1\nrouting %s", routing)
	w := newWorld(s, 1, newNone)
	w.setClients(1)
	prepare(w)
	c := w.take()
	c.client = w.clients[0]
	for range calls {
		first, ok := w.route(c, 0)
		if !ok {
			t.Fatal("no replica for a primary")
		}
		primaries[first]++
		c.attempts[0].replica = first
		second, ok := w.route(c, 1)
		if !ok || second == first {
			t.Fatalf("a hedge to %d, %v after a primary to %d", second, ok, first)
		}
		hedges[second]++
	}
	return primaries, hedges
}

func TestRoutingSpreads(t *testing.T) {
	for _, routing := range []string{"random", "round-robin", "shortest-queue", "better-of-two"} {
		p, h := picks(t, routing, 8000, func(*World) {})
		for i := range p {
			if p[i] < 1800 || p[i] > 2200 || h[i] < 1800 || h[i] > 2200 {
				t.Errorf("%s: primaries %v, hedges %v of 8,000, want about 2,000 each", routing, p, h)
				break
			}
		}
	}
}

// A replica in probation gets its share of its fair share of primaries, and a
// hedge only when no other is left.
func TestRoutingKeepsProbation(t *testing.T) {
	for _, routing := range []string{"random", "round-robin", "shortest-queue", "better-of-two"} {
		p, h := picks(t, routing, 8000, func(w *World) {
			cl := w.clients[0]
			cl.candidates[2].state, cl.candidates[2].share = policy.ReplicaProbation, .1
			cl.unwell = 1
		})
		if p[2] < 150 || p[2] > 250 || h[2] != 0 {
			t.Errorf("%s: primaries %v, hedges %v, want some 200 and 0 at the third", routing, p, h)
		}
		for _, i := range []int{0, 1, 3} {
			if p[i] < 2300 || p[i] > 2900 {
				t.Errorf("%s: primaries %v, want the others to share alike", routing, p)
			}
		}
	}
}

func TestShortestQueue(t *testing.T) {
	p, h := picks(t, "shortest-queue", 100, func(w *World) {
		w.replicas[0].busy, w.replicas[1].busy, w.replicas[2].busy, w.replicas[3].busy = 1, 1, 0, 1
		w.replicas[0].waits, w.replicas[3].waits = 5, 3
	})
	if p[2] != 100 || h[1] != 100 {
		t.Errorf("primaries %v, hedges %v, want all at the third, then all at the second", p, h)
	}
}

// A replica's latency is at once as high as the highest, falls towards what comes
// after as time goes by, and what was cancelled can raise it but not lower it.
func TestPeakEWMA(t *testing.T) {
	w := &World{}
	p := &peakEWMA{w: w, cost: float64(10 * time.Millisecond)}
	want := func(least, most time.Duration) {
		t.Helper()
		if got := time.Duration(p.load(0)); got < least || got > most {
			t.Errorf("at %v: %v, want %v to %v", w.now, got, least, most)
		}
		if p.load(2) < 3*p.load(0)-3 {
			t.Error("attempts that are outstanding do not count")
		}
	}
	p.observe(100*time.Millisecond, false)
	want(100*time.Millisecond, 100*time.Millisecond)
	p.observe(time.Millisecond, false)
	want(99*time.Millisecond, 100*time.Millisecond)
	w.now = 10 * time.Second
	p.observe(time.Millisecond, true)
	want(36*time.Millisecond, 37*time.Millisecond)
	p.observe(time.Millisecond, false)
	want(37*time.Millisecond, 38*time.Millisecond)
	p.observe(200*time.Millisecond, true)
	want(200*time.Millisecond, 200*time.Millisecond)
}
