package goals

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// fanoutWorld is requests that wait for n calls to n replicas, one in a hundred of
// which stalls. Its bound tells a request that met a stall from one that did not.
func fanoutWorld(n, requests int) *sim.Scenario {
	rate := max(1000/n, 2)
	duration := 10*time.Second + time.Duration(requests)*time.Second/time.Duration(rate)
	return World(fmt.Sprintf("fanout-%d", n), `
		duration %v
		fanout   %d
		bound    500ms
		arrivals poisson %d
		latency  uniform 5ms 15ms
		stall    call 1%% 1s
		replicas %d`, duration, n, rate, max(n, 2))
}

// fanout holds the slow shares against what 1 - .99^n says, and the article's table.
func fanout(b *Bench) ([]Check, error) {
	hedged, err := b.Run(fanoutWorld(100, Pick(b, 2000, 600)), Hedged(), Pick(b, 12, 4), nil)
	if err != nil {
		return nil, err
	}
	checks := []Check{AtMost("hedged-100", "%", Mean(hedged, slowShare), 1.5)}
	for _, n := range []int{1, 2, 10, 50, 100, 500} {
		requests := max(Pick(b, 400_000, 60_000)/n, Pick(b, 1000, 300))
		row, err := b.Run(fanoutWorld(n, requests), None(), Pick(b, 12, 4), nil)
		if err != nil {
			return nil, err
		}
		want := 100 * (1 - math.Pow(.99, float64(n)))
		total := 0.0
		for _, r := range row.Results {
			total += float64(r.Requests)
		}
		// Four standard errors of a share of so many requests.
		off := 4 * 100 * math.Sqrt(want/100*(1-want/100)/total)
		checks = append(checks, Near(fmt.Sprintf("plain-%d", n), "%", Mean(row, slowShare), want, off))
	}
	return checks, nil
}
