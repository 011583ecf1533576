package control

import (
	"fmt"
	"math"
	"time"
)

const (
	// A replica's window counts only with this many samples.
	minJudged = 20

	// A window is slow when the replica's primaries outlive the typical replica's
	// p90 with these z and ratio, and when its own p90 is above it by slowShare
	// and by slowFloor: a 10.4 ms replica among ones of 10.0 +- .05 ms is not sick.
	slowQuantile = 0.9
	slowZ        = 4
	slowRatio    = 2
	slowShare    = 0.2
	slowFloor    = time.Millisecond

	// It looks healthy with less than these z or ratio.
	healthyZ     = 2
	healthyRatio = 1.5
)

// evidence compares a replica's primaries with the pool's, summed over strata
// as Mantel and Haenszel do, so that clients that are far or methods that are
// heavy count against no replica. Sums of several windows are evidence again.
type evidence struct {
	known              float64 // of the replica's primaries: longer than the p90 or not
	longer             float64 // of known: longer
	expected, variance float64 // of longer, were the replica like the pool
	mine, pools        float64 // weighted shares of longer; their ratio is the risk ratio
	clearly            float64 // as mine, of those longer than the p90 and the floors
}

func (e *evidence) add(o evidence) {
	e.known += o.known
	e.longer += o.longer
	e.expected += o.expected
	e.variance += o.variance
	e.mine += o.mine
	e.pools += o.pools
	e.clearly += o.clearly
}

// compare adds one stratum: of n known primaries of the replica, longer and
// clearly are beyond the p90 and the floors; of poolN of the pool, poolLonger.
func (e *evidence) compare(n, longer, clearly, poolN, poolLonger float64) {
	if n == 0 || poolN == 0 {
		return
	}
	all := n + poolN
	m := longer + poolLonger
	e.known += n
	e.longer += longer
	e.expected += n * m / all
	if all > 1 {
		e.variance += n * poolN * m * (all - m) / (all * all * (all - 1))
	}
	e.mine += longer * poolN / all
	e.clearly += clearly * poolN / all
	e.pools += poolLonger * n / all
}

func (e *evidence) z() float64 {
	if e.variance <= 0 {
		return 0
	}
	return (e.longer - e.expected) / math.Sqrt(e.variance)
}

func (e *evidence) ratio() float64 {
	if e.pools > 0 {
		return e.mine / e.pools
	}
	if e.mine > 0 {
		return math.MaxFloat64
	}
	return 1
}

func (e *evidence) judged() bool { return e.known >= minJudged }

func (e *evidence) slow() bool {
	return e.judged() && !e.healthy() && e.z() > slowZ && e.ratio() > slowRatio
}

// healthy asks less than "not slow": between the two nothing is concluded.
func (e *evidence) healthy() bool {
	return e.z() < healthyZ || e.ratio() < healthyRatio || e.clearly <= e.pools
}

func (e *evidence) String() string {
	share := 0.0
	if e.known > 0 {
		share = e.longer / e.known
	}
	ratio := "more than 100"
	if r := e.ratio(); r < 100 {
		ratio = number(r)
	}
	return fmt.Sprintf("%s of %s calls outlive the typical replica's p90, %s times the others' share (z %s)",
		percent(share), commas(uint64(e.known)), ratio, number(e.z()))
}
