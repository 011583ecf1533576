package estimator

import (
	"math"
	"time"
)

// Pair is what became of two attempts of one call that both ran to their ends:
// the buckets, as Index has them, of the primary's latency and of the first
// hedge's, each from its own dispatch. An attempt that ran into a limit counts
// with the time at which it was cut.
type Pair struct{ Primary, Hedge int16 }

// NewPair returns the pair of two latencies.
func NewPair(primary, hedge time.Duration) Pair {
	return Pair{Primary: int16(Index(primary)), Hedge: int16(Index(hedge))}
}

const (
	// A bin of Pairs is this many buckets: 2^(1/4), some 19%. That is enough for
	// a share of a few hundred pairs, and keeps a table small.
	pairBuckets = 16
	pairBins    = (MaxIndex+1-MinIndex)/pairBuckets + 1 // and that of zeros, the first
)

// Pairs is a table of pairs: how the latency of a second copy goes with that of
// the first. The zero value is empty and ready to use. Memory is 676 bytes for each
// bin of 19% that a primary's latency was in.
type Pairs struct {
	n    uint64
	rows [pairBins]*[pairBins]uint32 // by the primary's bin, then the hedge's
}

// Add counts a pair, whose buckets are what Index can return.
func (p *Pairs) Add(x Pair) {
	row := &p.rows[pairBin(int(x.Primary))]
	if *row == nil {
		*row = new([pairBins]uint32)
	}
	(*row)[pairBin(int(x.Hedge))]++
	p.n++
}

func pairBin(i int) int { return (i-MinIndex)>>4 + 1 }

// Count returns how many pairs were added.
func (p *Pairs) Count() uint64 { return p.n }

// Merge adds o to p.
func (p *Pairs) Merge(o *Pairs) {
	for i, from := range o.rows {
		if from == nil {
			continue
		}
		if p.rows[i] == nil {
			p.rows[i] = new([pairBins]uint32)
		}
		for j, n := range from {
			p.rows[i][j] += n
		}
	}
	p.n += o.n
}

// Within returns how many pairs have a primary that took longer than x, and the
// share of them whose hedge took no longer than y. Both are interpolated inside
// bins. Without such a pair the share is 0.
func (p *Pairs) Within(x, y time.Duration) (share, n float64) {
	first, above := pairPlace(x)
	last, beyond := pairPlace(y)
	within := 0.0
	for i := first; i < pairBins; i++ {
		row := p.rows[i]
		if row == nil {
			continue
		}
		weight := 1.0
		if i == first {
			weight = above
		}
		for j, c := range row {
			switch {
			case c == 0:
				continue
			case j < last:
				within += weight * float64(c)
			case j == last:
				within += weight * (1 - beyond) * float64(c)
			}
			n += weight * float64(c)
		}
	}
	if n == 0 {
		return 0, 0
	}
	return within / n, n
}

// pairPlace returns d's bin and the share of the bin that lies above d.
func pairPlace(d time.Duration) (bin int, above float64) {
	if d <= 0 {
		return 0, 0
	}
	i := pairBin(positiveIndex(d))
	end := MinIndex + i*pairBuckets // the bucket after the bin
	above = (float64(end) - math.Log2(d.Seconds())*perOctave) / pairBuckets
	return i, min(max(above, 0), 1)
}
