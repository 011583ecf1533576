package goals

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/sim"
)

const (
	dayClients  = 200
	dayReplicas = 6
	dayStall    = 500 * time.Millisecond
)

// day is four hours of 1,000 calls a second on average. In the quick form an hour has
// six minutes: it drifts less, since it does so ten times as fast, and replicas are back
// sooner, since buckets take minutes to fill again.
type day struct {
	hour time.Duration
	slow [4]float64 // by which latencies are longer at the end of each hour's drift
	text strings.Builder
	sick []span // when something is restarted or away, and a minute more
}

type span struct{ from, to time.Duration }

func newDay(hour, restart time.Duration, slow [4]float64) *day {
	d := &day{hour: hour, slow: slow}
	// Latencies drift for the first quarter of an hour in ten steps.
	for h := 1; h < len(slow); h++ {
		for i := 1; i <= 10; i++ {
			f := slow[h-1] + (slow[h]-slow[h-1])*float64(i)/10
			d.at(time.Duration(h)*hour+time.Duration(i)*hour/40, "slowdown %.3f", f)
		}
	}
	// Clients restart one tenth after the other, until all but the last have.
	from := hour + hour/2
	for i := 1; i < 10; i++ {
		d.at(from+time.Duration(i)*2*time.Second, "clients %d", dayClients-i*dayClients/10)
	}
	for i := 1; i < 10; i++ {
		d.at(from+time.Duration(10+i)*2*time.Second, "clients %d", dayClients/10+i*dayClients/10)
	}
	d.unwell(from, 40*time.Second)
	// Replicas restart one after the other: what they are asked waits.
	from = 2*hour + hour/2
	for i := range dayReplicas {
		d.at(from+time.Duration(i)*5*time.Second, "slowdown 50 replica %d", i)
		d.at(from+time.Duration(i)*5*time.Second+restart, "slowdown 1 replica %d", i)
	}
	d.unwell(from, 5*dayReplicas*time.Second)
	from = 3*hour + hour/2
	d.at(from, "daemon down")
	d.at(from+30*time.Second, "daemon up")
	d.unwell(from, 30*time.Second)
	return d
}

func (d *day) at(t time.Duration, format string, args ...any) {
	fmt.Fprintf(&d.text, "at %v %s\n", t, fmt.Sprintf(format, args...))
}

func (d *day) unwell(from, last time.Duration) {
	d.sick = append(d.sick, span{from, from + last + time.Minute})
}

// healthy returns the hour in which nothing drifts, restarts or is away at t.
func (d *day) healthy(t time.Duration) (hour int, ok bool) {
	hour = int(t / d.hour)
	if hour >= len(d.slow) || t%d.hour < 3*d.hour/8 {
		return 0, false
	}
	for _, s := range d.sick {
		if t >= s.from && t < s.to {
			return 0, false
		}
	}
	return hour, true
}

func (d *day) world() *sim.Scenario {
	return World("day-goal", `
		duration %v
		warmup   20s
		clients  %d
		arrivals poisson 1000
		daily    40%% period %v
		latency  lognormal 10ms 0.5
		stall    call 1%% %v
		replicas %d
		routing  better-of-two
		%s`, 4*d.hour, dayClients, 4*d.hour, dayStall, dayReplicas, d.text.String())
}

// spent adds up hedges and calls by seconds.
type spent struct {
	calls, hedges []int
	burst         []float64 // of each client, as last granted
}

// most is the largest extra load of ten seconds in percent, of those that count. Where
// bursts may be spent, they are taken off.
func (s *spent) most(counts func(second int) bool, bursts bool) float64 {
	worst := 0.0
	for i := 20; i+10 < len(s.calls); i++ {
		if !counts(i) || !counts(i+9) {
			continue
		}
		hedges := float64(sum(s.hedges[i : i+10]))
		if bursts {
			hedges -= s.burst[i] * dayClients
		}
		worst = max(worst, hedges/float64(sum(s.calls[i:i+10])))
	}
	return 100 * worst
}

// wholeDay measures a day of each seed.
func wholeDay(b *Bench) ([]Check, error) {
	d := newDay(Pick(b, time.Hour, 6*time.Minute), Pick(b, 2*time.Second, 300*time.Millisecond),
		Pick(b, [4]float64{1, 1.2, 1.4, 1.1}, [4]float64{1, 1.05, 1.1, 1.02}))
	s := d.world()
	seeds := Pick(b, 12, 1)
	spends := make([]spent, seeds)
	tails := make([][4]estimator.Histogram, seeds)
	lost := make([]float64, seeds)
	row, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe {
		seconds := int(4*d.hour/time.Second) + 1
		sp := &spends[i]
		*sp = spent{calls: make([]int, seconds), hedges: make([]int, seconds), burst: make([]float64, seconds)}
		return sim.Probe{
			Sent: func(at time.Duration, _ int) {
				sp.calls[at/time.Second]++
				lost[i]++
			},
			Hedge: func(at, _ time.Duration) { sp.hedges[min(int(at/time.Second), seconds-1)]++ },
			Answer: func(a sim.Answer) {
				if !a.Failed {
					lost[i]--
				}
				if hour, ok := d.healthy(a.Start); ok {
					tails[i][hour].Record(a.Took)
				}
			},
			Decided: func(at time.Duration, c *control.Decision, _ func() control.Status) {
				sp.burst[min(int(at/time.Second), seconds-1)] = c.Policy.Budget.Burst
			},
		}
	})
	if err != nil {
		return nil, err
	}
	calm := func(second int) bool {
		_, ok := d.healthy(time.Duration(second) * time.Second)
		return ok
	}
	var calmest, worst []float64
	for i := range spends {
		calmest = append(calmest, spends[i].most(calm, false))
		worst = append(worst, spends[i].most(func(int) bool { return true }, true))
	}
	checks := []Check{
		AtMost("healthy-10s", "%", largest(calmest), 5),
		AtMost("any-10s-but-bursts", "%", largest(worst), 5),
		AtMost("extra", "%", Worst(row, extraShare), 5),
		AtMost("lost", "", largest(lost), 0),
	}
	for hour, slow := range d.slow {
		var all estimator.Histogram
		for i := range seeds {
			all.Merge(&tails[i][hour])
		}
		p999, _ := all.Quantile(.999)
		best := bestTail(slow)
		checks = append(checks, AtMost(fmt.Sprintf("hour-%d-over-best", hour+1), "%", Figure{Value: 100 * (float64(p999)/float64(best) - 1)}, 10))
	}
	return checks, nil
}

// bestTail is the p99.9 of one hedge after the delay that 5% outlive, of independent
// copies of the day's latencies: the best there is where nothing queues.
func bestTail(slow float64) time.Duration {
	longer := func(t time.Duration) float64 {
		tail := func(ms float64) float64 {
			if ms <= 0 {
				return 1
			}
			return .5 * math.Erfc(math.Log(ms/(10*slow))/.5/math.Sqrt2)
		}
		ms := sim.Millis(t)
		return .99*tail(ms) + .01*tail(ms-sim.Millis(dayStall))
	}
	delay := least(func(t time.Duration) bool { return longer(t) <= .05 })
	return least(func(t time.Duration) bool { return longer(t)*longer(t-delay) <= .001 })
}

// least is the shortest time for which ok holds, which goes on to hold.
func least(ok func(time.Duration) bool) time.Duration {
	lo, hi := time.Duration(0), time.Minute
	for hi-lo > time.Microsecond {
		if mid := lo + (hi-lo)/2; ok(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}
