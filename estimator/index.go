package estimator

import (
	"math"
	"time"
)

// Scale is the resolution of every Histogram: 2^Scale buckets an octave. Bucket
// i holds the latencies in (g^i, g^(i+1)] seconds, g = 2^(2^-Scale), so that the
// quantile estimate is at most 0.542% off.
const Scale = 6

const (
	perOctave  = 1 << Scale
	minOctave  = -30 // holds 1 ns, the shortest positive time.Duration
	maxOctave  = 11  // ends at 4,096 s
	numOctaves = maxOctave - minOctave + 1
)

// Buckets that a Histogram has. MaxIndex also holds everything longer than its
// upper bound of 4,096 s (1 h 8 min); see Histogram.Clamped.
const (
	MinIndex = minOctave * perOctave
	MaxIndex = (maxOctave+1)*perOctave - 1
)

const (
	maxLatency   = (1 << (maxOctave + 1)) * time.Second
	mantissaBits = 52
	mantissaMask = 1<<mantissaBits - 1
	exponentBias = 1023

	// A slice is what the top Scale+1 bits of a mantissa pick: narrower than the
	// narrowest bucket, so that at most one boundary lies in it.
	sliceShift = mantissaBits - (Scale + 1)
	numSlices  = 1 << (Scale + 1)
)

// boundariesBelow[k] is how many boundaries lie below the start of slice k.
var boundariesBelow = func() (below [numSlices]uint8) {
	for k := range below {
		for _, b := range boundaries {
			if b < uint64(k)<<sliceShift {
				below[k]++
			}
		}
	}
	return below
}()

// Index returns the bucket that holds d. It takes no logarithm and is exact: a
// latency on a boundary belongs to the bucket below it. What is not positive
// belongs to no bucket but to the zero count, and is reported as MinIndex - 1.
func Index(d time.Duration) int {
	if d <= 0 {
		return MinIndex - 1
	}
	return positiveIndex(d)
}

// positiveIndex is Index of a d > 0.
func positiveIndex(d time.Duration) int {
	if d > maxLatency {
		return MaxIndex
	}
	bits := math.Float64bits(float64(d) / 1e9)
	mantissa := bits & mantissaMask
	j := uint64(boundariesBelow[mantissa>>sliceShift])
	j += (boundaries[j] - mantissa) >> 63 // one more if the mantissa is above it
	return (int(bits>>mantissaBits)-exponentBias)*perOctave + int(j) - 1
}

// Bounds returns the bounds of bucket i, which must be in [MinIndex, MaxIndex]:
// d is in it exactly when lower < d <= upper. Buckets below about 100 ns may hold
// no whole nanosecond; then the two are equal.
func Bounds(i int) (lower, upper time.Duration) {
	return boundary(i), boundary(i + 1)
}

// boundary is g^i seconds, rounded down to the nanosecond.
func boundary(i int) time.Duration {
	return time.Duration(boundarySeconds(i) * 1e9)
}

// boundarySeconds is g^i rounded down to a float64.
func boundarySeconds(i int) float64 {
	octave, j := split(i)
	return math.Float64frombits(uint64(octave+exponentBias)<<mantissaBits | boundaries[j])
}

// split returns the octave of a bucket and its place there.
func split(i int) (octave, place int) { return i >> Scale, i & (perOctave - 1) }

// typical is the estimate for a latency of which only the bucket is known: the
// value 2lu/(l+u) whose relative error is the same at both ends, l and u being
// the shortest and longest whole nanosecond of the bucket.
func typical(i int) time.Duration {
	lower, upper := Bounds(i)
	l, u := float64(lower+1), float64(upper)
	return time.Duration(math.Round(2 * l * u / (l + u)))
}

// shareAbove is the share of bucket i that lies above d, by interpolation in
// the logarithm of the latency. d must lie in the bucket.
func shareAbove(i int, d time.Duration) float64 {
	above := float64(i+1) - math.Log2(d.Seconds())*perOctave
	return min(max(above, 0), 1)
}
