package estimator

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An index is OpenTelemetry's; a native key is one more.
func TestConvertedForms(t *testing.T) {
	h := histogramOf(0, time.Second, time.Second+1, time.Second+1, 1020*time.Millisecond)
	e, err := h.Exponential(6)
	if want := (Exponential{Scale: 6, ZeroCount: 1, Offset: -1, Counts: []uint64{1, 2, 1}}); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("OpenTelemetry: %+v, %v, want %+v", e, err, want)
	}
	e, err = h.Exponential(5)
	if want := (Exponential{Scale: 5, ZeroCount: 1, Offset: -1, Counts: []uint64{1, 3}}); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("OpenTelemetry at scale 5: %+v, %v, want %+v", e, err, want)
	}
	h.Record(2 * time.Second)
	f, err := h.Native(6)
	if want := (Native{
		Schema: 6, ZeroCount: 1,
		Spans:  []Span{{Offset: 0, Length: 3}, {Offset: 61, Length: 1}},
		Deltas: []int64{1, 1, -1, 0},
	}); err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("Prometheus: %+v, %v, want %+v", f, err, want)
	}
}

func TestConversionAtOurScaleLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histogramOf(latencies().Draw(t, "latencies")...)
		h.RecordN(latency().Draw(t, "d"), rapid.Uint64Range(0, 1<<50).Draw(t, "n"))
		e, err := h.Exponential(Scale)
		if err != nil {
			t.Fatal(err)
		}
		got := new(Histogram)
		if err := got.MergeExponential(e); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "by way of OpenTelemetry", got, h)
		f, err := h.Native(Scale)
		if err != nil {
			t.Fatal(err)
		}
		got.Reset()
		if err := got.MergeNative(f); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "by way of Prometheus", got, h)
	})
}

// At a lower scale every count is in the bucket that logarithms say, and nothing is lost.
func TestConversionToLowerScales(t *testing.T) {
	all := lognormal(8, 2000)
	h := histogramOf(all...)
	for scale := minExponentialScale; scale <= Scale; scale++ {
		e, err := h.Exponential(scale)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[int]uint64{}
		for _, d := range all {
			counts[int(math.Ceil(math.Log2(d.Seconds())*math.Exp2(float64(scale))))-1]++
		}
		for k, n := range e.Counts {
			if i := int(e.Offset) + k; counts[i] != n {
				t.Errorf("scale %d: bucket %d holds %d, want %d", scale, i, n, counts[i])
			}
		}
	}
}

func TestConversionFromHigherScales(t *testing.T) {
	all := lognormal(9, 2000)
	for scale := Scale; scale <= 12; scale++ {
		e := Exponential{Scale: int32(scale), ZeroCount: 7, Offset: int32(-40 << scale)}
		e.Counts = make([]uint64, 52<<scale) // up to 4,096 s
		for _, d := range all {
			e.Counts[int(math.Ceil(math.Log2(d.Seconds())*math.Exp2(float64(scale))))-1-int(e.Offset)]++
		}
		e.Counts[0]++               // below a nanosecond
		e.Counts[len(e.Counts)-1]++ // at the top
		got := new(Histogram)
		if err := got.MergeExponential(e); err != nil {
			t.Fatal(err)
		}
		want := histogramOf(append(all, maxLatency)...)
		want.RecordN(0, 8)
		expectSame(t, "converted", got, want)
		if scale > maxNativeSchema {
			continue
		}
		f := Native{Schema: e.Scale, ZeroCount: 7}
		f.Spans = []Span{{Offset: e.Offset + 1, Length: uint32(len(e.Counts))}}
		last := uint64(0)
		for _, n := range e.Counts {
			f.Deltas = append(f.Deltas, int64(n)-int64(last))
			last = n
		}
		got.Reset()
		if err := got.MergeNative(f); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "converted from Prometheus", got, want)
	}
}

func TestConversionRefuses(t *testing.T) {
	big := new(Histogram)
	big.RecordN(time.Second, math.MaxUint64)
	h := histogramOf(time.Second)
	exponential := func(e Exponential) error { return h.MergeExponential(e) }
	native := func(f Native) error { return h.MergeNative(f) }
	exported := func(_ Exponential, err error) error { return err }
	exportedNative := func(_ Native, err error) error { return err }
	for _, c := range []struct {
		err  error
		says string
	}{
		{exported(h.Exponential(7)), "scale is 7, want -10 to 6"},
		{exported(h.Exponential(-11)), "scale is -11, want -10 to 6"},
		{exportedNative(h.Native(7)), "schema is 7, want -4 to 6"},
		{exportedNative(h.Native(-5)), "schema is -5, want -4 to 6"},
		{exportedNative(big.Native(6)), "bucket count is 18446744073709551615, want at most 9223372036854775807"},
		{exponential(Exponential{Scale: 5, Counts: []uint64{1}}), "scale is 5, want 6 to 20"},
		{exponential(Exponential{Scale: 21}), "scale is 21, want 6 to 20"},
		{exponential(Exponential{Scale: 6, Offset: math.MaxInt32, Counts: []uint64{1, 1}}), "offset is 2147483647 with 2 buckets"},
		{exponential(Exponential{Scale: 6, ZeroCount: math.MaxUint64, Counts: []uint64{0, 1}}), "bucket_counts: sum is over 18446744073709551615 at 1"},
		{native(Native{Schema: 5}), "schema is 5, want 6 to 8"},
		{native(Native{Schema: 9}), "schema is 9, want 6 to 8"},
		{native(Native{Schema: 6, Spans: []Span{{0, 2}}, Deltas: []int64{1}}), "there are 1, want 2"},
		{native(Native{Schema: 6, Spans: []Span{{0, math.MaxUint32}, {0, 2}}, Deltas: []int64{1}}), "there are 1, want 4294967297"},
		{native(Native{Schema: 6, Spans: []Span{{0, 1}, {-1, 1}}, Deltas: []int64{1, 0}}), "span 1: offset is -1"},
		{native(Native{Schema: 6, Spans: []Span{{0, 1}}, Deltas: []int64{-1}}), "delta 0 is -1 after a count of 0"},
		{native(Native{Schema: 6, Spans: []Span{{0, 2}}, Deltas: []int64{math.MaxInt64, 1}}), "delta 1 is 1 after a count of 9223372036854775807"},
		{native(Native{Schema: 6, Spans: []Span{{0, 3}}, Deltas: []int64{math.MaxInt64, 0, 0}}), "deltas: sum is over"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("error is %v, want one that says %q", c.err, c.says)
		}
	}
	expectSame(t, "after the refusals", h, histogramOf(time.Second))
}
