package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	blocks    = 100 // of calls that follow each other, to resample by
	resamples = 400
	// delays is how many of them are tried for each budget where it pays to hedge only
	// some of the calls that are pending: from the delay that spends the budget
	// by itself down to one that a coin of a fifth goes with.
	delays = 9
	rarest = .2
	// mostPending is the most calls that a delay leaves pending: with more, all are hedged.
	mostPending = .9
	// tail is as much as is looked at of a distribution: ten times what a p99 exceeds, so
	// that it is still there where a resampling misses some of the slow blocks.
	tail = .1
	// outcomesKept is how many are enough for any figure here.
	outcomesKept = 400_000
)

// Interval is a time and where it lies in 95 of 100 resamplings of the trace in
// blocks. OK is false where too few calls are so slow to say.
type Interval struct {
	Value, Least, Most time.Duration
	OK                 bool
}

// Offer is what callers would wait for under a policy.
type Offer struct {
	Budget      float64       // most hedges per call; 0: no hedging
	Delay       time.Duration // that the least p99.9 comes with
	Probability float64
	Extra       float64 // hedges per call
	P99, P999   Interval
}

// Offers are all of a trace's: as it was, then by budget.
type Offers struct {
	Plain  []Offer
	Picked []Offer // with better routing; none: the trace does not name two replicas
	// Together is how much likelier a call is to be among the slowest 5% when a call on
	// another replica at the same time is: 1 means that they have nothing to do with
	// each other. NaN: the trace does not say.
	Together float64
}

// Estimate works out what a trace offers for each budget, which is hedges per call.
func Estimate(t *Trace, budgets []float64) *Offers {
	r := newReplicas(t)
	o := &Offers{Together: math.NaN()}
	o.Plain = r.offers(r.plain(), budgets)
	if len(t.Replicas) > 1 {
		o.Picked = r.offers(r.picked(), budgets)
		o.Together = r.together()
	}
	return o
}

func (r *replicas) offers(primaries []attempt, budgets []float64) []Offer {
	n := len(r.t.calls)
	sorted := make([]time.Duration, len(primaries))
	for i := range primaries {
		sorted[i] = primaries[i].latency
	}
	slices.Sort(sorted)
	floor := quantile(sorted, 1-tail)
	plain, _ := r.outcomes(primaries, 0, 0, floor)
	all := []Offer{{P99: interval(plain, n, .01), P999: interval(plain, n, .001)}}
	for _, b := range budgets {
		var best Offer
		var slowest []outcome
		least := time.Duration(math.MaxInt64)
		for i := range delays {
			q := math.Pow(rarest, float64(i)/(delays-1))
			d := quantile(sorted, 1-b/q)
			if b/q > mostPending || i > 0 && d == best.Delay {
				continue
			}
			o, extra := r.outcomes(primaries, d, q, min(d, floor))
			if p999 := exceeded(o, .001*float64(n), &once); p999 < least {
				least, slowest = p999, o
				best = Offer{Budget: b, Delay: d, Probability: q, Extra: extra}
			}
		}
		best.P99, best.P999 = interval(slowest, n, .01), interval(slowest, n, .001)
		all = append(all, best)
	}
	return all
}

// quantile of sorted latencies: that of rank ceil(q n).
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(max(int(math.Ceil(q*float64(len(sorted))*(1-1e-12))), 1), len(sorted))-1]
}

// outcome is something that callers may have to wait for, as likely as its weight.
type outcome struct {
	took   time.Duration
	block  int32
	weight float64
}

// outcomes are those above a floor, the slowest first, of hedging with a delay, 0 for
// never, and a probability; extra is hedges per call.
func (r *replicas) outcomes(primaries []attempt, delay time.Duration, q float64, floor time.Duration) (slowest []outcome, extra float64) {
	n := len(r.t.calls)
	var pending []*attempt
	for i := range primaries {
		a := &primaries[i]
		switch {
		case delay > 0 && a.latency > delay:
			pending = append(pending, a)
		case a.latency > floor:
			slowest = append(slowest, outcome{a.latency, r.block(a), a.weight})
		}
	}
	// Many pending calls need fewer copies of each.
	count := min(max(outcomesKept/(len(pending)+1), 1), copiesEach)
	copies := make([]time.Duration, 0, count)
	for _, a := range pending {
		extra += a.weight * q / float64(n)
		if q < 1 {
			slowest = append(slowest, outcome{a.latency, r.block(a), a.weight * (1 - q)})
		}
		copies = r.copies(a, a.arrival+delay, count, copies[:0])
		for _, c := range copies {
			slowest = append(slowest, outcome{min(a.latency, delay+c), r.block(a), a.weight * q / float64(count)})
		}
	}
	slices.SortFunc(slowest, func(a, b outcome) int { return int(b.took - a.took) })
	return slowest, extra
}

func (r *replicas) block(a *attempt) int32 { return int32(int(a.from) * blocks / len(r.t.calls)) }

// fewest is how many calls must be slower than a quantile for it to be told.
const fewest = 3

// once counts every block once.
var once = func() (times [blocks]float64) {
	for i := range times {
		times[i] = 1
	}
	return times
}()

// interval is the time that a share of n calls exceed.
func interval(slowest []outcome, n int, share float64) Interval {
	if float64(n)*share < fewest {
		return Interval{}
	}
	v := Interval{Value: exceeded(slowest, share*float64(n), &once), OK: true}
	random := rand.New(rand.NewPCG(3, 4))
	var values [resamples]time.Duration
	for i := range values {
		var times [blocks]float64
		for range blocks {
			times[random.IntN(blocks)]++
		}
		values[i] = exceeded(slowest, share*float64(n), &times)
	}
	slices.Sort(values[:])
	v.Least, v.Most = values[resamples*25/1000], values[resamples*975/1000-1]
	return v
}

// exceeded is the time that outcomes of so much weight exceed, each block counting so
// many times.
func exceeded(slowest []outcome, weight float64, times *[blocks]float64) time.Duration {
	sum := 0.0
	for i := range slowest {
		if sum += slowest[i].weight * times[slowest[i].block]; sum > weight*(1+1e-12) {
			return slowest[i].took
		}
	}
	if len(slowest) == 0 {
		return 0
	}
	return slowest[len(slowest)-1].took
}

// together compares how often the slowest twentieth of calls meet on two replicas with
// how often they would by chance.
func (r *replicas) together() float64 {
	all := make([]time.Duration, len(r.t.calls))
	for i, c := range r.t.calls {
		all[i] = c.latency
	}
	slices.Sort(all)
	slow := quantile(all, .95)
	var both, one float64
	copies := make([]time.Duration, 0, copiesEach)
	for i, c := range r.t.calls {
		if c.latency <= slow {
			continue
		}
		one++
		a := attempt{call: c, from: int32(i)}
		copies = r.copies(&a, c.arrival, copiesEach, copies[:0])
		for _, d := range copies {
			if d > slow {
				both += 1 / float64(len(copies))
			}
		}
	}
	return both / one / (one / float64(len(all)))
}
