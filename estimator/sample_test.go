package estimator

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hedged draws n calls whose primaries are cancelled when a hedge, sent after
// delay, ends first: what the primaries would have taken, and the sample seen.
func hedged(seed uint64, n int, delay time.Duration, draw func(*rand.Rand) time.Duration) (all []time.Duration, s *Sample) {
	rng := rand.New(rand.NewPCG(seed, 1))
	s = new(Sample)
	for range n {
		x := draw(rng)
		all = append(all, x)
		if x <= delay {
			s.Completed.Record(x)
			continue
		}
		if y := delay + draw(rng); y < x {
			s.Censored.Record(y)
		} else {
			s.Completed.Record(x)
		}
	}
	slices.Sort(all)
	return all, s
}

func drawLognormal(rng *rand.Rand) time.Duration {
	return time.Duration(float64(10*time.Millisecond) * math.Exp(rng.NormFloat64()))
}

// With nothing cancelled a sample says what its histogram says, to the nanosecond.
func TestSampleWithoutCensoringIsItsHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(latency(), 1, 200).Draw(t, "latencies")
		q := rapid.Float64Range(-.1, 1.1).Draw(t, "q")
		d := latency().Draw(t, "d")
		s := &Sample{Completed: *histogramOf(all...)}
		// Cancelled beyond all else: nothing below is estimated.
		late := &Sample{Completed: *histogramOf(all...)}
		late.Completed.Subtract(histogramOf(slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return Index(d) < 0 })...))
		late.Censored.RecordN(time.Second+1, s.Count()-late.Completed.Count())

		want, wantOK := s.Completed.Quantile(q)
		if got, ok := s.Quantile(q); got != want || ok != wantOK {
			t.Fatalf("quantile %g is %v, %v, want %v, %v", q, got, ok, want, wantOK)
		}
		if want < time.Second && wantOK {
			if got, ok := late.Quantile(q); late.Completed.Count() > 0 && (got != want || !ok) {
				t.Fatalf("quantile %g with censoring above is %v, %v, want %v, true", q, got, ok, want)
			}
		}
		share, ok := s.Completed.Exceedance(d)
		if got, gotOK := s.Exceedance(d); got != share || gotOK != ok {
			t.Fatalf("share above %v is %v, %v, want %v, %v", d, got, gotOK, share, ok)
		}
		if Index(d) < 0 {
			if got, gotOK := late.Exceedance(d); math.Abs(got-share) > 1e-12 || !gotOK {
				t.Fatalf("share above %v with censoring above is %v, %v, want %v, true", d, got, gotOK, share)
			}
		}
	})
}

// Hedging at the p90 cancels most slow primaries. Dropping those moves the p95
// down by a third; the estimate repairs it.
func TestCensoredLognormalIsRepaired(t *testing.T) {
	for seed := range uint64(5) {
		all, s := hedged(seed, 100_000, 36*time.Millisecond, drawLognormal)
		p95 := all[95_000]
		if naive, _ := s.Completed.Quantile(.95); float64(naive) > .8*float64(p95) {
			t.Errorf("seed %d: p95 of completed alone is %v of %v: the test cancels too little", seed, naive, p95)
		}
		got, ok := s.Quantile(.95)
		if off := float64(got)/float64(p95) - 1; !ok || math.Abs(off) > .02 {
			t.Errorf("seed %d: p95 is %v, %v, want %v within 2%%", seed, got, ok, p95)
		}
		if share, ok := s.Exceedance(p95); !ok || math.Abs(share-.05) > .0015 {
			t.Errorf("seed %d: share above %v is %v, %v, want .05 within .0015", seed, p95, share, ok)
		}
	}
}

// The binned estimate agrees with Kaplan and Meier's own over the single values.
func TestAgreesWithUnbinnedEstimate(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	type attempt struct {
		at    time.Duration
		ended bool
	}
	var attempts []attempt
	var s Sample
	for range 5000 {
		x, c := drawLognormal(rng), 3*drawLognormal(rng)
		if x <= c {
			attempts = append(attempts, attempt{x, true})
			s.Completed.Record(x)
		} else {
			attempts = append(attempts, attempt{c, false})
			s.Censored.Record(c)
		}
	}
	slices.SortFunc(attempts, func(a, b attempt) int { return int(a.at - b.at) })
	survival := 1.0
	for k, a := range attempts {
		atRisk := len(attempts) - k
		if a.ended {
			survival *= 1 - 1/float64(atRisk)
		}
		if k%250 != 249 || atRisk < MinAtRisk {
			continue
		}
		if got, ok := s.Exceedance(a.at); !ok || math.Abs(got-survival) > .002 {
			t.Errorf("share above %v is %.4f, %v, want %.4f within .002", a.at, got, ok, survival)
		}
	}
}

// Attempts cancelled in a bucket are at risk for half of it.
func TestHalfOfTheCensoredAreAtRisk(t *testing.T) {
	var s Sample
	s.Completed.RecordN(10*time.Millisecond, 20)
	s.Censored.RecordN(10*time.Millisecond, 20)
	s.Completed.RecordN(time.Second, 60)
	want := 1 - 20./90
	if got, ok := s.Exceedance(20 * time.Millisecond); !ok || math.Abs(got-want) > 1e-12 {
		t.Errorf("share above 20 ms is %v, %v, want %v", got, ok, want)
	}
}

func TestNotIdentified(t *testing.T) {
	ms := time.Millisecond
	var s Sample
	if d, ok := s.Quantile(.5); ok || d != 0 {
		t.Errorf("median of nothing is %v, %v, want 0, false", d, ok)
	}
	if share, ok := s.Exceedance(0); ok {
		t.Errorf("exceedance of nothing is %v, true", share)
	}
	s.Censored.RecordN(10*ms, 50)
	if d, ok := s.Quantile(.5); ok {
		t.Errorf("median of cancelled attempts alone is %v, want none", d)
	}
	s.Completed.RecordN(5*ms, 50)  // half end at 5 ms, half are cancelled at 10
	s.Completed.RecordN(20*ms, 20) // and 20 live on to 20
	s.Censored.RecordN(100*ms, MinAtRisk-1)

	for _, c := range []struct {
		name string
		q    float64
		want time.Duration // 0: not identified
	}{
		{"below all cancelled", .38, 5 * ms},
		{"with many at risk", .5, 20 * ms},
		{"beyond the last that ended", .95, 0},
		{"NaN", math.NaN(), 0},
		{"above 1", 1.1, 0},
	} {
		d, ok := s.Quantile(c.q)
		if ok != (c.want > 0) || math.Abs(float64(d-c.want)) > errorBound*float64(c.want) && ok {
			t.Errorf("%s: quantile %v is %v, %v, want %v", c.name, c.q, d, ok, c.want)
		}
	}
	if _, ok := s.Exceedance(15 * ms); !ok {
		t.Error("share above 15 ms is not identified, with 29 at risk")
	}
	if share, ok := s.Exceedance(90 * ms); ok {
		t.Errorf("share above 90 ms is %v, want none with 9 at risk", share)
	}
	s.Completed.RecordN(200*ms, 1)
	if share, ok := s.Exceedance(50 * ms); !ok {
		t.Errorf("share above 50 ms is %v, %v, want one with 10 at risk", share, ok)
	}
	if d, ok := s.Quantile(1); ok {
		t.Errorf("maximum is %v, want none with 1 at risk", d)
	}
}

// Attempts cancelled as they were sent, or under a stepped clock, tell nothing.
func TestCancelledAtZeroTellsNothing(t *testing.T) {
	s := &Sample{Completed: *histogramOf(lognormal(3, 500)...)}
	want, _ := s.Completed.Quantile(.9)
	s.Censored.RecordN(-5, 10_000)
	if got, ok := s.Quantile(.9); !ok || got != want {
		t.Errorf("p90 is %v, %v, want %v", got, ok, want)
	}
	if s.Count() != 10_500 {
		t.Errorf("count is %d, want 10,500", s.Count())
	}
}

// Any sample gives shares in [0, 1] that fall with d, and quantiles that rise with q.
func TestSampleIsMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Sample{Completed: *histogramOf(latencies().Draw(t, "completed")...), Censored: *histogramOf(latencies().Draw(t, "censored")...)}
		last := 1.0
		for i := MinIndex; i <= MaxIndex; i += 8 {
			_, d := Bounds(i)
			share, ok := s.Exceedance(d)
			if !ok {
				continue
			}
			if !(share >= 0 && share <= last+1e-9) {
				t.Fatalf("share above %v is %v after %v", d, share, last)
			}
			last = share
		}
		var before time.Duration
		for q := 0.; q <= 1; q += 1. / 64 {
			if d, ok := s.Quantile(q); ok {
				if d < before {
					t.Fatalf("quantile %v is %v after %v", q, d, before)
				}
				before = d
			}
		}
	})
}
