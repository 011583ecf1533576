package estimator

import "time"

// Sample is what is known of a set of attempts.
type Sample struct {
	Completed Histogram
	Censored  Histogram
}

func (s *Sample) Merge(o *Sample)                            { s.Completed.Merge(&o.Completed); s.Censored.Merge(&o.Censored) }
func (s *Sample) Count() uint64                              { return s.Completed.Count() + s.Censored.Count() }
func (s *Sample) Quantile(q float64) (time.Duration, bool)   { return s.Completed.Quantile(q) }
func (s *Sample) Exceedance(d time.Duration) (float64, bool) { return s.Completed.Exceedance(d) }
