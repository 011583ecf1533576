package estimator

import (
	"iter"
	"math"
	"time"
)

// Histogram counts latencies in the buckets that Index describes. The zero
// value is empty and ready to use. Memory is 512 bytes for each octave between
// the shortest and the longest latency that has one, allocated when first needed.
//
// Counts saturate: what would take the total above 2^64 - 1 is left out. It is
// not safe for concurrent use (see Recorder), and must not be copied after first
// use (see Clone).
type Histogram struct {
	total   uint64 // zeros and all octaves
	zeros   uint64
	low     int // octave of octaves[0]
	octaves []octave
}

// octave is the buckets between two powers of two; counts is nil while n is zero
// and none was ever counted.
type octave struct {
	n      uint64
	counts *[perOctave]uint64
}

// Record counts one latency. A d that is not positive, as a stepped clock makes
// it, counts as zero; one above 4,096 s goes to the top bucket.
func (h *Histogram) Record(d time.Duration) { h.RecordN(d, 1) }

// RecordN counts n latencies of d each.
func (h *Histogram) RecordN(d time.Duration, n uint64) {
	if d > 0 {
		h.recordIndex(positiveIndex(d), n)
		return
	}
	n = h.room(n)
	h.total += n
	h.zeros += n
}

// room returns as much of n as the total can take.
func (h *Histogram) room(n uint64) uint64 { return min(n, math.MaxUint64-h.total) }

// recordIndex counts n in bucket i.
func (h *Histogram) recordIndex(i int, n uint64) {
	if n = h.room(n); n == 0 {
		return
	}
	h.total += n
	o := h.octave(i >> Scale)
	o.n += n
	o.counts[i&(perOctave-1)] += n
}

// octave returns the place of an octave, with memory for its counts.
func (h *Histogram) octave(number int) *octave {
	at := number - h.low
	if uint(at) >= uint(len(h.octaves)) || h.octaves[at].counts == nil {
		return h.grow(number)
	}
	return &h.octaves[at]
}

func (h *Histogram) grow(number int) *octave {
	switch {
	case len(h.octaves) == 0:
		h.low = number
		h.octaves = append(h.octaves, octave{})
	case number < h.low:
		wider := make([]octave, h.low-number+len(h.octaves))
		copy(wider[h.low-number:], h.octaves)
		h.low, h.octaves = number, wider
	}
	for number-h.low >= len(h.octaves) {
		h.octaves = append(h.octaves, octave{})
	}
	o := &h.octaves[number-h.low]
	if o.counts == nil {
		o.counts = new([perOctave]uint64)
	}
	return o
}

// at returns the octave of that number, empty where h has none.
func (h *Histogram) at(number int) octave {
	if at := number - h.low; uint(at) < uint(len(h.octaves)) {
		return h.octaves[at]
	}
	return octave{}
}

// Merge adds o to h. The result does not depend on the order or grouping of
// merges, unless the counts saturate.
func (h *Histogram) Merge(o *Histogram) {
	if o.total > math.MaxUint64-h.total {
		h.mergeSaturating(o)
		return
	}
	h.total += o.total
	h.zeros += o.zeros
	for k := range o.octaves {
		from := &o.octaves[k]
		if from.n == 0 {
			continue
		}
		to := h.octave(o.low + k)
		to.n += from.n
		for j, n := range from.counts {
			to.counts[j] += n
		}
	}
}

func (h *Histogram) mergeSaturating(o *Histogram) {
	h.RecordN(0, o.zeros)
	for i, n := range o.Buckets() {
		h.recordIndex(i, n)
	}
}

// MergeScaled adds o to h with all its counts multiplied by f, which must not be
// negative. Of any so many of o's shortest latencies floor(phase + f * count) are
// added. Where f is far below 1, give each call another phase in [0, 1), or the same
// ranks are added each time.
func (h *Histogram) MergeScaled(o *Histogram, f, phase float64) {
	due, added := phase, 0.0
	next := func(n uint64) uint64 {
		due += f * float64(n)
		scaled := math.Floor(due) - added
		added += scaled
		if scaled >= math.MaxUint64 {
			return math.MaxUint64
		}
		return uint64(scaled)
	}
	h.RecordN(0, next(o.zeros))
	for i, n := range o.Buckets() {
		h.recordIndex(i, next(n))
	}
}

// Subtract takes o from h. A bucket in which o has more than h becomes empty.
func (h *Histogram) Subtract(o *Histogram) {
	zeros := min(h.zeros, o.zeros)
	h.zeros -= zeros
	h.total -= zeros
	for k := range o.octaves {
		if o.octaves[k].n == 0 {
			continue
		}
		at := o.low + k - h.low
		if uint(at) >= uint(len(h.octaves)) || h.octaves[at].n == 0 {
			continue
		}
		to := &h.octaves[at]
		var taken uint64
		for j, n := range o.octaves[k].counts {
			n = min(n, to.counts[j])
			to.counts[j] -= n
			taken += n
		}
		to.n -= taken
		h.total -= taken
	}
}

// Count returns how many latencies were recorded, zeros included.
func (h *Histogram) Count() uint64 { return h.total }

// Zeros returns how many of them were not positive.
func (h *Histogram) Zeros() uint64 { return h.zeros }

// Clamped returns how many of them are in the top bucket, MaxIndex, whose
// estimates are too low for what was longer than 4,096 s.
func (h *Histogram) Clamped() uint64 {
	if o := h.at(maxOctave); o.n > 0 {
		return o.counts[perOctave-1]
	}
	return 0
}

// Reset empties h and keeps its memory.
func (h *Histogram) Reset() {
	h.total, h.zeros = 0, 0
	for k := range h.octaves {
		if o := &h.octaves[k]; o.n > 0 {
			o.n = 0
			clear(o.counts[:])
		}
	}
}

// Clone returns a copy that shares nothing with h.
func (h *Histogram) Clone() *Histogram {
	c := new(Histogram)
	c.Merge(h)
	return c
}

// Buckets yields the buckets that hold something and their counts, in ascending
// order. The zeros are in none. h must not change meanwhile.
func (h *Histogram) Buckets() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for k := range h.octaves {
			if h.octaves[k].n == 0 {
				continue
			}
			first := (h.low + k) * perOctave
			for j, n := range h.octaves[k].counts {
				if n > 0 && !yield(first+j, n) {
					return
				}
			}
		}
	}
}

// Quantile returns an estimate of the latency of rank ceil(q * Count), at most
// 0.542% off, and half a nanosecond, up to 4,096 s. It returns false if h is empty
// or q is not in [0, 1].
func (h *Histogram) Quantile(q float64) (time.Duration, bool) {
	if h.total == 0 || !(q >= 0 && q <= 1) {
		return 0, false
	}
	before, r := h.zeros, rank(q, h.total)
	if before >= r {
		return 0, true
	}
	for k := range h.octaves {
		o := &h.octaves[k]
		if before+o.n < r {
			before += o.n
			continue
		}
		for j, n := range o.counts {
			if before += n; before >= r {
				return typical((h.low+k)*perOctave + j), true
			}
		}
	}
	return 0, false
}

// rank is ceil(q * n), in [1, n]. The product is taken a trifle smaller so that
// its rounding error, as in 0.07 * 100 > 7, does not move the rank.
func rank(q float64, n uint64) uint64 {
	r := math.Ceil(q * float64(n) * (1 - 1e-12))
	if r >= float64(n) {
		return n
	}
	return max(uint64(r), 1)
}

// Exceedance returns the share of latencies longer than d, interpolated inside
// d's bucket. It returns false if h is empty.
func (h *Histogram) Exceedance(d time.Duration) (float64, bool) {
	switch {
	case h.total == 0:
		return 0, false
	case d < 0:
		return 1, true
	case d == 0:
		return float64(h.total-h.zeros) / float64(h.total), true
	case d >= maxLatency:
		return 0, true
	}
	i := positiveIndex(d)
	above, inside := h.above(i)
	return (float64(above) + float64(inside)*shareAbove(i, d)) / float64(h.total), true
}

// above returns the counts of the buckets above i and of i itself.
func (h *Histogram) above(i int) (above, inside uint64) {
	number, place := split(i)
	for k := max(number+1-h.low, 0); k < len(h.octaves); k++ {
		above += h.octaves[k].n
	}
	if o := h.at(number); o.n > 0 {
		inside = o.counts[place]
		for _, n := range o.counts[place+1:] {
			above += n
		}
	}
	return above, inside
}
