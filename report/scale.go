package report

import "math"

// Scaled returns r with all its counts multiplied by f, which must not be negative,
// as if so many more or fewer calls like them had been seen. Latencies stay, times
// too. See estimator.Histogram.MergeScaled for phase.
func (r *Report) Scaled(f, phase float64) *Report {
	out := *r
	out.Dropped = scaled(r.Dropped, f, phase)
	out.Methods = make(map[string]*Method, len(r.Methods))
	for name, m := range r.Methods {
		out.Methods[name] = m.scaled(f, phase)
	}
	return &out
}

func (m *Method) scaled(f, phase float64) *Method {
	out := &Method{
		Calls:           scaled(m.Calls, f, phase),
		Safe:            scaled(m.Safe, f, phase),
		Eligible:        scaled(m.Eligible, f, phase),
		Hedges:          scaled(m.Hedges, f, phase),
		CancelledUnsent: scaled(m.CancelledUnsent, f, phase),
		Wins:            scaled(m.Wins, f, phase),
		Failures:        scaled(m.Failures, f, phase),
		Observed:        scaled(m.Observed, f, phase),
		Pairs:           m.Pairs[:min(scaled(uint64(len(m.Pairs)), f, phase), uint64(len(m.Pairs)))],
		Replicas:        make(map[string]*Replica, len(m.Replicas)),
		Served:          m.Served,
	}
	for i, n := range m.Suppressed {
		out.Suppressed[i] = scaled(n, f, phase)
	}
	out.Hedged.MergeScaled(&m.Hedged, f, phase)
	out.Unhedged.MergeScaled(&m.Unhedged, f, phase)
	out.HeldOut.MergeScaled(&m.HeldOut, f, phase)
	for name, r := range m.Replicas {
		to := &Replica{Failed: scaled(r.Failed, f, phase)}
		to.Primary.MergeScaled(&r.Primary, f, phase)
		to.Hedge.MergeScaled(&r.Hedge, f, phase)
		out.Replicas[name] = to
	}
	return out
}

func scaled(n uint64, f, phase float64) uint64 {
	x := math.Floor(phase + f*float64(n))
	if x >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(x)
}
