package control

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// A client makes 4,000 calls, 400 at a time, in .3 s; one in a hundred stalls for
// a second. What its last report holds is stalls alone: the calls among which
// they began were reported before. The next client's first report, sent early,
// holds the quick ones of its first 400. Neither is a change of latency: the
// delay stays where the 4,000 calls put it.
func TestStallsReportedLastAreNoChange(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		busy := func() time.Duration {
			return 5*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(7*time.Millisecond))
		}
		s := New(testKey, configured())
		send := func(at time.Duration, id string, calls, eligible uint64, interval time.Duration, latencies []time.Duration) {
			r := &report.Report{
				Source:     report.Source{ID: id, Incarnation: 1},
				Interval:   interval,
				Generation: policy.Generation{Epoch: 1, Number: 1},
				Early:      eligible > 0,
				Methods: map[string]*report.Method{testMethod: {
					Calls: calls, Safe: calls, Eligible: eligible,
					Replicas: map[string]*report.Replica{"a": {}, "b": {}, "c": {}},
				}},
			}
			for i, l := range latencies {
				r.Methods[testMethod].Replicas[string(rune('a'+i%3))].Primary.Completed.Record(l)
			}
			s.Add(epoch.Add(at), r)
		}
		tick := func(at time.Duration) time.Duration {
			d := s.Tick(epoch.Add(at))
			d.Policy.Generation = policy.Generation{Epoch: 1, Number: 1}
			s.Published(d.Policy)
			return d.Policy.Methods[testMethod].Delay
		}

		var most, stalls []time.Duration
		for range 4000 {
			if rng.Float64() < .01 {
				stalls = append(stalls, time.Second+busy())
			} else {
				most = append(most, busy())
			}
		}
		send(time.Second, "plain", 4000, 0, time.Second, most)
		learned := tick(1050 * time.Millisecond)
		// Another sub-window of the estimate has begun meanwhile.
		send(1550*time.Millisecond, "plain", 0, 0, 550*time.Millisecond, stalls)
		if d := tick(1560 * time.Millisecond); d < learned*9/10 || d > learned*5/4 {
			t.Errorf("seed %d: %v after the stalls, want about the %v that was learned", seed, d, learned)
		}

		// At its start the next client finds everything cold.
		var quick []time.Duration
		for len(quick) < 70 {
			if l := busy() * 2; l < 33*time.Millisecond {
				quick = append(quick, l)
			}
		}
		send(1600*time.Millisecond, "hedged", 470, 190, 33*time.Millisecond, quick)
		if d := tick(1601 * time.Millisecond); d < learned*9/10 || d > 4*learned {
			t.Errorf("seed %d: %v after an early report, want about the %v that was learned", seed, d, learned)
		}
	}
}
