package sim

import (
	"fmt"
	"testing"
)

// queues is a world of replicas that queue, as busy as that.
// Their servers are silent: what costly hedges change about a world of three seeds is
// more than what probation may.
func queues(t testing.TB, replicas int, busy float64, routing, more string) *Scenario {
	t.Helper()
	rate := float64(replicas) * busy / .0164872 // the mean of this lognormal
	return world(t, "latency lognormal 10ms 1\nreplicas %d workers 1\ncancel never\nservers silent\nrouting %s\narrivals poisson %g\n%s",
		replicas, routing, rate, more)
}

// Calls that queue are slow one after the other. None of the replicas of such a
// pool is sick, and to spare one would make the others worse. The p99.9 of three
// 3 has a standard deviation of some 10%, and a run in which none was ever out
// is the same as one without probation.
func TestHealthyQueuesKeepTheirReplicas(t *testing.T) {
	if raceEnabled {
		return // the goldens are as good for races
	}
	for _, replicas := range []int{3, 10} {
		for _, busy := range []float64{.3, .5, .7} {
			for _, routing := range []string{"random", "round-robin"} {
				t.Run(fmt.Sprintf("%d replicas, %g busy, %s", replicas, busy, routing), func(t *testing.T) {
					t.Parallel()
					const size = "warmup 100s\nduration %ds\nprobation %s"
					seconds := 100 + 1200/replicas
					var out, p999, without float64
					for seed := uint64(1); seed <= 3; seed++ {
						r := play(t, queues(t, replicas, busy, routing, fmt.Sprintf(size, seconds, "34%")), under(t, "hedged"), seed)
						out += r.Unwell / 3
						p999 += Millis(r.P999) / 3
						if busy == .7 { // else it takes long
							r = play(t, queues(t, replicas, busy, routing, fmt.Sprintf(size, seconds, "0%")), under(t, "hedged"), seed)
						}
						without += Millis(r.P999) / 3
					}
					t.Logf("%.3f out of service, p99.9 %.0f ms, without probation %.0f ms", out, p999, without)
					if out >= .02 {
						t.Errorf("%.3f replicas are out of service on average, want less than .02", out)
					}
					if p999 > 1.2*without {
						t.Errorf("p99.9 %.0f ms, want what it is without probation: %.0f ms", p999, without)
					}
				})
			}
		}
	}
}

// Where nothing was learned yet and replicas are 90% busy, one is ejected for its
// queue. Its ejection must not make the others' queues the next reason, and so on.
func TestBusyQueuesComeToRest(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		return
	}
	for seed := uint64(1); seed <= 4; seed++ {
		r := play(t, queues(t, 3, .9, "random", "warmup 1s\nduration 300s"), under(t, "hedged"), seed)
		t.Logf("seed %d: %.3f out of service, p99.9 %.0f ms", seed, r.Unwell, Millis(r.P999))
		if r.Unwell > .3 {
			t.Errorf("seed %d: %.2f of three replicas are out of service on average, want at most .3", seed, r.Unwell)
		}
	}
}

// A replica whose work takes twice as long is found among queues too, in 45 s, and
// kept out for most of the time.
func TestSlowReplicaAmongQueuesIsFound(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		return
	}
	for _, replicas := range []int{3, 10} {
		for _, busy := range []float64{.3, .5} {
			const size = "warmup 150s\nat 150s slowdown 2 replica 1\nduration %ds"
			for seed := uint64(1); seed <= 3; seed++ {
				r := play(t, queues(t, replicas, busy, "random", fmt.Sprintf(size, 195)), under(t, "hedged"), seed)
				if r.Unwell == 0 {
					t.Errorf("%d replicas, %g busy, seed %d: not found in 45 s", replicas, busy, seed)
				}
			}
			out := 0.0
			for seed := uint64(1); seed <= 3; seed++ {
				r := play(t, queues(t, replicas, busy, "random", fmt.Sprintf(size, 350)), under(t, "hedged"), seed)
				out += r.Unwell / 3
			}
			t.Logf("%d replicas, %g busy: %.3f out of service", replicas, busy, out)
			if out < .5 || out > 1.1 {
				t.Errorf("%d replicas, %g busy: %.2f are out of service on average, want the sick one for most of the time", replicas, busy, out)
			}
		}
	}
}
