package estimator

import "time"

// Window is the last n sub-windows of a stream of samples and their total.
type Window struct{ total Sample }

func NewWindow(sub time.Duration, n int) *Window                { return new(Window) }
func (w *Window) Add(now time.Time, s *Sample)                  { w.total.Merge(s) }
func (w *Window) Advance(now time.Time)                         {}
func (w *Window) Total() *Sample                                { return &w.total }
func (w *Window) DropChanged(limit time.Duration) (dropped int) { return 0 }
