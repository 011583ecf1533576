package goals

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/sim"
)

// calm is the service of the goals about freezes and steps, of which text says more.
func calm(name string, clients int, duration time.Duration, text string) *sim.Scenario {
	return World(fmt.Sprintf("%s-%d", name, clients), `
		duration %v
		warmup   20s
		clients  %d
		arrivals poisson 1000
		latency  lognormal 10ms 0.5
		stall    call 1%% 500ms
		replicas 3
		%s`, duration, clients, text)
}

// freezes are the times at which nothing moves any more, and for how long.
var freezes = []struct{ at, last time.Duration }{
	{30 * time.Second, 2 * time.Second}, {50 * time.Second, 3 * time.Second}, {70 * time.Second, 5 * time.Second},
}

// thaw is the longest that is waited for hedging to be back.
const thaw = 15 * time.Second

// freezeStops measures freezes that are there.
func freezeStops(b *Bench) ([]Check, error) {
	const slot = 10 * time.Millisecond
	text := ""
	for _, f := range freezes {
		text += fmt.Sprintf("at %v freeze %v\n", f.at, f.last)
	}
	var checks []Check
	for _, clients := range []int{1, 200} {
		seeds := Pick(b, 12, 3)
		hedges := make([][]int, seeds)
		stopped := make([][]float64, seeds)
		s := calm("freeze", clients, 95*time.Second, text)
		_, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe {
			hedges[i] = make([]int, int(2*time.Minute/slot))
			stopped[i] = make([]float64, len(freezes))
			for k, f := range freezes {
				stopped[i][k] = f.last.Seconds()
			}
			return sim.Probe{
				Hedge: func(at, _ time.Duration) { hedges[i][at/slot]++ },
				Decided: func(at time.Duration, d *control.Decision, _ func() control.Status) {
					if !frozen(d) {
						return
					}
					for k, f := range freezes {
						if at >= f.at && at < f.at+f.last {
							stopped[i][k] = min(stopped[i][k], (at - f.at).Seconds())
						}
					}
				},
			}
		})
		if err != nil {
			return nil, err
		}
		var stop, sent, back []float64
		for i := range seeds {
			stop = append(stop, stopped[i]...)
			for _, f := range freezes {
				end := int((f.at + f.last) / slot)
				sent = append(sent, float64(sum(hedges[i][f.at/slot:end]))/float64(clients))
				back = append(back, (time.Duration(halfAgain(hedges[i][end:end+int(thaw/slot)], int(time.Second/slot))) * slot).Seconds())
			}
		}
		most := map[int]float64{1: 60, 200: 1.3}[clients]
		checks = append(checks,
			AtMost(fmt.Sprintf("stopped-%d", clients), "s", medianOf(stop), .4),
			AtMost(fmt.Sprintf("hedges-%d", clients), "", medianOf(sent), most),
			AtMost(fmt.Sprintf("half-again-%d", clients), "s", largest(back), 3))
	}
	return checks, nil
}

// halfRate is half of the hedges that 1,000 calls a second send in one, where 4.3%
// outlive the delay.
const halfRate = 21

// halfAgain is the first slot from which on a second's hedges are at half the rate.
func halfAgain(hedges []int, second int) int {
	for i := 0; i+second <= len(hedges); i++ {
		if sum(hedges[i:i+second]) >= halfRate {
			return i
		}
	}
	return len(hedges)
}

func sum(v []int) (n int) {
	for _, x := range v {
		n += x
	}
	return n
}

// freezeFalse looks for verdicts where nothing freezes, in four hours of all seeds
// together, and for the pause that a shift of all latencies costs.
func freezeFalse(b *Bench) ([]Check, error) {
	var checks []Check
	for _, clients := range []int{1, 200} {
		seeds := Pick(b, 12, 2)
		verdicts := make([]float64, seeds)
		s := calm("no-freeze", clients, Pick(b, 10*time.Minute, 90*time.Second), "")
		_, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe {
			return sim.Probe{Decided: func(_ time.Duration, d *control.Decision, _ func() control.Status) {
				if frozen(d) {
					verdicts[i]++
				}
			}}
		})
		if err != nil {
			return nil, err
		}
		seen, err := step(b, stepWorld("freeze-shift", clients, 1, 3), Pick(b, 12, 2))
		if err != nil {
			return nil, err
		}
		var paused []float64
		for i := range seen {
			paused = append(paused, seen[i].paused.Seconds())
		}
		checks = append(checks,
			AtMost(fmt.Sprintf("false-%d", clients), "", largest(verdicts), 0),
			AtMost(fmt.Sprintf("shift-pause-%d", clients), "s", largest(paused), 1.2))
	}
	return checks, nil
}
