package control

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/policy"
)

const (
	// Calls earn what the target leaves when a window of them has paid for the start,
	// and no less than bucketShare of it.
	// A lone client of 4,000 calls with a stall in a hundred finds its stalls
	// within 5% from .046 a call, a burst of 50 and a start of 15 at 4, 40 and 400
	// calls in flight, also where its delay is far too short; see hedge's tests.
	bucketShare = 0.92

	// A burst lasts burstTime at a client's rate, and holds its start. Below minBurst a
	// chance cluster of stalls finds the bucket empty; above maxBurst a bucket that
	// filled while calls were fast overspends for long once they are not.
	burstTime = 2500 * time.Millisecond
	minBurst  = 10
	maxBurst  = 50

	// Crowded calls come to their delay many at a time, so a bucket must hold as much
	// more as their number varies more: for a client that has the service to itself
	// crowdedBurst tokens for each time that it does. Of n clients each gets one part
	// in n of a crowd. And a call earns all of the target: eligible calls are steered
	// below it, and at .92 of it a bucket that a crowd emptied fills too slowly. In
	// queues half busy that makes a p99.9 of 241 instead of 246 ms; with 50 tokens
	// instead of 100 it is 134 instead of 128 ms in the least crowded of them.
	crowdedBurst = 100

	// A lone client's start is what the target leaves in its first two
	// windows. With what it leaves in one, a client of 200 rps starts with 8, and
	// in 2.5% of runs of 4,000 calls so many early stalls find no token that the
	// p99.9 exceeds 1.6 times the best possible; with 15 in .5%.
	startWindows = 2
	// One among others has startDeviations standard deviations of what becomes
	// eligible in a client's life: it ends with its start as likely as not, and a fleet
	// spends what is eligible, which is steered, and no more.
	startDeviations = 2
	// More than maxStart would let a fast client that ends after 4,000 calls
	// spend more than its target.
	minStart = 1
	maxStart = 15
	// Tokens granted to a client while its rate is not known; the rest follows.
	unknownStart = 3

	// Where so many clients call at once, those that start are few, and their calls
	// earn the whole target: what stalled replicas took from buckets is back in minutes.
	// Fewer than fewClients earn less; between the two nothing changes.
	manyClients = 10
	fewClients  = 3

	// Fewest calls for a rate. Where the clients' reports cover less than
	// minRateTime each, their calls are taken to have been all there were in it:
	// that rate is a lower bound, which may raise a budget but not lower it.
	minRateCalls = 100
	minRateTime  = 3 * time.Second

	// A burst stays in force until the wanted one differs by keepFactor: rates
	// jitter. A start goes with the root of a rate.
	keepFactor = 2
)

// lone is a client of which nothing but that is known.
var lone = fleet{clients: 1, crowding: 1}

// ratio is what a call of clients with such a start earns, without the noise of
// binary fractions.
func ratio(target, start float64, f fleet) float64 {
	earned := target
	if f.clients < manyClients && f.crowding == 1 {
		earned = max(bucketShare*target, target-start/max(f.run, 1))
	}
	return min(math.Round(earned*1e6)/1e6, target)
}

// unknownBudget is for a service whose clients' rates were not measured yet.
func unknownBudget(target float64) policy.Budget {
	return policy.Budget{Ratio: ratio(target, unknownStart, lone), Burst: minBurst, Start: unknownStart}
}

// fleet is how a service's clients call methods that may be hedged.
type fleet struct {
	clients  float64       // at once
	calls    float64       // of each in Window
	life     time.Duration // of each
	crowding float64       // of their calls
	run      float64       // calls, as steadied
}

// wantBudget is the bucket of each client. A lone one may spend its whole start on
// top of what it earns, so that both must be within the target of its calls. Among
// others chance does not let all meet more eligible calls than are expected.
func wantBudget(target float64, f fleet) policy.Budget {
	perWindow := target * f.calls
	perLife := steer(f.run) * perWindow * f.life.Seconds() / Window.Seconds()
	own := startWindows * (1 - bucketShare) * perWindow
	start := own + (1-1/f.clients)*startDeviations*math.Sqrt(perLife)
	start = math.Round(min(max(start, minStart), maxStart))
	burst := min(max(perWindow*burstTime.Seconds()/Window.Seconds(), minBurst), maxBurst)
	burst += crowdedBurst * (f.crowding - 1) / f.clients
	return policy.Budget{
		Ratio: ratio(target, start, f),
		Burst: math.Round(min(max(burst, start), policy.MaxBurst)),
		Start: start,
	}
}

// nextBudget keeps the burst and start in force unless the measured rates
// call for clearly different ones.
func nextBudget(inForce policy.Budget, target float64, t tally, clients int, life time.Duration, crowding, run float64) policy.Budget {
	known := min(max(inForce.Ratio, ratio(target, unknownStart, lone)), target) // of this target, or another one
	next := policy.Budget{Ratio: known, Burst: inForce.Burst, Start: inForce.Start}
	if t.safe < minRateCalls || clients == 0 {
		return next
	}
	least := minRateTime * time.Duration(clients)
	bound := t.clientTime < least
	calls := float64(t.safe) * float64(Window) / float64(max(t.clientTime, least))
	atOnce := max(1, float64(t.clientTime)/float64(Window)) // clients that call, not all that were there
	f := fleet{clients: atOnce, calls: calls, life: life, crowding: crowding, run: run}
	want := wantBudget(target, f)
	next.Burst = steadied(next.Burst, want.Burst, keepFactor, bound)
	next.Start = steadied(next.Start, want.Start, math.Sqrt(keepFactor), bound)
	// A start that is kept is paid for, not the one that the last seconds call for.
	if r := ratio(target, next.Start, f); r > next.Ratio || !bound && atOnce < fewClients {
		next.Ratio = r
	}
	next.Burst = max(next.Burst, next.Start)
	return next
}

// nextRun is how many calls a client that is there makes in Window, as the share at
// which the rate is held goes by: of those that are there one after the other each has
// its own run. While the window is not full it is a lower bound.
func nextRun(inForce float64, t tally, clients int, bound bool) float64 {
	if t.safe < minRateCalls || clients == 0 {
		return inForce
	}
	return steadied(inForce, float64(t.safe)/float64(clients), steerKeep, bound)
}

// restoredRun is the run that the budget from before a restart was made for; 0: it
// does not tell.
func restoredRun(b policy.Budget, target float64) float64 {
	if b.Ratio >= target {
		return 0
	}
	return b.Start / (target - b.Ratio)
}

// steadied returns what is in force unless the wanted value differs by a factor; a
// lower bound only raises it.
func steadied(inForce, want, factor float64, bound bool) float64 {
	if want > factor*inForce || !bound && factor*want < inForce {
		return want
	}
	return inForce
}
