package control

import (
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// ramp is n primaries spread evenly over 5 to 15 ms.
func ramp(n int) *estimator.Sample {
	s := &estimator.Sample{}
	for i := range n {
		s.Completed.Record(5*time.Millisecond + time.Duration((float64(i)+.5)/float64(n)*float64(10*time.Millisecond)))
	}
	return s
}

func input(inForce time.Duration, s *estimator.Sample) delayInput {
	return delayInput{inForce: inForce, sample: s, wanted: wantedRate(.05, steerCalls), correction: 1, crowding: 1, min: time.Millisecond, max: time.Second}
}

func TestDelayFollowsTheQuantile(t *testing.T) {
	out := nextDelay(input(0, ramp(10000)))
	within(t, "first delay", out.delay, 14520*time.Microsecond, 14620*time.Microsecond) // 15 - 10 * .043
}

func TestDelayHysteresisIsOnTheEligibleRate(t *testing.T) {
	for _, c := range []struct {
		name    string
		inForce time.Duration
		samples int
		moves   bool
	}{
		{"at the wanted rate", 14570 * time.Microsecond, 100000, false},
		{"4.0%: inside the band", 14600 * time.Microsecond, 100000, false},
		{"3.4%: below it", 14660 * time.Microsecond, 100000, true},
		{"5.2%: above it", 14480 * time.Microsecond, 100000, true},
		{"5.2% of 1,000 calls may be chance", 14480 * time.Microsecond, 1000, false},
		{"10% of 1,000 calls is not", 14 * time.Millisecond, 1000, true},
		{"all outlive it", 3 * time.Millisecond, 60, true},
		{"too few to say", 3 * time.Millisecond, minMoveSamples - 1, false},
	} {
		out := nextDelay(input(c.inForce, ramp(c.samples)))
		if moved := out.delay != c.inForce; moved != c.moves {
			t.Errorf("%s: %v -> %v, want it moved: %v", c.name, c.inForce, out.delay, c.moves)
		}
	}
}

// Half of what was predicted was counted: the delay comes down until the counts,
// not the prediction, are at the wanted rate.
func TestDelayIsCorrectedByCounts(t *testing.T) {
	in := input(14570*time.Microsecond, ramp(30000))
	in.safe, in.eligible = 30000, 30000*215/10000
	out := nextDelay(in)
	within(t, "correction", out.correction, .5, .55)
	within(t, "delay", out.delay, 14100*time.Microsecond, 14250*time.Microsecond) // 15 - 10 * .043/.53

	in.eligible = 0 // and none at all moves it no further than the bound
	within(t, "least correction", nextDelay(in).correction, minCorrection, minCorrection)
	in.eligible = in.safe * 100
	within(t, "most correction", nextDelay(in).correction, maxCorrection, maxCorrection)
}

// All that outlives the delay is cancelled, so the quantile is not identified:
// the delay rises by what completed, at most by half at once, and never beyond.
func TestDelayWithEverythingCensored(t *testing.T) {
	s := &estimator.Sample{}
	for i := range 600 {
		s.Completed.Record(5*time.Millisecond + time.Duration(i)*10*time.Microsecond)
	}
	s.Censored.RecordN(20*time.Millisecond, 400)
	delay := 4 * time.Millisecond
	var path []time.Duration
	for range 10 {
		next := nextDelay(input(delay, s)).delay
		if next < delay || next > delay*3/2+delayUnit {
			t.Fatalf("%v -> %v, want it between 1 and 1.5 times", delay, next)
		}
		if next != delay {
			path = append(path, next)
		}
		delay = next
	}
	t.Log(path)
	within(t, "delay", delay, 10500*time.Microsecond, 11100*time.Microsecond)
	if out := nextDelay(input(0, s)); out.delay != 0 {
		t.Errorf("first delay %v, want none", out.delay)
	}
}

func TestDelayKeepsItsBounds(t *testing.T) {
	in := input(0, ramp(1000))
	in.min, in.max = 20*time.Millisecond, 30*time.Millisecond
	if out := nextDelay(in); out.delay != in.min || out.note == "" {
		t.Errorf("below the bounds: %+v", out)
	}
	in.min, in.max = time.Millisecond, 10*time.Millisecond
	if out := nextDelay(in); out.delay != in.max || out.note == "" {
		t.Errorf("above the bounds: %+v", out)
	}
	in.inForce = 14570 * time.Microsecond // right but for bounds that were changed since
	if out := nextDelay(in); out.delay != in.max {
		t.Errorf("above changed bounds: %+v", out)
	}
}

func TestSamplesNeeded(t *testing.T) {
	for target, want := range map[float64]uint64{.05: 200, .01: 582, .5: 200} {
		if got := samplesNeeded(wantedRate(target, steerCalls)); got != want {
			t.Errorf("target %v: %d, want %d", target, got, want)
		}
	}
}

// A delay from few calls is estimated anew when there are twice as many, with no
// band to keep it; a fleet that does not grow is left alone.
func TestDelayIsRenewed(t *testing.T) {
	var b basis
	now := epoch
	const wanted = .05
	for _, c := range []struct {
		n      uint64
		wanted float64
		crowd  float64
		want   bool
	}{
		{999, wanted, 1, false}, // fewer than renewTail beyond it
		{1000, wanted, 1, true},
		{1999, wanted, 1, false},
		{2000, wanted, 1, true},
		{2500, wanted, 1, false},
		{2500, .04, 1, true}, // another rate is wanted
		{2500, .04, 1, false},
		{2500, .04, 5, true}, // crowdedTurn has passed since
		{2500, .04, 5, false},
	} {
		if c.crowd > 1 && c.want {
			now = now.Add(crowdedTurn)
		}
		if got := b.renew(now, c.n, c.wanted, c.crowd); got != c.want {
			t.Errorf("%d calls, wanted %v, crowding %v: %v, want %v", c.n, c.wanted, c.crowd, got, c.want)
		}
	}
	b = restoredBasis(.05, steerCalls)
	if b.renew(now, 1e6, wantedRate(.05, steerCalls), 1) {
		t.Error("a delay from before a restart is renewed, want it kept in its band")
	}

	in := input(14600*time.Microsecond, ramp(100000)) // 4.0%: inside the band
	in.renew = true
	within(t, "renewed", nextDelay(in).delay, 14560*time.Microsecond, 14580*time.Microsecond)
	in.inForce = 14574 * time.Microsecond // 4.26%
	within(t, "near enough", nextDelay(in).delay, in.inForce, in.inForce)
	in.inForce, in.crowding = 13*time.Millisecond, 5
	within(t, "half of the way of crowded calls", nextDelay(in).delay, 13740*time.Microsecond, 13790*time.Microsecond)
}

// Where calls are crowded, chance moves the rate more, and the delay less.
func TestCrowdedDelayHasAWiderBand(t *testing.T) {
	in := input(14450*time.Microsecond, ramp(10000)) // 5.5%
	if nextDelay(in).delay == in.inForce {
		t.Error("5.5% of 10,000 independent calls: the delay stays, want it moved")
	}
	in.crowding = 9
	if got := nextDelay(in).delay; got != in.inForce {
		t.Errorf("of crowded calls: %v, want %v kept", got, in.inForce)
	}
}
