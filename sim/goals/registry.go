package goals

import (
	"fmt"
	"slices"

	"github.com/hedged-project/hedged/internal/suggest"
	"github.com/hedged-project/hedged/sim"
)

// Goal is one promise.
type Goal struct {
	ID   string
	Text string // what is promised
	// Parts measure it, one after the other. A goal without any is not listed.
	Parts []Part
	// Oracles are the worlds of its full form that it needs an oracle for.
	Oracles func() []*sim.Scenario
}

// Part measures in the form, full or quick, that b asks for. It returns an error only
// where it could not measure.
type Part func(b *Bench) ([]Check, error)

// All returns the goals in the order in which they are shown.
func All() []Goal {
	return slices.DeleteFunc([]Goal{
		{
			ID:    "iid-5",
			Text:  "p99 and p99.9 within 5% of the best, target 5%, independent latencies",
			Parts: []Part{independent5},
		},
		{
			ID:    "iid-1",
			Text:  "p99, or p99.9, within 5% of the best, target 1%, with that objective",
			Parts: []Part{independent1},
		},
		{
			ID:      "queue-3",
			Text:    "random routing, utilisation .3: p99.9 within 5% of the grid's best, 12% below the windowed percentile, extra <= 5%",
			Parts:   []Part{queue(.3, 12)},
			Oracles: queueOracles(.3),
		},
		{
			ID:      "queue-5",
			Text:    "random routing, utilisation .5: p99.9 within 5% of the grid's best, 10% below the windowed percentile, extra <= 5%",
			Parts:   []Part{queue(.5, 10)},
			Oracles: queueOracles(.5),
		},
		{
			ID:      "queue-7",
			Text:    "random routing, utilisation .7: p99.9 within 5% of the grid's best, 10% below the windowed percentile, extra <= 5%",
			Parts:   []Part{queue(.7, 10)},
			Oracles: queueOracles(.7),
		},
		{
			ID:    "p2c-3",
			Text:  "better of two, utilisation .3: p99.9 49% below no hedging",
			Parts: []Part{betterOfTwo(.3, 49)},
		},
		{
			ID:    "p2c-5",
			Text:  "better of two, utilisation .5: p99.9 41% below no hedging",
			Parts: []Part{betterOfTwo(.5, 41)},
		},
		{
			ID:    "p2c-7",
			Text:  "better of two, utilisation .7: p99.9 24% below no hedging",
			Parts: []Part{betterOfTwo(.7, 24)},
		},
		{
			ID:    "step-up",
			Text:  "latencies x3: settled in 1.2 s median and 3 s worst, p99.9 of the 30 s after <= 150 ms",
			Parts: []Part{stepUp},
		},
		{
			ID:    "step-down",
			Text:  "latencies / 3: settled in 1.6 s, p99.9 of the 30 s after <= 60 ms",
			Parts: []Part{stepDown},
		},
		{
			ID:    "article",
			Text:  "own stalls: slow share <= .02% at <= 5% extra; shared stalls: <= .4% extra after at most 2,100 calls, back within 8 s of their end",
			Parts: []Part{articleOwn, articleSharedCalls},
		},
		{
			ID:    "fanout",
			Text:  "plain: the article's slow shares; hedged: slow share of 100 calls < 1.5%",
			Parts: []Part{fanout},
		},
		{
			ID:    "freeze",
			Text:  "stopped in .4 s median with <= 60 hedges (1 client) or 1.3 a client (200); half rate again 3 s after; none false in 4 h; a x3 shift pauses <= 1.2 s",
			Parts: []Part{freezeStops, freezeFalse},
		},
		{
			ID:    "shared",
			Text:  "episodes of shared slowness declared in 99%, median .6 s",
			Parts: []Part{shared},
		},
		{
			ID:    "probation",
			Text:  "a slow replica flagged in 4 s, 40 of 40; no false flag; released within 20 s, never while slow",
			Parts: []Part{probation},
		},
		{
			ID:    "counterfactual",
			Text:  "unhedged p99.9: RMSE <= 6% lognormal, 10% Pareto; observers <= 1% of traffic, holdout <= .5% of eligible; claimed saving within 10%",
			Parts: []Part{counterfactual},
		},
		{
			ID:    "paying",
			Text:  "losers not cancelled: within 10% of the best rate at utilisation .5, at most 5% worse than no hedging at .7, no lock-up",
			Parts: []Part{payingHalf, payingBusy},
		},
		{
			ID:    "metastable",
			Text:  "back to normal within 12 s of a burst's end, every seed",
			Parts: []Part{metastable},
		},
		{
			ID:    "fleet",
			Text:  "200 clients: p99.9 85% (stalls) and 20% (lognormal) below the same law per process; extra <= 5% in every 10 s",
			Parts: []Part{fleet},
		},
		{
			ID:    "liars",
			Text:  "5% of clients lie: the delay moves at most 10%, extra load holds",
			Parts: []Part{liars},
		},
		{
			ID:    "day",
			Text:  "4 h with deployments and an outage: extra <= 5% in every 10 s, no call lost, p99.9 within 10% of the oracle hour by hour",
			Parts: []Part{wholeDay},
		},
		{
			ID:      "unseen",
			Text:    "five worlds that tuning never used: p99.9 within 5% of the oracle, extra <= 5%",
			Parts:   []Part{unseenGoal},
			Oracles: unseenOracles,
		},
	}, func(g Goal) bool { return len(g.Parts) == 0 })
}

// Find returns the goals of those ids, in the order of All; all where none is named.
func Find(ids []string) ([]Goal, error) {
	all := All()
	var known []string
	for _, g := range all {
		known = append(known, g.ID)
	}
	for i, id := range ids {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("goal: %.40q is unknown%s", id, suggest.For(id, known))
		}
		if slices.Contains(ids[:i], id) {
			return nil, fmt.Errorf("goal: %q is there twice", id)
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(g Goal) bool { return !slices.Contains(ids, g.ID) }), nil
}
