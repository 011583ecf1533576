package estimator

import (
	"testing"
	"time"
)

// A bucket fits the pair, whatever the latency.
func TestPairOfAnyLatencies(t *testing.T) {
	for _, d := range []time.Duration{-time.Hour, 0, 1, time.Millisecond, time.Hour, 10 * time.Hour} {
		if p := NewPair(d, 1); int(p.Primary) != Index(d) || int(p.Hedge) != Index(1) {
			t.Errorf("%v: got %+v, want the buckets %d and %d", d, p, Index(d), Index(1))
		}
	}
}
