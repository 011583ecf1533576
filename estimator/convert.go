package estimator

import (
	"fmt"
	"math"
)

// Exponential is the positive range and the zero bucket of an OpenTelemetry
// exponential histogram of seconds, as in ExponentialHistogramDataPoint: bucket
// Offset+k holds the values in (g^i, g^(i+1)], i = Offset+k, g = 2^(2^-Scale).
type Exponential struct {
	Scale     int32
	ZeroCount uint64
	Offset    int32
	Counts    []uint64
}

// Native is the positive range and the zero bucket of a Prometheus native
// histogram of seconds, as in its protobuf form: bucket i of scale s has the key
// i+1 in schema s, and each delta is the difference to the count before.
type Native struct {
	Schema    int32
	ZeroCount uint64
	Spans     []Span
	Deltas    []int64
}

// Span is a run of keys: Length of them, Offset keys after the end of the span
// before (the first: the key itself).
type Span struct {
	Offset int32
	Length uint32
}

// Bounds of what is converted. OpenTelemetry's scales go from -10 to 20,
// Prometheus' schemas from -4 to 8.
const (
	minExponentialScale = -10
	maxExponentialScale = 20
	minNativeSchema     = -4
	maxNativeSchema     = 8
	maxNativeCount      = math.MaxInt64 // of a bucket: a delta must hold it
)

// Exponential returns h at the scale, which must be in [-10, 6]. At 6 nothing is
// lost; each step below joins two buckets.
func (h *Histogram) Exponential(scale int) (Exponential, error) {
	if scale < minExponentialScale || scale > Scale {
		return Exponential{}, fmt.Errorf("scale is %d, want %d to %d", scale, minExponentialScale, Scale)
	}
	e := Exponential{Scale: int32(scale), ZeroCount: h.zeros}
	for i, n := range h.Buckets() {
		i >>= Scale - scale
		if len(e.Counts) == 0 {
			e.Offset = int32(i)
		}
		for int(e.Offset)+len(e.Counts) <= i {
			e.Counts = append(e.Counts, 0)
		}
		e.Counts[i-int(e.Offset)] += n
	}
	return e, nil
}

// MergeExponential adds e to h. Its scale must be in [6, 20]: from a lower one the
// stated error bound cannot be kept. What is shorter than a nanosecond counts as
// zero, what is longer than 4,096 s goes to the top bucket. On an error h is as it was.
func (h *Histogram) MergeExponential(e Exponential) error {
	if e.Scale < Scale || e.Scale > maxExponentialScale {
		return fmt.Errorf("scale is %d, want %d to %d", e.Scale, Scale, maxExponentialScale)
	}
	last := int64(e.Offset) + int64(len(e.Counts)) - 1
	if last > math.MaxInt32 {
		return fmt.Errorf("offset is %d with %d buckets, want a last index of at most %d", e.Offset, len(e.Counts), math.MaxInt32)
	}
	total := e.ZeroCount
	for k, n := range e.Counts {
		if total+n < total {
			return fmt.Errorf("bucket_counts: sum is over %d at %d, want at most that", uint64(math.MaxUint64), k)
		}
		total += n
	}
	h.RecordN(0, e.ZeroCount)
	for k, n := range e.Counts {
		h.recordForeign((int64(e.Offset)+int64(k))>>(e.Scale-Scale), n)
	}
	return nil
}

// recordForeign counts n in bucket i of Scale, which h need not have.
func (h *Histogram) recordForeign(i int64, n uint64) {
	if i < MinIndex {
		h.RecordN(0, n)
		return
	}
	h.recordIndex(int(min(i, MaxIndex)), n)
}

// Native returns h in the schema, which must be in [-4, 6]. At 6 nothing is lost.
// It fails if a bucket holds more than a delta can say.
func (h *Histogram) Native(schema int) (Native, error) {
	if schema < minNativeSchema || schema > Scale {
		return Native{}, fmt.Errorf("schema is %d, want %d to %d", schema, minNativeSchema, Scale)
	}
	e, err := h.Exponential(schema)
	if err != nil {
		return Native{}, err
	}
	f := Native{Schema: int32(schema), ZeroCount: h.zeros}
	var end, previous int64
	for k, n := range e.Counts {
		if n == 0 {
			continue
		}
		if n > maxNativeCount {
			return Native{}, fmt.Errorf("bucket count is %d, want at most %d", n, uint64(maxNativeCount))
		}
		key := int64(e.Offset) + int64(k) + 1
		if len(f.Spans) == 0 || key > end {
			f.Spans = append(f.Spans, Span{Offset: int32(key - end)})
		}
		f.Spans[len(f.Spans)-1].Length++
		f.Deltas = append(f.Deltas, int64(n)-previous)
		end, previous = key+1, int64(n)
	}
	return f, nil
}

// MergeNative adds f to h. Its schema must be in [6, 8]; otherwise the rules of
// MergeExponential hold. On an error h is as it was.
func (h *Histogram) MergeNative(f Native) error {
	if f.Schema < Scale || f.Schema > maxNativeSchema {
		return fmt.Errorf("schema is %d, want %d to %d", f.Schema, Scale, maxNativeSchema)
	}
	if err := f.check(); err != nil {
		return err
	}
	h.RecordN(0, f.ZeroCount)
	var key, count int64
	deltas := f.Deltas
	for _, s := range f.Spans {
		key += int64(s.Offset)
		for range s.Length {
			count += deltas[0]
			deltas = deltas[1:]
			h.recordForeign((key-1)>>(f.Schema-Scale), uint64(count))
			key++
		}
	}
	return nil
}

// check verifies that the spans ascend and match the deltas, and that the counts
// are not negative and have a sum.
func (f Native) check() error {
	var buckets uint64
	for k, s := range f.Spans {
		if k > 0 && s.Offset < 0 {
			return fmt.Errorf("span %d: offset is %d, want at least 0 after the first", k, s.Offset)
		}
		buckets += uint64(s.Length)
	}
	if buckets != uint64(len(f.Deltas)) {
		return fmt.Errorf("deltas: there are %d, want %d as the spans say", len(f.Deltas), buckets)
	}
	var count int64
	total := f.ZeroCount
	for k, delta := range f.Deltas {
		if delta > 0 && count > math.MaxInt64-delta || count+delta < 0 {
			return fmt.Errorf("delta %d is %d after a count of %d, want counts of 0 to %d", k, delta, count, int64(math.MaxInt64))
		}
		count += delta
		if total+uint64(count) < total {
			return fmt.Errorf("deltas: sum is over %d at %d, want at most that", uint64(math.MaxUint64), k)
		}
		total += uint64(count)
	}
	return nil
}
