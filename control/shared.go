package control

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

const (
	// Of the calls that outlive the delay, mostlyShared is the share whose every
	// copy does when slowness is shared, and partlyShared when enough of it is not
	// for hedges to be worth their load. Evidence is weighed between these two.
	mostlyShared = 0.97
	partlyShared = 0.5

	// Evidence for mostlyShared adds up, from 0. At sharedAlarm nats, which some
	// thirteen hedges that fail make, hedging is restrained, until the evidence is
	// back at 0. It grows up to sharedMost, which five that succeed undo.
	sharedAlarm = 8
	sharedMost  = 14

	// Where more calls than this outlive the delay anyway, hedges that do tell
	// nothing: latencies have shifted, or everything is slow.
	tooMany = 0.8

	// The delay against which hedges are held is the shortest in force in so long:
	// it follows calls of shared slowness before their hedges' ends are known.
	sharedHold = 3 * time.Second

	// Restrained hedges go after probeAfter times that delay, to probeShare of the calls
	// that outlive it, or fewer: to no more than probeLoad of the target in all.
	probeAfter = 2.5
	probeShare = 0.2
	probeLoad  = 0.05
	// It is over, too, when fewer calls outlive the late delay than goneShare of
	// what the highest share since lets expect, which must be goneCalls or more for
	// both. Chance does that once in 30,000 times.
	goneShare = 0.25
	goneCalls = 20

	// Without a hedge that tells anything for so long, hedging is tried again.
	sharedQuiet = 30 * time.Second
)

// shared notices that what is slow is slow on every copy. A hedge's latency from
// its own dispatch is held against a delay: were copies independent, as many
// hedges as primaries would outlive it. A hedge that was cancelled before tells
// nothing. The zero shared has seen nothing.
type shared struct {
	hedges estimator.Sample // ended since the last look
	nats   float64          // log likelihood ratio of mostlyShared to partlyShared, in [0, sharedMost]

	delay time.Duration // hedges are held against it
	until time.Time     // a longer one does not replace it before
	told  time.Time     // when hedges told something last

	late  time.Duration // delay while on; 0: off
	share float64       // of calls hedged after late
	slow  float64       // highest share of calls that outlived late

	known, longer float64 // of hedges since nats was 0, or since on
}

// sharedInput is what the verdict depends on besides hedges.
type sharedInput struct {
	inForce  time.Duration     // the delay
	max      time.Duration     // longest delay
	sample   *estimator.Sample // primaries of the present distribution
	recent   freezeCount       // of calls that outlived the delay in force
	target   float64
	crowding float64
}

// decide reports whether hedges are to be restrained.
func (s *shared) decide(now time.Time, in sharedInput) (bool, string) {
	s.follow(now, in.inForce)
	known, longer := counts(&s.hedges, s.delay)
	s.hedges.Reset()
	primaries := outlive(in.sample, s.delay)
	if s.delay == 0 || primaries > tooMany {
		s.forget()
		return false, fmt.Sprintf("%s of calls outlive the delay, so that hedges which do tell nothing", percent(primaries))
	}
	if known > 0 {
		s.told = now
	}
	s.known += known
	s.longer += longer
	text := fmt.Sprintf("%s of %s hedges that tell outlived %s, as %s of calls do",
		number(s.longer), number(s.known), millis(s.delay), percent(primaries))
	s.weigh(known/in.crowding, longer/in.crowding, primaries)
	switch {
	case s.late == 0 && s.nats >= sharedAlarm:
		s.late = min(time.Duration(probeAfter*float64(s.delay)).Round(delayUnit), in.max)
	case s.late > 0 && (s.nats == 0 || s.gone(in.recent) || now.Sub(s.told) > sharedQuiet):
		s.forget()
	case s.nats == 0:
		s.known, s.longer = 0, 0
	}
	if s.late == 0 {
		return false, text
	}
	s.spend(outlive(in.sample, s.late), in.target)
	return true, fmt.Sprintf("%s: what is slow is slow on every copy; of calls that outlive %s %s are hedged, to learn when that ends",
		text, millis(s.late), percent(s.share))
}

// follow keeps the delay against which hedges are held.
func (s *shared) follow(now time.Time, inForce time.Duration) {
	if s.late > 0 {
		return
	}
	if s.delay == 0 || inForce <= s.delay || now.After(s.until) {
		s.delay, s.until = inForce, now.Add(sharedHold)
	}
}

// weigh adds what hedges tell, given the share of primaries that outlive the delay.
func (s *shared) weigh(known, longer, primaries float64) {
	most := primaries + mostlyShared*(1-primaries)
	part := primaries + partlyShared*(1-primaries)
	s.nats += longer*math.Log(most/part) + (known-longer)*math.Log((1-most)/(1-part))
	s.nats = min(max(s.nats, 0), sharedMost)
}

// spend sets the share of the calls eligible after late that are hedged; it stays
// while the wanted one is within a factor of two.
func (s *shared) spend(eligible, target float64) {
	wanted := probeShare
	if eligible > 0 {
		wanted = min(wanted, probeLoad*target/eligible)
	}
	if s.share <= wanted/2 || s.share >= 2*wanted {
		s.share = wanted
	}
}

// gone reports whether hardly a call is as slow any more, given the recent counts
// at the late delay.
func (s *shared) gone(recent freezeCount) bool {
	if recent.eligible >= goneCalls {
		s.slow = max(s.slow, float64(recent.eligible)/float64(recent.safe))
	}
	expected := s.slow * float64(recent.safe)
	return expected >= goneCalls && float64(recent.eligible) < goneShare*expected
}

func (s *shared) forget() { *s = shared{delay: s.delay, until: s.until} }
