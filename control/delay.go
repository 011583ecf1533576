package control

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

const (
	// The eligible rate is held below the target by steerMargin where a client makes
	// steerCalls in Window, and of more calls by less, as chance moves their share less.
	// The budget must not bind in steady state, or a random part of the stalls goes
	// without a hedge; and a lone client of 4,000 calls, whose eligible count has a
	// standard deviation of 7.5%, must end below the target in 98 runs of 100:
	// 1 / (1 + 2.18 x .0747) = .86. Of 10,000 calls it is .907. Of less than steerLeast
	// no rate worth having is below it that surely, and the budget must do. Clients that
	// call so little are mostly of a fleet, whose buckets together bound nothing: at .82,
	// 200 that make 10,000 calls stay within the target in any 10 s, at .86 one in a
	// dozen minutes does not (5.05 to 5.24%).
	steerMargin = 1/.86 - 1
	steerCalls  = 4000
	steerLeast  = 2200
	// The calls of a client are what they were until they differ by steerKeep: rates jitter.
	steerKeep = 1.25

	// The delay in force stays while the eligible rate is within these shares of
	// the wanted one, give or take significance standard errors. Delays
	// themselves are the wrong yardstick: 5% of delay can move the rate from 4.6%
	// to 11.8% or to 1.0%.
	keepFrom     = 0.85
	keepTo       = 1.05
	significance = 3

	// Fewest calls for an estimate, and fewest expected beyond the quantile.
	minSamples     = 200
	minTailSamples = 5
	// Fewest calls on which a delay in force is moved: after a change of the
	// distribution only what came since then speaks.
	minMoveSamples = 50

	// A delay that is estimated anew is moved for a rate that is so much off, and by
	// more than a standard error were calls independent.
	// Crowded calls call for it every crowdedTurn, half of the way: the latencies
	// depend on the delay, and 30 s of them are a third of what it takes.
	renewFor    = 0.02
	renewGrowth = 2  // times as many calls
	renewTail   = 50 // fewest calls beyond the delay
	crowdedTurn = 30 * time.Second

	// Bounds of the ratio of measured to predicted eligible rate, and the number
	// of eligible calls that its former value weighs.
	minCorrection    = 1.0 / 3
	maxCorrection    = 2
	correctionWeight = 100

	// Most that a delay is raised at once where the quantile is not identified.
	blindRaise = 1.5
	// A Kaplan-Meier quantile that is more than this many times that of the
	// completed primaries hangs on a few stalls that ended among many that were
	// cancelled. At most a target's worth is cancelled, so that even for a Pareto
	// tail of index 1.5 the two differ by a factor of (.08 / .043)^(1/1.5) = 1.5.
	maxLeap = 2

	delayUnit = 10 * time.Microsecond

	// Ratio of the bounds of an estimator's bucket, rounded up.
	bucketRatio = 1.011
)

// steer is the share of the target at which the eligible rate is held where each
// client makes so many calls in Window.
func steer(calls float64) float64 {
	return 1 / (1 + steerMargin*math.Sqrt(steerCalls/max(calls, steerLeast)))
}

// wantedRate is the eligible rate that the delay aims at.
func wantedRate(target, calls float64) float64 { return steer(calls) * target }

// samplesNeeded is the fewest calls from which a delay for the wanted rate is estimated.
func samplesNeeded(wanted float64) uint64 {
	return max(minSamples, uint64(math.Ceil(minTailSamples/wanted)))
}

// delayInput is what the delay is decided by.
type delayInput struct {
	inForce        time.Duration     // 0: none yet
	sample         *estimator.Sample // primaries of the present distribution
	wanted         float64           // eligible rate
	safe, eligible uint64            // counted while inForce was in force
	correction     float64           // as of the last change of delay
	crowding       float64           // so many calls tell as much as one that is independent
	renew          bool              // the delay is estimated anew, and not only kept in its band
	min, max       time.Duration
}

// delayOutput is what follows.
type delayOutput struct {
	delay      time.Duration // inForce where nothing calls for a change; 0: no estimate
	quantile   float64       // of primaries, to which delay corresponds
	correction float64       // measured over predicted eligible rate
	note       string        // what is unusual; may be empty
}

// nextDelay finds the delay that as many calls outlive as the target allows.
//
// The unhedged distribution is exact up to the delay in force, since whether a
// primary outlives it is known before anything is cancelled; above it the
// Kaplan-Meier estimate of the sample holds. Timers fire late and clients hold
// calls that no histogram has seen, so the prediction is corrected by what was
// counted: 0.4 ms of lateness turned a predicted 4.6% into a measured 2.5%.
func nextDelay(in delayInput) delayOutput {
	out := delayOutput{delay: in.inForce, correction: in.correction}
	n := in.sample.Count()
	bounded := in.inForce >= in.min && in.inForce <= in.max // false: none yet, or the bounds were changed
	tooHigh, tooLow := false, false
	if in.inForce > 0 {
		predicted := outlive(in.sample, in.inForce)
		out.correction = correct(in, predicted)
		rate := out.correction * predicted
		noise := significance * in.wanted * math.Sqrt(in.crowding*((1-in.wanted)/(in.wanted*float64(max(n, 1)))+correctionNoise(in)))
		tooHigh = rate > keepTo*in.wanted+noise
		tooLow = rate < keepFrom*in.wanted-noise
		if in.renew {
			off := max(renewFor*in.wanted, noise/significance/in.crowding)
			tooHigh, tooLow = rate > in.wanted+off, rate < in.wanted-off
		}
	}
	tail := min(in.wanted/out.correction, 0.5)
	out.quantile = 1 - tail
	switch {
	case bounded && n < minMoveSamples:
		out.note = fmt.Sprintf("the latency changed and only %s calls ended since: the delay stays", commas(n))
		return out
	case bounded && !tooHigh && !tooLow:
		out.note = boundNote(in, in.inForce)
		return out
	}
	found, identified := in.sample.Quantile(out.quantile)
	if identified && in.inForce > 0 {
		completed, ok := in.sample.Completed.Quantile(out.quantile)
		identified = ok && found <= time.Duration(maxLeap*float64(completed))
	}
	if identified {
		found = refine(in.sample, found, tail)
	} else if in.inForce == 0 {
		out.note = "so many are cancelled that the quantile is not identified"
		return out
	} else {
		found = blindDelay(in, out.quantile)
		out.note = "beyond it nearly all is cancelled, so the delay follows what completed"
	}
	if in.renew && in.crowding > 1 && in.inForce > 0 {
		found = time.Duration(math.Sqrt(float64(found) * float64(in.inForce)))
	}
	wanted := min(max(found.Round(delayUnit), in.min), in.max)
	if !bounded || tooHigh && wanted > in.inForce || tooLow && wanted < in.inForce {
		out.delay = wanted
	}
	if note := boundNote(in, out.delay); note != "" {
		out.note = note
	}
	return out
}

// basis is what a delay was estimated by. With few calls it is far off, and a band
// wide enough not to move it by chance would keep it there. So it is estimated anew
// each time that there are renewGrowth times as many calls, and where they are crowded, every
// crowdedTurn; hence a steady fleet comes to rest.
type basis struct {
	calls  uint64
	wanted float64 // eligible rate
	at     time.Time
}

// restoredBasis is that of a delay from before a restart, from more calls than
// there will be soon.
func restoredBasis(target, run float64) basis {
	return basis{calls: math.MaxUint64 / renewGrowth, wanted: wantedRate(target, run)}
}

// renew reports whether the delay is to be estimated anew by n calls, and notes it.
func (b *basis) renew(now time.Time, n uint64, wanted, crowding float64) bool {
	if float64(n)*wanted < renewTail {
		return false
	}
	if n < renewGrowth*b.calls && wanted == b.wanted && (crowding == 1 || now.Sub(b.at) < crowdedTurn) {
		return false
	}
	*b = basis{calls: n, wanted: wanted, at: now}
	return true
}

// boundNote says which bound of the configuration delay sits at.
func boundNote(in delayInput, delay time.Duration) string {
	switch delay {
	case in.min:
		return "it is held at the least delay of " + millis(in.min)
	case in.max:
		return "it is held at the longest delay of " + millis(in.max)
	}
	return ""
}

// outlive is the share of primaries that take longer than d, the delay in
// force. Where Kaplan-Meier has too few at risk, the plain share is right too
// but for those that their callers cancelled before d.
func outlive(s *estimator.Sample, d time.Duration) float64 {
	if share, ok := s.Exceedance(d); ok {
		return share
	}
	known, longer := counts(s, d)
	if known == 0 {
		return 1
	}
	return longer / known
}

// counts is of how many attempts it is known whether they took longer than d,
// and how many did. One cancelled before d tells nothing.
func counts(s *estimator.Sample, d time.Duration) (known, longer float64) {
	completed := float64(s.Completed.Count())
	if share, ok := s.Completed.Exceedance(d); ok {
		longer = share * completed
	}
	if share, ok := s.Censored.Exceedance(d); ok {
		beyond := share * float64(s.Censored.Count())
		longer += beyond
		completed += beyond
	}
	return completed, longer
}

// refine moves d inside its bucket to where the share tail outlives it: in a
// steep part of the distribution one bucket of 1.1% holds as much as the whole
// band in which the rate is kept.
func refine(s *estimator.Sample, d time.Duration, tail float64) time.Duration {
	lo, hi := time.Duration(float64(d)/bucketRatio), time.Duration(float64(d)*bucketRatio)
	for hi-lo > delayUnit/2 {
		mid := lo + (hi-lo)/2
		share, ok := s.Exceedance(mid)
		if !ok {
			return d
		}
		if share > tail {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// correct weighs the counts at the delay in force against the former ratio.
func correct(in delayInput, predicted float64) float64 {
	eligible := float64(min(in.eligible, in.safe))
	c := (eligible + correctionWeight*in.correction) /
		(float64(in.safe)*predicted + correctionWeight)
	return min(max(c, minCorrection), maxCorrection)
}

// correctionNoise is the relative variance that counts of other calls than the
// sample's bring into the correction.
func correctionNoise(in delayInput) float64 {
	eligible := float64(min(in.eligible, in.safe))
	weight := eligible + correctionWeight
	return eligible / (weight * weight)
}

// blindDelay is for a quantile that Kaplan-Meier does not identify, because
// nearly all beyond it was cancelled. Primaries that completed are biased low, so the
// delay does not fall by them; but it must not climb without evidence either: a
// replica that never answers keeps the quantile unidentified for as long as it
// lives, and the healthy ones' quantile is right all the while.
func blindDelay(in delayInput, q float64) time.Duration {
	completed, ok := in.sample.Completed.Quantile(q)
	if !ok {
		return in.inForce
	}
	most := time.Duration(blindRaise * float64(in.inForce))
	return min(max(completed, in.inForce), most)
}
