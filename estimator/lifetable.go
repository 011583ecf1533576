package estimator

import "math"

// lifeTable walks the buckets of a Sample upward and keeps the Kaplan-Meier
// estimate of the share that survives them. In a bucket with n pending before it,
// d that end and c that are cancelled in it, those cancelled are at risk for half
// of it: r = n - c/2, and S is multiplied by 1 - d/r. Greenwood's variance is
// S^2 * sum of d / (r (r - d)).
//
// Where nothing is censored both products telescope, so S is counts alone there:
// exact, and an octave is one step.
type lifeTable struct {
	completed, censored *Histogram

	next    int     // first bucket not passed
	pending float64 // attempts that outlived what was passed

	// State after the last bucket with censored attempts, or before the first.
	base         float64 // S
	basePending  float64
	baseVariance float64 // Greenwood's sum
	cut          bool    // there was such a bucket
}

// newLifeTable returns a table that has passed the zeros. Attempts cancelled at
// zero tell nothing and are left out.
func newLifeTable(s *Sample) lifeTable {
	n := float64(s.Completed.total) + float64(s.Censored.total-s.Censored.zeros)
	t := lifeTable{
		completed: &s.Completed, censored: &s.Censored, next: MaxIndex + 1,
		base: 1, basePending: n, pending: n - float64(s.Completed.zeros),
	}
	for _, h := range []*Histogram{t.completed, t.censored} {
		if len(h.octaves) > 0 {
			t.next = min(t.next, h.low*perOctave)
		}
	}
	return t
}

// advance passes the buckets up to and with last.
func (t *lifeTable) advance(last int) {
	for t.next <= last {
		number, place := split(t.next)
		end := min(last-number*perOctave, perOctave-1)
		ended, cut := t.completed.at(number), t.censored.at(number)
		switch {
		case cut.n > 0:
			t.pass(ended.counts, cut.counts, place, end)
		case ended.n == 0:
		case place == 0 && end == perOctave-1:
			t.pending -= float64(ended.n)
		default:
			for _, n := range ended.counts[place : end+1] {
				t.pending -= float64(n)
			}
		}
		t.next = number*perOctave + end + 1
	}
}

// pass takes the places first to last of an octave in which some are censored;
// ended may be nil.
func (t *lifeTable) pass(ended, cut *[perOctave]uint64, first, last int) {
	for j := first; j <= last; j++ {
		var d float64
		if ended != nil {
			d = float64(ended[j])
		}
		c := float64(cut[j])
		if c == 0 {
			t.pending -= d
			continue
		}
		r := t.pending - c/2
		t.baseVariance = t.variance() + d/(r*(r-d))
		t.base = t.survival() * (1 - d/r)
		t.pending -= d + c
		t.basePending, t.cut = t.pending, true
	}
}

// survival is the estimated share of attempts that outlive what was passed.
func (t *lifeTable) survival() float64 {
	if t.basePending == 0 {
		return t.base
	}
	return t.base * t.pending / t.basePending
}

// variance is Greenwood's sum, the variance of the survival relative to its square.
func (t *lifeTable) variance() float64 {
	if t.pending == t.basePending {
		return t.baseVariance
	}
	return t.baseVariance + 1/t.pending - 1/t.basePending
}

// reached reports whether the share q of attempts ended in what was passed. While
// nothing is censored the ranks are those of Histogram.Quantile.
func (t *lifeTable) reached(q float64) bool {
	if !t.cut {
		n := uint64(t.basePending)
		return n > 0 && t.pending <= float64(n-rank(q, n))
	}
	return t.survival() <= (1-q)*(1+1e-12)
}

// thin reports whether the estimate in the bucket just passed, before which
// pending were at risk, rests on too few.
func (t *lifeTable) thin(pending float64) bool { return t.cut && pending < MinAtRisk }

// proportion is the survival as a count of survivors among n independent
// attempts, n being what gives Greenwood's variance: all of them while nothing is
// censored. n is 0 when nothing is known.
func (t *lifeTable) proportion() (survivors, n float64) {
	s := t.survival()
	switch {
	case t.pending == 0 && t.cut:
		return 0, 0
	case !t.cut:
		return t.pending, t.basePending
	case s == 1:
		return t.pending, t.pending
	}
	n = (1 - s) / (s * t.variance())
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, 0
	}
	return s * n, n
}
