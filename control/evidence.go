package control

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

const (
	// A replica's window counts only with this many samples.
	minJudged = 20

	// A window is slow when the replica's primaries rank above the pool's with this z,
	// and would even if they had taken less by slowShare and by slowFloor: a 10.4 ms
	// replica among ones of 10.0 +- .05 ms is not sick.
	slowZ     = 4
	slowShare = 0.2
	slowFloor = time.Millisecond

	// It looks healthy with less than this z.
	healthyZ = 2
)

// cuts are the quantiles of the typical replica by which calls are ranked: a call's
// score is how many it outlives. Scores say more of 1.5 times the latency than the
// share beyond the p90, and more reliably. Beyond the last cut all calls are alike:
// there hedges cancel them before it is known how long they take.
var cuts = [...]float64{.5, .75, .9}

// evidence compares the scores of a replica's primaries with the pool's, summed over
// strata as Mantel and Haenszel do, so that clients that are far or methods that are
// heavy count against no replica. Sums of several windows are evidence again.
type evidence struct {
	known              float64 // of the replica's primaries: longer than the p90 or not
	longer             float64 // of known: longer than the p90
	score              float64 // of known, in sum
	expected, variance float64 // of score, were the replica like the pool
	pools, clearly     float64 // weighted: the pool's score, and the replica's were it faster by the floors
}

func (e *evidence) add(o evidence) {
	e.known += o.known
	e.longer += o.longer
	e.score += o.score
	e.expected += o.expected
	e.variance += o.variance
	e.pools += o.pools
	e.clearly += o.clearly
}

// ranked is what is known of some primaries of one stratum.
type ranked struct {
	known   float64 // of them: longer than the p90 or not
	longer  float64 // of known: longer than the p90
	score   float64 // of known, in sum
	squares float64 // of their scores, in sum
	clearly float64 // score, were they faster by the floors
}

func (t *ranked) add(o ranked) {
	t.known += o.known
	t.longer += o.longer
	t.score += o.score
	t.squares += o.squares
	t.clearly += o.clearly
}

// without is t less a part of it.
func (t ranked) without(o ranked) ranked {
	return ranked{
		known:   max(0, t.known-o.known),
		longer:  max(0, t.longer-o.longer),
		score:   max(0, t.score-o.score),
		squares: max(0, t.squares-o.squares),
		clearly: max(0, t.clearly-o.clearly),
	}
}

// rank ranks the primaries of a replica by the cuts.
func rank(s *estimator.Sample, typical [len(cuts)]time.Duration) ranked {
	var t ranked
	t.known, t.longer = counts(s, typical[len(cuts)-1])
	completed := float64(s.Completed.Count())
	cancelled := t.known - completed // beyond the last cut
	outlive := func(d time.Duration) float64 {
		share, _ := s.Completed.Exceedance(d)
		return share*completed + cancelled
	}
	for k, cut := range typical {
		n := outlive(cut)
		t.score += n
		t.squares += float64(2*k+1) * n // the sum of the first k odd numbers is k squared
		t.clearly += outlive(cut + max(slowFloor, time.Duration(slowShare*float64(cut))))
	}
	return t
}

// compare adds one stratum: the replica and the pool without it.
func (e *evidence) compare(mine, pool ranked) {
	if mine.known == 0 || pool.known == 0 {
		return
	}
	all := mine.known + pool.known
	score := mine.score + pool.score
	e.known += mine.known
	e.longer += mine.longer
	e.score += mine.score
	e.expected += mine.known * score / all
	if all > 1 {
		spread := mine.squares + pool.squares - score*score/all
		e.variance += mine.known * pool.known * max(0, spread) / (all * (all - 1))
	}
	e.clearly += mine.clearly * pool.known / all
	e.pools += pool.score * mine.known / all
}

func (e *evidence) z() float64 {
	if e.variance <= 0 {
		return 0
	}
	return (e.score - e.expected) / math.Sqrt(e.variance)
}

func (e *evidence) judged() bool { return e.known >= minJudged }

func (e *evidence) slow() bool { return e.beyond(slowZ) }

// beyond says whether a replica is slow with that z.
func (e *evidence) beyond(z float64) bool {
	return e.judged() && !e.healthy() && e.z() > z
}

// healthy asks less than "not slow": between the two nothing is concluded.
func (e *evidence) healthy() bool {
	return e.z() < healthyZ || e.clearly <= e.pools
}

func (e *evidence) String() string {
	share := 0.0
	if e.known > 0 {
		share = e.longer / e.known
	}
	return fmt.Sprintf("%s of %s calls outlive the typical replica's p90 (z %s)",
		percent(share), commas(uint64(e.known)), number(e.z()))
}
