package control

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/report"
)

const (
	// Of hedged calls observeShare are observed, but no more than observeMost of
	// all calls: their losers run on, which is load.
	observeShare = 0.2
	observeMost  = 0.01

	// Calls held out keep their stalls, so none are where clients observe some: of
	// 4,000 calls of which 1% stall, .4% of those to hedge held out are a stall in
	// every sixth run. Where of unobservedCalls hedged none is observed, holdoutShare
	// are held out. What that leaves unhedged beyond any latency stays below
	// holdoutMost of all calls, so that p99.9 does not become what it is without hedging.
	unobservedCalls = 1000
	holdoutShare    = 0.005
	holdoutMost     = 0.0003

	// A quantile of the unhedged tail is identified with minTailSeen observed or
	// held-out calls beyond it: a standard error of 22% of the share beyond.
	minTailSeen = 20
	// With as many beyond p99.9 an era ends; only the last two are remembered.
	eraTailSeen = 64

	// confidence is the normal quantile of the 95% intervals that are shown.
	confidence = 1.96
)

// observe is the share of hedged calls that clients are to observe: none where
// calls are crowded. What runs on there has others wait behind it: in three queues
// half to .7 busy the p99.9 was 8 to 11% higher with observers.
func observe(target, crowding float64) float64 {
	if crowding > 1 {
		return 0
	}
	return min(observeShare, observeMost/target)
}

// holdout is the share of calls to hedge that clients are to hold out.
func (c *counterfactual) holdout(target float64) float64 {
	hedged := c.older.hedged.Count() + c.newer.hedged.Count()
	if hedged < unobservedCalls || c.older.observed+c.newer.observed > 0 {
		return 0
	}
	return min(holdoutShare, holdoutMost/target)
}

// counterfactual is what latencies would be without hedging, and so what hedging
// buys. Primaries of hedged calls are cancelled when a hedge wins, and how soon one
// does tells of the primary where copies are alike, which Kaplan-Meier's estimate
// takes for granted that it does not. So the tail is measured on calls that chance
// chose among the eligible ones: observed, whose primaries run on, and held out.
//
// Whether a call is eligible is known of all calls, so beyond the delay
//
//	P(X > t) = share of eligible calls * share of the chosen that take longer than t
//
// The zero counterfactual has seen nothing.
type counterfactual struct {
	older, newer era
}

// era is what was counted in some time, which ends when it has told enough.
type era struct {
	since          time.Time // zero: nothing was counted
	safe, eligible uint64
	observed, held uint64
	alone          estimator.Histogram // primaries of observed and held-out calls
	hedged, rest   estimator.Histogram // what callers of eligible calls waited for
	pairs          estimator.Pairs
}

// add takes in a report of a time in which calls were hedged.
func (c *counterfactual) add(now time.Time, from *report.Method) {
	e := &c.newer
	if e.since.IsZero() {
		e.since = now
	}
	e.safe += from.Safe
	e.eligible += from.Eligible
	e.observed += from.Observed
	e.held += from.HeldOut.Count()
	e.alone.Merge(&from.HeldOut)
	e.hedged.Merge(&from.Hedged)
	e.rest.Merge(&from.Unhedged)
	for _, p := range from.Pairs {
		lower, upper := estimator.Bounds(max(int(p.Primary), estimator.MinIndex))
		e.alone.Record(lower + (upper-lower)/2)
		e.pairs.Add(p)
	}
	if e.beyond(.999) >= eraTailSeen {
		c.older, c.newer = c.newer, era{}
	}
}

func (c *counterfactual) forget() { *c = counterfactual{} }

// rechosen forgets all but pairs: from now on chance chooses another share of the calls.
func (c *counterfactual) rechosen() {
	pairs := c.older.pairs
	pairs.Merge(&c.newer.pairs)
	*c = counterfactual{older: era{pairs: pairs}}
}

// all is both eras together, but for pairs.
func (c *counterfactual) all() *era {
	e := &era{since: c.newer.since}
	for _, o := range []*era{&c.older, &c.newer} {
		if o.since.IsZero() {
			continue
		}
		if e.since.IsZero() || o.since.Before(e.since) {
			e.since = o.since
		}
		e.safe += o.safe
		e.eligible += o.eligible
		e.observed += o.observed
		e.held += o.held
		e.alone.Merge(&o.alone)
		e.hedged.Merge(&o.hedged)
		e.rest.Merge(&o.rest)
	}
	return e
}

// rescues returns the share of hedges, of calls whose primary takes longer than t,
// that would have ended them by then, had they gone after d; false where too few
// pairs tell.
func (c *counterfactual) rescues(t, d time.Duration) (float64, bool) {
	var within, n float64
	for _, e := range []*era{&c.older, &c.newer} {
		share, pairs := e.pairs.Within(t, t-d)
		within += share * pairs
		n += pairs
	}
	if n < minTailSeen {
		return 0, false
	}
	return within / n, true
}

// beyond is how many of the chosen calls are to be expected beyond quantile q.
func (e *era) beyond(q float64) float64 {
	if e.eligible == 0 {
		return 0
	}
	return float64(e.alone.Count()) * (1 - q) * float64(e.safe) / float64(e.eligible)
}

// without returns the q-quantile of what callers would wait without hedging.
// Below the delay, where nothing is censored, sample tells it.
func (e *era) without(q float64, sample *estimator.Sample) Interval {
	tail := (1 - q) * float64(e.safe) / float64(max(e.eligible, 1)) // of eligible calls
	if tail >= 1 {
		return prompt(q, sample)
	}
	n := float64(e.alone.Count())
	if n*tail < minTailSeen {
		return Interval{}
	}
	// Relative deviations of the share beyond and of the eligible rate add up.
	off := math.Exp(confidence * math.Sqrt((1-tail)/(n*tail)+1/float64(e.eligible)))
	at := func(tail float64) time.Duration {
		d, _ := e.alone.Quantile(1 - min(tail, 1))
		return d
	}
	return Interval{Quantile: Quantile{Value: at(tail), OK: true}, Low: at(tail * off), High: at(tail / off)}
}

// prompt is the q-quantile of a sample where it is not censored.
func prompt(q float64, sample *estimator.Sample) Interval {
	d, ok := sample.Quantile(q)
	if !ok {
		return Interval{}
	}
	out := Interval{Quantile: Quantile{Value: d, OK: true}, Low: d, High: d}
	off := confidence * math.Sqrt(q*(1-q)/float64(sample.Count()))
	if d, ok := sample.Quantile(max(q-off, 0)); ok {
		out.Low = d
	}
	if d, ok := sample.Quantile(min(q+off, 1)); ok {
		out.High = d
	}
	return out
}

// with returns the q-quantile of what callers do wait.
func (e *era) with(q float64, sample *estimator.Sample) Quantile {
	beyond := (1 - q) * float64(e.safe)
	if beyond >= float64(e.eligible) {
		return prompt(q, sample).Quantile
	}
	var all estimator.Histogram
	all.Merge(&e.hedged)
	all.Merge(&e.rest)
	if beyond < minTailSeen || beyond >= float64(all.Count()) {
		return Quantile{}
	}
	d, ok := all.Quantile(1 - beyond/float64(all.Count()))
	return Quantile{Value: d, OK: ok}
}

// efficacy is the share of the calls that would take longer than t of which a
// hedge makes quicker ones: 1 - P(L > t | hedged) / P(X > t | observed or held out).
func (e *era) efficacy(t time.Duration) Efficacy {
	slow, _ := e.alone.Exceedance(t)
	left, ok := e.hedged.Exceedance(t)
	n, hedged := float64(e.alone.Count()), float64(e.hedged.Count())
	if !ok {
		return Efficacy{}
	}
	// The larger of what was seen and one call is what chance may have hidden.
	sd := left / slow * math.Sqrt(1/(n*slow)+1/max(hedged*left, 1))
	sd = max(sd, 1/(hedged*slow))
	return Efficacy{Share: 1 - left/slow, Off: confidence * sd, Beyond: t, OK: true}
}

// status is what is known of the method, whose recent primaries are sample.
func (c *counterfactual) status(now time.Time, sample *estimator.Sample) Counterfactual {
	e := c.all()
	out := Counterfactual{Calls: e.safe, Observed: e.observed, HeldOut: e.held}
	if e.safe == 0 {
		return out
	}
	out.Span = now.Sub(e.since)
	out.P99, out.P999 = e.without(.99, sample), e.without(.999, sample)
	out.HedgedP99, out.HedgedP999 = e.with(.99, sample), e.with(.999, sample)
	switch {
	case out.P999.OK:
		out.Efficacy = e.efficacy(out.P999.Value)
	case out.P99.OK:
		out.Efficacy = e.efficacy(out.P99.Value)
	}
	return out
}

// String says it in a sentence.
func (c Counterfactual) String() string {
	switch {
	case c.Calls == 0:
		return "no call was hedged yet"
	case !c.P999.OK:
		return fmt.Sprintf("p99.9 without hedging is not identified: of %s calls %s were observed or held out, and too few of these were slow",
			commas(c.Calls), commas(c.Observed+c.HeldOut))
	}
	text := fmt.Sprintf("without hedging p99.9 would be %s (%s to %s)", millis(c.P999.Value), millis(c.P999.Low), millis(c.P999.High))
	if c.HedgedP999.OK {
		text += ", it is " + millis(c.HedgedP999.Value)
	}
	if c.Efficacy.OK {
		text += fmt.Sprintf("; hedges rescue %s (+- %s) of the calls that would take longer than %s",
			percent(c.Efficacy.Share), number(100*c.Efficacy.Off), millis(c.Efficacy.Beyond))
	}
	return text
}
