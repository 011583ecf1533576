package control

import (
	"fmt"

	"github.com/hedged-project/hedged/policy"
)

const (
	// Fewest failures for a verdict: fewer can be chance, or one bad caller.
	minFailures = 10
	// breakEven is used where the service has no throttle.
	breakEven = 1.0 / 11
	// A failing method is well again below this share of the bound.
	recovered = 0.5
)

// failureBound is the share of failures at which gRFC A6's throttle loses
// tokens as fast as it gains them: x failures take x, the others return
// (1 - x) * ratio. Above it clients stop hedging on their own before long.
func failureBound(t policy.Throttle) float64 {
	if t.MaxTokens == 0 {
		return breakEven
	}
	return t.TokenRatio / (1 + t.TokenRatio)
}

// isFailing reports whether so many of the calls fail that hedges would only
// add load to what is failing already; was is the verdict before.
func isFailing(was bool, calls, failures uint64, bound float64) (bool, string) {
	share := 0.0
	if calls > 0 {
		share = min(1, float64(failures)/float64(calls))
	}
	text := fmt.Sprintf("%s of %s calls in %v failed; the bound is %s", percent(share), commas(calls), Window, percent(bound))
	if was {
		return share > recovered*bound, text
	}
	return failures >= minFailures && share > bound, text
}
