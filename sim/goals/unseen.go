package goals

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// unseen are worlds that nothing about the controller was chosen by, each unlike those
// that come with the program: in its latencies, size, queues, routing or target.
var unseen = []struct{ name, text string }{
	{"cache", `
		clients  10
		arrivals poisson 1000
		latency  file cache
		network  300us jitter 100us
		replicas 8`},
	{"far", `
		clients  20
		arrivals poisson 500
		latency  exponential 30ms
		network  40ms jitter 20ms
		replicas 5`},
	{"workers", `
		clients  8
		arrivals poisson 2880
		latency  pareto 2.5 6ms
		replicas 12 workers 4
		routing  better-of-two
		cancel   queued`},
	{"alike", `
		target   2%
		clients  50
		arrivals poisson 1000
		latency  lognormal 40ms 0.8
		correlation 0.4
		replicas 6`},
	{"episodes", `
		clients  4
		arrivals steady 2000
		latency  uniform 2ms 9ms
		stall    replica 20% 100ms every 5s for 300ms
		replicas 7
		routing  round-robin
		reports  2s loss 2%`},
}

// unseenWorlds are they, to last so long; nothing is counted before the warm-up's end.
func unseenWorlds(duration time.Duration) []*sim.Scenario {
	worlds := make([]*sim.Scenario, len(unseen))
	for i, u := range unseen {
		s, err := sim.Parse("unseen-"+u.name, fmt.Sprintf("duration %v\nwarmup 20s%s", duration, u.text), cache)
		if err != nil {
			panic(err) // it is part of the program
		}
		worlds[i] = s
	}
	return worlds
}

// cache is what a replica that looks into its cache takes: 1 ms or so if it is there,
// and 20 to 60 ms for one in thirty calls, in which it is not.
func cache(string) ([]byte, error) {
	const n, misses = 3000, 100
	var b strings.Builder
	for i := range n - misses {
		at := (float64(i) + .5) / (n - misses)
		fmt.Fprintf(&b, "%v\n", time.Duration(1e6*math.Exp(.3*math.Sqrt2*math.Erfinv(2*at-1))))
	}
	for i := range misses {
		fmt.Fprintf(&b, "%v\n", 20*time.Millisecond+time.Duration(i)*40*time.Millisecond/misses)
	}
	return []byte(b.String()), nil
}

func unseenOracles() []*sim.Scenario { return unseenWorlds(120 * time.Second) }

// unseenGoal holds them against the best fixed delay and probability, on the same
// seeds.
func unseenGoal(b *Bench) ([]Check, error) {
	worlds := unseenWorlds(Pick(b, 120*time.Second, 60*time.Second))
	var checks []Check
	for i, full := range unseenOracles() {
		oracle, err := b.Oracle(full)
		if err != nil {
			return nil, err
		}
		seeds := Pick(b, 12, 3)
		hedged, err := b.Run(worlds[i], Hedged(), seeds, nil)
		if err != nil {
			return nil, err
		}
		best, err := b.Run(worlds[i], oracle.Policy(), seeds, nil)
		if err != nil {
			return nil, err
		}
		of := Pooled(best, .999).Value
		p999 := Pooled(hedged, .999)
		checks = append(checks,
			AtMost(unseen[i].name+"-p99.9", "% of the oracle's", Figure{100 * p999.Value / of, 100 * p999.SD / of}, 105),
			AtMost(unseen[i].name+"-extra", "%", Worst(hedged, extraShare), 100*full.Target()),
		)
	}
	return checks, nil
}
