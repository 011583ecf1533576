package estimator

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// errorBound is the worst relative error of a quantile, before it is rounded to
// the nanosecond.
const errorBound = .00542

// latency draws any duration that a client may measure, sensible or not.
func latency() *rapid.Generator[time.Duration] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1, 1<<42).Draw(t, "ns") >> rapid.IntRange(0, 41).Draw(t, "shift"))
		}),
		rapid.SampledFrom([]time.Duration{math.MinInt64, -2 * time.Hour, -1, 0, 1, 2, time.Second, time.Hour, maxLatency, maxLatency + 1, math.MaxInt64}),
	)
}

func latencies() *rapid.Generator[[]time.Duration] { return rapid.SliceOfN(latency(), 0, 200) }

// contents is a histogram as a plain value that tests compare.
type contents struct {
	total, zeros uint64
	counts       [MaxIndex - MinIndex + 1]uint64
}

func contentsOf(h *Histogram) contents {
	c := contents{total: h.Count(), zeros: h.Zeros()}
	for i, n := range h.Buckets() {
		c.counts[i-MinIndex] += n
	}
	return c
}

func expectSame(t rapid.TB, what string, got, want *Histogram) {
	t.Helper()
	a, b := contentsOf(got), contentsOf(want)
	if a.total != b.total || a.zeros != b.zeros {
		t.Fatalf("%s: holds %d with %d zeros, want %d with %d", what, a.total, a.zeros, b.total, b.zeros)
	}
	for k := range a.counts {
		if a.counts[k] != b.counts[k] {
			t.Fatalf("%s: bucket %d holds %d, want %d", what, MinIndex+k, a.counts[k], b.counts[k])
		}
	}
	for k, o := range got.octaves {
		var sum uint64
		if o.counts != nil {
			for _, n := range o.counts {
				sum += n
			}
		}
		if sum != o.n {
			t.Fatalf("%s: octave %d says %d, its buckets %d", what, got.low+k, o.n, sum)
		}
	}
}

// Histograms with zeros, values below the resolution and above the range, and
// empty ones, merged in all orders and groupings, equal one that was fed everything.
// A multiple of a histogram has that multiple of each count, but for rounding, and
// the phases take turns at what is rounded.
func TestMergeScaled(t *testing.T) {
	var h Histogram
	h.RecordN(-1, 3)
	for i := range 1000 {
		h.Record(time.Duration(i+1) * time.Millisecond)
	}
	var exact, thin Histogram
	exact.MergeScaled(&h, 1000, 0)
	if exact.Count() != 1003000 || exact.Zeros() != 3000 {
		t.Errorf("a thousand times: %d of which %d are zero", exact.Count(), exact.Zeros())
	}
	for i := range 1000 {
		thin.MergeScaled(&h, .0123, float64(i)/1000)
	}
	if n := float64(thin.Count()); math.Abs(n-1003*12.3) > 1 {
		t.Errorf("%g in all, want %g", n, 1003*12.3)
	}
	for _, d := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 990 * time.Millisecond} {
		all, _ := h.Exceedance(d)
		some, _ := thin.Exceedance(d)
		if math.Abs(all-some) > .001 {
			t.Errorf("%.4f are longer than %v, want %.4f", some, d, all)
		}
	}
	var full Histogram
	full.MergeScaled(&exact, math.MaxFloat64, 0)
	if full.Count() != math.MaxUint64 {
		t.Errorf("%d, want it full", full.Count())
	}
}

func TestMergeInAnyOrderAndGrouping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(latencies(), 1, 6).Draw(t, "parts")
		want := histogramOf(slices.Concat(parts...)...)
		var pool []*Histogram
		for _, p := range parts {
			pool = append(pool, histogramOf(p...))
		}
		for len(pool) > 1 {
			from := rapid.IntRange(0, len(pool)-1).Draw(t, "from")
			o := pool[from]
			pool = slices.Delete(pool, from, from+1)
			pool[rapid.IntRange(0, len(pool)-1).Draw(t, "into")].Merge(o)
		}
		expectSame(t, "merged", pool[0], want)
		if all := slices.Concat(parts...); len(all) > 0 {
			for _, q := range []float64{0, .5, .95, 1} {
				got, _ := pool[0].Quantile(q)
				direct, ok := want.Quantile(q)
				if !ok || got != direct {
					t.Fatalf("p%g of merged is %v, want %v", 100*q, got, direct)
				}
			}
		}
	})
}

func TestSubtractUndoesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := latencies().Draw(t, "a"), latencies().Draw(t, "b")
		h := histogramOf(a...)
		h.Merge(histogramOf(b...))
		h.Subtract(histogramOf(b...))
		expectSame(t, "a + b - b", h, histogramOf(a...))
		h.Subtract(histogramOf(b...)) // whatever is not there stays at nothing
		h.Subtract(histogramOf(a...))
		if h.Count() != 0 || h.Zeros() != 0 {
			t.Fatalf("all subtracted: holds %d with %d zeros, want none", h.Count(), h.Zeros())
		}
	})
}

// The estimate is within the bound of the latency of that rank, whatever rank
// convention one holds to.
func TestQuantileIsWithinTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1000, 100e9).Draw(t, "ns")>>rapid.IntRange(0, 26).Draw(t, "shift")) + 1000
		}), 1, 200).Draw(t, "latencies")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		h := histogramOf(all...)
		slices.Sort(all)
		r := q * float64(len(all))
		low := all[max(int(math.Floor(r*(1-1e-9)))-1, 0)]
		high := all[min(int(math.Ceil(r*(1+1e-9))), len(all)-1)]
		got, ok := h.Quantile(q)
		if !ok || float64(got) < float64(low)*(1-errorBound)-.5 || float64(got) > float64(high)*(1+errorBound)+.5 {
			t.Fatalf("q %g of %d is %v, %v, want within %g of [%v, %v]", q, len(all), got, ok, errorBound, low, high)
		}
	})
}

// From 1 us to 100 s, every bucket edge and the nanoseconds beside it are
// estimated within the stated bound.
func TestErrorBoundAtBucketEdges(t *testing.T) {
	worst := 0.0
	for i := Index(time.Microsecond); i <= Index(100*time.Second); i++ {
		_, edge := Bounds(i)
		for d := edge - 1; d <= edge+1; d++ {
			got, ok := histogramOf(d).Quantile(.5)
			off := (math.Abs(float64(got-d)) - .5) / float64(d)
			worst = max(worst, off)
			if !ok || off > errorBound {
				t.Errorf("%d ns is estimated as %d, want at most %.3f%% and half a nanosecond off", d, got, 100*errorBound)
			}
		}
	}
	t.Logf("worst error before rounding %.4f%%", 100*worst)
}

// A clock that steps back gives negative times and ends before starts; they are
// counted as zero and never become a huge latency.
func TestNegativeTimesCountAsZero(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	end := start.Add(-3 * time.Second)
	bad := []time.Duration{-1, 0, -2 * time.Hour, end.Sub(start), math.MinInt64}
	h := histogramOf(bad...)
	var r Recorder
	for _, d := range bad {
		r.Record(d)
	}
	drained := new(Histogram)
	r.Drain(drained)
	for _, h := range []*Histogram{h, drained} {
		if h.Count() != 5 || h.Zeros() != 5 || h.Clamped() != 0 {
			t.Errorf("count %d, zeros %d, clamped %d, want 5, 5, 0", h.Count(), h.Zeros(), h.Clamped())
		}
		if d, ok := h.Quantile(1); d != 0 || !ok {
			t.Errorf("maximum is %v, %v, want 0, true", d, ok)
		}
		if share, ok := h.Exceedance(0); share != 0 || !ok {
			t.Errorf("share above 0 is %v, %v, want 0, true", share, ok)
		}
	}
}

func TestWhatIsTooLongIsClampedAndCounted(t *testing.T) {
	h := histogramOf(time.Hour, 2*time.Hour, math.MaxInt64)
	if h.Count() != 3 || h.Clamped() != 2 {
		t.Errorf("count %d, clamped %d, want 3, 2", h.Count(), h.Clamped())
	}
	if d, _ := h.Quantile(1); d < 4000*time.Second || d > 4096*time.Second {
		t.Errorf("maximum is %v, want about 4,096 s", d)
	}
}

func TestNoEstimateFromNothing(t *testing.T) {
	empty, one := new(Histogram), histogramOf(time.Second)
	for _, c := range []struct {
		name string
		h    *Histogram
		q    float64
	}{
		{"empty", empty, .5}, {"below 0", one, -.01}, {"above 1", one, 1.01},
		{"NaN", one, math.NaN()}, {"+Inf", one, math.Inf(1)}, {"-Inf", one, math.Inf(-1)},
	} {
		if d, ok := c.h.Quantile(c.q); d != 0 || ok {
			t.Errorf("%s: quantile is %v, %v, want 0, false", c.name, d, ok)
		}
	}
	if share, ok := empty.Exceedance(time.Second); share != 0 || ok {
		t.Errorf("exceedance of nothing is %v, %v, want 0, false", share, ok)
	}
}

func TestExceedanceInterpolates(t *testing.T) {
	all := lognormal(7, 100_000)
	h := histogramOf(all...)
	slices.Sort(all)
	for _, q := range []float64{.01, .1, .5, .9, .95, .99, .999} {
		d := all[int(q*float64(len(all)))]
		above := len(all) - countBelow(all, d+1)
		want := float64(above) / float64(len(all))
		if got, ok := h.Exceedance(d); !ok || math.Abs(got-want) > .0005 {
			t.Errorf("share above %v is %.5f, %v, want %.5f within .0005", d, got, ok, want)
		}
	}
	for d, want := range map[time.Duration]float64{-1: 1, 0: 1, maxLatency: 0, math.MaxInt64: 0} {
		if got, ok := h.Exceedance(d); !ok || got != want {
			t.Errorf("share above %v is %v, %v, want %v, true", d, got, ok, want)
		}
	}
}

// countBelow returns how many of sorted are below d.
func countBelow(sorted []time.Duration, d time.Duration) int {
	n, _ := slices.BinarySearch(sorted, d)
	return n
}

func TestCountsSaturate(t *testing.T) {
	var h Histogram
	h.RecordN(time.Second, math.MaxUint64-1)
	h.RecordN(time.Millisecond, 5)
	h.RecordN(-1, 5)
	h.Merge(&h)
	h.Merge(histogramOf(0, time.Second))
	if h.Count() != math.MaxUint64 || h.Zeros() != 0 {
		t.Errorf("count %d, zeros %d, want 2^64 - 1, 0", h.Count(), h.Zeros())
	}
	if share, _ := h.Exceedance(10 * time.Millisecond); share < .999 {
		t.Errorf("share above 10 ms is %v, want 1", share)
	}
	if err := h.MergeBinary(encoded(t, histogramOf(0, time.Second))); err != nil || h.Count() != math.MaxUint64 {
		t.Errorf("count is %d, %v after a wire form, want 2^64 - 1", h.Count(), err)
	}
	h.Subtract(histogramOf(time.Second))
	if h.Count() != math.MaxUint64-1 {
		t.Errorf("count less one is %d, want 2^64 - 2", h.Count())
	}
}

func TestResetAndClone(t *testing.T) {
	h := histogramOf(0, time.Millisecond, time.Second)
	c := h.Clone()
	h.Reset()
	expectSame(t, "reset", h, new(Histogram))
	expectSame(t, "clone", c, histogramOf(0, time.Millisecond, time.Second))
	h.Record(time.Millisecond)
	expectSame(t, "used again", h, histogramOf(time.Millisecond))
}
