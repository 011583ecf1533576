package estimator

import (
	"math"
	"slices"
	"time"
)

const (
	// changeLimit is the likelihood ratio statistic above which chance does not
	// explain a difference (5.5 standard deviations).
	changeLimit = 30.0

	// A difference matters only if it remains when the latencies of one side are
	// moved towards the other's by shiftBuckets (9%), ...
	shiftBuckets = 8

	// ... and if the odds of exceeding the point differ by this factor then.
	minOddsRatio = 1.5

	// minCompared is how many attempts each side of a comparison needs.
	minCompared = 30

	// comparisons is how many splits into older and newest are tried.
	comparisons = 3
)

// comparedAt are the quantiles of the older sub-windows at which the newer are
// compared with them; the limit is a point, too.
var comparedAt = [...]float64{.1, .25, .5, .75, .9, .95}

// DropChanged compares the newest sub-windows with the older ones, and drops
// those older ones if chance cannot explain how they differ. It returns how many
// sub-windows with data it dropped, zero nearly always.
//
// It compares only latencies up to limit, which should be the shortest delay in
// force in the window: above the delay attempts are cancelled. Zero means no limit.
// The newest sub-window is taken against all before it, then the newest two, then
// four; more of them where that many have fewer than 30 attempts. A difference must
// also matter: more than 9% in latency and a factor of 1.5 in odds.
//
// crowding, 1 or more, is how many attempts tell as much as one that is independent
// of all others: where they queue, they are slow together. The statistic must be higher
// by its square: once by the definition, and once more because crowding is measured
// from one second to the next, and attempts further apart depend on each other too.
//
// Where nothing changes and latencies are independent, about one call in 40 million
// drops something: extrapolated, as the rate falls sixteenfold for every 5 that
// changeLimit rises (see TestFalseDrops).
func (w *Window) DropChanged(limit time.Duration, crowding float64) (dropped int) {
	if !w.grown {
		return 0
	}
	w.grown = false
	w.recent.Reset()
	w.recent.Merge(&w.open)
	w.older.Reset()
	w.older.Merge(&w.total)
	w.older.Subtract(&w.open)
	first := w.head // oldest sub-window in recent
	want := int64(1)
	for range comparisons {
		for first > w.oldest && (w.head-first+1 < want || w.recent.Count() < minCompared) {
			first--
			w.move(first, &w.older, &w.recent)
		}
		if w.older.Count() < minCompared || w.recent.Count() < minCompared {
			return 0
		}
		if changed(&w.older, &w.recent, limit, crowding) {
			return w.drop(first)
		}
		want = 2 * (w.head - first + 1)
	}
	return 0
}

// drop drops what is before sub-window first.
func (w *Window) drop(first int64) (dropped int) {
	for k := w.oldest; k < first; k++ {
		if w.slot(k).count > 0 {
			dropped++
		}
		w.expire(k)
	}
	w.oldest = first
	return dropped
}

// changed reports whether chance cannot explain a difference between two samples
// that matters, at some point up to limit.
func changed(older, recent *Sample, limit time.Duration, crowding float64) bool {
	points := make([]int, 0, len(comparedAt)+1)
	last := MaxIndex
	if limit > 0 {
		last = Index(limit) - 1 // the last that lies below the limit as a whole
		points = append(points, last-shiftBuckets)
	}
	for _, q := range comparedAt {
		if d, ok := older.Completed.Quantile(q); ok && d > 0 {
			points = append(points, min(Index(d), last-shiftBuckets))
		}
	}
	slices.Sort(points)
	base, up, down := newLifeTable(older), newLifeTable(recent), newLifeTable(recent)
	for _, i := range slices.Compact(points) {
		base.advance(i)
		up.advance(i + shiftBuckets)
		down.advance(i - shiftBuckets)
		if exceeds(&up, &base, crowding) || exceeds(&base, &down, crowding) {
			return true
		}
	}
	return false
}

// exceeds reports whether a larger share survives in a than in b, by a difference
// that matters and that chance does not explain.
func exceeds(a, b *lifeTable, crowding float64) bool {
	ka, na := a.proportion()
	kb, nb := b.proportion()
	return na > 0 && nb > 0 &&
		ka*(nb-kb) > minOddsRatio*kb*(na-ka) &&
		likelihoodRatio(ka, na, kb, nb) > changeLimit*crowding*crowding
}

// likelihoodRatio is the statistic G = 2 * sum of observed ln(observed/expected)
// of a two by two table: ka of na against kb of nb. Its square root behaves like
// a normal deviate far into the tail, where that of the usual z test of two
// proportions is many times too large when few are expected.
func likelihoodRatio(ka, na, kb, nb float64) float64 {
	p := (ka + kb) / (na + nb)
	term := func(observed, expected float64) float64 {
		if observed <= 0 {
			return 0
		}
		return observed * math.Log(observed/expected)
	}
	return 2 * (term(ka, na*p) + term(na-ka, na*(1-p)) + term(kb, nb*p) + term(nb-kb, nb*(1-p)))
}
