// Package estimator holds mergeable, streaming estimates of latency.
package estimator

import "time"

// Histogram counts latencies in base-2 exponential buckets.
type Histogram struct{ n uint64 }

func (h *Histogram) Record(d time.Duration)                     {}
func (h *Histogram) RecordN(d time.Duration, n uint64)          {}
func (h *Histogram) Merge(o *Histogram)                         {}
func (h *Histogram) Count() uint64                              { return h.n }
func (h *Histogram) Reset()                                     {}
func (h *Histogram) Quantile(q float64) (time.Duration, bool)   { return 0, false }
func (h *Histogram) Exceedance(d time.Duration) (float64, bool) { return 0, false }
func (h *Histogram) AppendBinary(b []byte) ([]byte, error)      { return b, nil }
func (h *Histogram) UnmarshalBinary(b []byte) error             { return nil }

// Recorder is a Histogram that many goroutines may record into; Drain moves what it holds.
type Recorder struct{}

func (r *Recorder) Record(d time.Duration) {}
func (r *Recorder) Drain(into *Histogram)  {}

// Sample is what is known of a set of attempts: those that ended, and those
// that were cancelled, of which only a lower bound is known.
type Sample struct {
	Completed Histogram
	Censored  Histogram
}

func (s *Sample) Merge(o *Sample)                            {}
func (s *Sample) Count() uint64                              { return 0 }
func (s *Sample) Quantile(q float64) (time.Duration, bool)   { return 0, false }
func (s *Sample) Exceedance(d time.Duration) (float64, bool) { return 0, false }

// Window is the last n sub-windows of a stream of samples and their total.
type Window struct{}

func NewWindow(sub time.Duration, n int) *Window                { return nil }
func (w *Window) Add(now time.Time, s *Sample)                  {}
func (w *Window) Advance(now time.Time)                         {}
func (w *Window) Total() *Sample                                { return nil }
func (w *Window) DropChanged(limit time.Duration) (dropped int) { return 0 }
