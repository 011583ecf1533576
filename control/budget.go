package control

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/policy"
)

const (
	// bucketShare of the target is what calls earn. The rest pays for starting
	// tokens: over the n calls of two windows, bucketShare*target*n + start <= target*n.
	// A lone client of 4,000 calls with a stall in a hundred finds its stalls
	// within 5% from .046 a call, a burst of 50 and a start of 15 at 4, 40 and 400
	// calls in flight, also where its delay is far too short; see hedge's tests.
	bucketShare = 0.92

	// A burst lasts burstTime at a client's rate. Below minBurst a chance cluster
	// of stalls finds the bucket empty; above maxBurst a bucket that filled while
	// calls were fast overspends for long once they are not.
	burstTime = 2500 * time.Millisecond
	minBurst  = 10
	maxBurst  = 50

	// A client's own part of its start is what the target leaves in its first two
	// windows. With what it leaves in one, a client of 200 rps starts with 8, and
	// in 2.5% of runs of 4,000 calls so many early stalls find no token that the
	// p99.9 exceeds 1.6 times the best possible; with 15 in .5%.
	startWindows = 2
	// More than maxStart would let a fast client that ends after 4,000 calls
	// spend more than its target.
	minStart = 1
	maxStart = 15
	// Tokens granted to a client while its rate is not known.
	unknownStart = 3
	// Clients are taken to live this long, so that of a fleet a sixth starts
	// within any 10 s.
	assumedLife = time.Minute

	// Fewest calls for a rate. Where the clients' reports cover less than
	// minRateTime each, their calls are taken to have been all there were in it:
	// that rate is a lower bound, which may raise a budget but not lower it.
	minRateCalls = 100
	minRateTime  = 3 * time.Second

	// Burst and start stay in force until the wanted ones differ by this factor:
	// rates jitter, and a client's start counts only once anyway.
	keepFactor = 2
)

// ratio is what a call earns, without the noise of binary fractions.
func ratio(target float64) float64 { return math.Round(bucketShare*target*1e6) / 1e6 }

// unknownBudget is for a service whose clients' rates were not measured yet.
func unknownBudget(target float64) policy.Budget {
	return policy.Budget{Ratio: ratio(target), Burst: minBurst, Start: unknownStart}
}

// wantBudget is the bucket of each of so many clients that make callsPerWindow
// calls in Window each, of methods that may be hedged.
//
// Start is what the target leaves. Of its own calls a client may
// spend on top of what it earns 1 - bucketShare of the target. Of the others'
// calls, 1 - steer is free, because eligible calls are steered below the
// target; the clients that start within the same Window share it.
func wantBudget(target, callsPerWindow, clients float64) policy.Budget {
	perWindow := target * callsPerWindow
	starting := math.Max(1, clients*Window.Seconds()/assumedLife.Seconds())
	others := math.Max(0, clients-1)
	start := startWindows*(1-bucketShare)*perWindow + (1-steer)*perWindow*others/starting
	burst := perWindow * burstTime.Seconds() / Window.Seconds()
	return policy.Budget{
		Ratio: ratio(target),
		Burst: math.Round(min(max(burst, minBurst), maxBurst)),
		Start: math.Round(min(max(start, minStart), maxStart)),
	}
}

// nextBudget keeps the burst and start in force unless the measured rates
// call for clearly different ones.
func nextBudget(inForce policy.Budget, target float64, t tally, clients int) policy.Budget {
	next := policy.Budget{Ratio: ratio(target), Burst: inForce.Burst, Start: inForce.Start}
	if t.safe < minRateCalls || clients == 0 {
		return next
	}
	least := minRateTime * time.Duration(clients)
	bound := t.clientTime < least
	callsPerWindow := float64(t.safe) * float64(Window) / float64(max(t.clientTime, least))
	want := wantBudget(target, callsPerWindow, float64(clients))
	next.Burst = steadied(next.Burst, want.Burst, bound)
	next.Start = steadied(next.Start, want.Start, bound)
	next.Start = min(next.Start, next.Burst)
	return next
}

// steadied returns what is in force unless the wanted value differs clearly; a
// lower bound only raises it.
func steadied(inForce, want float64, bound bool) float64 {
	if want > keepFactor*inForce || !bound && keepFactor*want < inForce {
		return want
	}
	return inForce
}
