package estimator

import (
	"math"
	"sync/atomic"
	"time"
)

// Recorder is a Histogram that many goroutines may record into. The zero value
// is empty and ready to use; it must not be copied. Memory is 256 bytes for each
// octave that holds a latency, allocated once.
type Recorder struct {
	zeros atomic.Uint32
	pages [numOctaves]atomic.Pointer[page]
}

type page [perOctave]atomic.Uint32

// full is where a bucket that nobody drains stops counting: so far below the end
// of 32 bits that concurrent recordings cannot pass it.
const full = math.MaxUint32 - 1<<20

// Record counts one latency, as Histogram.Record does. It never blocks, and
// allocates only for the first latency of an octave.
func (r *Recorder) Record(d time.Duration) {
	count := &r.zeros
	if d > 0 {
		i := positiveIndex(d)
		p := r.pages[i>>Scale-minOctave].Load()
		if p == nil {
			p = r.page(i>>Scale - minOctave)
		}
		count = &p[i&(perOctave-1)]
	}
	if count.Add(1) > full {
		count.Add(^uint32(0))
	}
}

func (r *Recorder) page(k int) *page {
	r.pages[k].CompareAndSwap(nil, new(page))
	return r.pages[k].Load()
}

// Drain moves what r holds to into, which only the caller may use. A latency
// recorded meanwhile is moved by this call or by the next, never by both.
func (r *Recorder) Drain(into *Histogram) {
	into.RecordN(0, take(&r.zeros))
	for k := range r.pages {
		p := r.pages[k].Load()
		if p == nil {
			continue
		}
		for j := range p {
			if n := take(&p[j]); n > 0 {
				into.recordIndex((minOctave+k)*perOctave+j, n)
			}
		}
	}
}

// take empties a count. Most are empty, and reading one is cheaper than swapping it.
func take(count *atomic.Uint32) uint64 {
	if count.Load() == 0 {
		return 0
	}
	return uint64(count.Swap(0))
}
