package goals

import (
	"fmt"

	"github.com/hedged-project/hedged/sim"
)

// articleWorld is so many single calls, one after the other as good as always: they
// take 5 to 15 ms and one in a hundred a second more. All of them count, those too
// that come before the first policy.
func articleWorld(calls int, arrivals string) *sim.Scenario {
	const rate = 20
	return World("article-"+arrivals, `
		duration %ds
		warmup   0s
		bound    500ms
		arrivals %s %d
		latency  uniform 5ms 15ms
		stall    call 1%% 1s
		replicas 3`, calls/rate, arrivals, rate)
}

// articleOwn is the article's single calls whose stalls are each attempt's own.
func articleOwn(b *Bench) ([]Check, error) {
	var checks []Check
	for _, arrivals := range []string{"poisson", "steady"} {
		row, err := b.Run(articleWorld(100_000, arrivals), Hedged(), Pick(b, 12, 2), nil)
		if err != nil {
			return nil, err
		}
		checks = append(checks,
			AtMost(fmt.Sprintf("own-%s-slow", arrivals), "%", Of(row, slowShare), .02),
			AtMost(fmt.Sprintf("own-%s-extra", arrivals), "%", Worst(row, extraShare), 5),
		)
	}
	return checks, nil
}

// slowShare is how many of a hundred requests took longer than the world's bound.
func slowShare(r *sim.Result) float64 { return 100 * float64(r.Over) / float64(r.Requests) }

// extraShare is hedges for a hundred calls.
func extraShare(r *sim.Result) float64 { return 100 * r.Extra() }
