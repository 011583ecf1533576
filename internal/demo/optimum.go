package demo

import (
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// optimum returns the smallest latency that a share k of calls can stay under
// with one hedge: after a delay d, with a probability q, at most budget hedges
// per call, copies independent (SingleR; Kaler, He, Elnikety, SPAA 2017). plain
// is the latency without hedging.
//
//	P(L > t) = S(t) * (1 - q * F(t - d)) for t > d, q = min(1, budget / S(d))
func optimum(plain *estimator.Histogram, budget, k float64) (time.Duration, bool) {
	best, ok := plain.Quantile(k)
	if !ok {
		return 0, false
	}
	exceeds := func(d time.Duration) float64 {
		s, _ := plain.Exceedance(d)
		return s
	}
	// Steps of 1% are finer than the buckets.
	for d := best; d > best/1000 && d > 10*time.Microsecond; d -= d/100 + 1 {
		q := 1.0
		if s := exceeds(d); s > budget {
			q = budget / s
		}
		late := func(t time.Duration) float64 {
			if t <= d {
				return exceeds(t)
			}
			return exceeds(t) * (1 - q*(1-exceeds(t-d)))
		}
		lo, hi := time.Duration(0), best
		if late(hi) > 1-k {
			continue
		}
		for hi-lo > time.Microsecond {
			if mid := lo + (hi-lo)/2; late(mid) <= 1-k {
				hi = mid
			} else {
				lo = mid
			}
		}
		best = min(best, hi)
	}
	return best, true
}
