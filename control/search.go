package control

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

const (
	// Looked for once a searchEvery, with searchTail calls in memory beyond the
	// objective or more. With fewer what was found holds.
	searchEvery = time.Second
	searchTail  = 10

	// A coin takes 12% off the objective of lognormal calls where the rate is .9 times
	// the share beyond it, 10% at 1.3 times, 5% at 2 and 3% at 2.5; so it is not tried from
	// here on.
	searchBelow = 3
	// Probabilities that are tried: below that nearly all is hedged anyway, and each
	// searchStep times the one before. The tail is flat about its best: a step is
	// worth some 2%.
	searchMost  = 0.84
	searchLeast = 0.1
	searchStep  = 0.85
	// Bisections on a logarithmic scale; they end at a bucket's width, 9 of them for a
	// factor of 200.
	halvings = 16

	// The coin is tossed when it makes the objective so many times what it is without,
	// and no more above the second: at 1% lognormal calls have 90 instead of 102 ms. One
	// in force stays while the best is no better than searchKeep times its tail.
	searchEnter = 0.9
	searchLeave = 0.95
	searchKeep  = 0.97

	// Tails that differ by less are the same: bisections of different probabilities
	// end at the same point, and whole nanoseconds tell them apart by a millionth.
	searchSame = 1.0001
)

// search finds the probability with which eligible calls are hedged: SingleR of Kaler,
// He and Elnikety (SPAA 2017). Where the target allows about as many hedges as there are
// calls beyond the objective, a hedge of each call that outlives the delay goes too late
// to make the objective any shorter. One of some, after a shorter delay that more calls
// outlive, costs as many hedges and does. The zero search hedges all.
type search struct {
	share float64 // of eligible calls; 0: all
	at    time.Time
	text  string
}

// searchInput is what the probability is found by.
type searchInput struct {
	sample     *estimator.Sample // primaries of the present distribution
	wanted     float64           // hedges per call
	correction float64           // measured over predicted eligible rate
	objective  float64           // quantile
	min, max   time.Duration     // of the delay
	rescues    func(t, d time.Duration) (float64, bool)
}

// restoredSearch is that of a policy from before a restart.
func restoredSearch(probability float64) search {
	if probability >= searchLeast && probability <= searchMost {
		return search{share: probability}
	}
	return search{}
}

func (s *search) probability() float64 {
	if s.share == 0 {
		return 1
	}
	return s.share
}

// decide returns the probability.
func (s *search) decide(now time.Time, in searchInput) float64 {
	switch {
	case in.wanted >= searchBelow*(1-in.objective):
		*s = search{at: s.at}
	case now.Sub(s.at) >= searchEvery && float64(in.sample.Count())*(1-in.objective) >= searchTail:
		s.at = now
		s.look(in)
	}
	return s.probability()
}

func (s *search) look(in searchInput) {
	without, identified := in.sample.Quantile(in.objective)
	if !identified {
		return
	}
	all := in.tail(1, without)
	best, share := all, 1.
	for q := searchMost; q >= searchLeast; q *= searchStep {
		if t := in.tail(q, without); searchSame*float64(t) < float64(best) {
			best, share = t, q
		}
	}
	enough := searchEnter
	if s.share > 0 {
		enough = searchLeave
	}
	if float64(best) > enough*float64(all) {
		s.share, s.text = 0, ""
		return
	}
	if s.share == 0 || float64(best) < searchKeep*float64(in.tail(s.share, without)) {
		s.share = share
	}
	s.text = fmt.Sprintf("%s of these are hedged, which makes a p%s of some %s; all, after a delay that fewer outlive, make %s",
		percent(s.share), number(100*in.objective), millis(best), millis(all))
}

// tail is the objective with hedges of the share q of eligible calls, after the delay
// at which they are as many as wanted; without is the objective with none.
func (in *searchInput) tail(q float64, without time.Duration) time.Duration {
	d, identified := in.sample.Quantile(1 - min(in.wanted/q/in.correction, 0.5))
	if !identified {
		return without
	}
	d = min(max(d, in.min), in.max)
	lo, hi := d, without
	for range halvings {
		if float64(hi) <= bucketRatio*float64(lo) {
			break
		}
		t := time.Duration(math.Sqrt(float64(lo) * float64(hi)))
		if in.exceeds(t, d, q) > 1-in.objective {
			lo = t
		} else {
			hi = t
		}
	}
	return hi
}

// exceeds is the share of calls that take longer than t with hedges of the share q after d.
func (in *searchInput) exceeds(t, d time.Duration, q float64) float64 {
	longer := outlive(in.sample, t)
	rescued, known := in.rescues(t, d)
	if !known { // as if copies had nothing to do with each other
		later, _ := in.sample.Completed.Exceedance(t - d)
		rescued = 1 - later
	}
	return longer * (1 - q*rescued)
}
