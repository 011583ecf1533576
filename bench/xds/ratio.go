package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// median of a sample; 0 for an empty one.
func median(v []float64) float64 { return quantile(v, .5) }

func quantile[T cmp.Ordered](v []T, q float64) (zero T) {
	if len(v) == 0 {
		return zero
	}
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+.5)]
}

// interval is a ratio with what 95% of resampled rounds give.
type interval struct {
	Ratio float64    `json:"ratio"`
	CI95  [2]float64 `json:"ci95"`
}

// ratio compares two samples round by round: what burdens the machine burdens both.
func ratio(a, b []float64) interval {
	pairs := make([]float64, 0, len(a))
	for i := range a {
		if b[i] > 0 {
			pairs = append(pairs, a[i]/b[i])
		}
	}
	if len(pairs) == 0 {
		return interval{}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, 2000)
	again := make([]float64, len(pairs))
	for i := range medians {
		for j := range again {
			again[j] = pairs[rng.IntN(len(pairs))]
		}
		medians[i] = median(again)
	}
	return interval{median(pairs), [2]float64{quantile(medians, .025), quantile(medians, .975)}}
}
