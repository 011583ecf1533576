package estimator

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestRecorderEqualsHistogram(t *testing.T) {
	all := append(lognormal(3, 2000), -5, 0, 1, math.MaxInt64)
	var r Recorder
	for _, d := range all {
		r.Record(d)
	}
	got := new(Histogram)
	r.Drain(got)
	expectSame(t, "drained", got, histogramOf(all...))
	r.Drain(got)
	expectSame(t, "drained again", got, histogramOf(all...))
}

// What is recorded while others drain is moved exactly once.
func TestRecorderLosesNothingWhileDrained(t *testing.T) {
	const writers, each = 4, 20_000
	all := lognormal(4, each)
	var r Recorder
	var writing, draining sync.WaitGroup
	done := make(chan struct{})
	got := new(Histogram)
	draining.Go(func() {
		for {
			r.Drain(got)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range writers {
		writing.Go(func() {
			for _, d := range all {
				r.Record(d)
			}
		})
	}
	writing.Wait()
	close(done)
	draining.Wait()
	r.Drain(got)
	want := new(Histogram)
	for range writers {
		want.Merge(histogramOf(all...))
	}
	expectSame(t, "drained", got, want)
}

func TestRecorderSaturates(t *testing.T) {
	var r Recorder
	r.Record(0)
	r.Record(time.Second)
	r.zeros.Store(full)
	octave, place := split(Index(time.Second))
	r.pages[octave-minOctave].Load()[place].Store(full)
	for range 3 {
		r.Record(0)
		r.Record(time.Second)
	}
	got := new(Histogram)
	r.Drain(got)
	if got.Count() != 2*full || got.Zeros() != full {
		t.Errorf("count %d, zeros %d, want %d, %d", got.Count(), got.Zeros(), uint64(2*full), uint64(full))
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	var r Recorder
	r.Record(time.Second)
	if n := testing.AllocsPerRun(1000, func() { r.Record(time.Second); r.Record(-1) }); n != 0 {
		t.Errorf("Record allocates %v times, want none", n)
	}
}
