package sim

import (
	"fmt"
	"testing"
)

// The search finds what theory says: with 1% stalls of a second and 5% to spend,
// the best delay is a little below the 95th percentile of 5 to 15 ms, and every
// eligible call is hedged.
func TestOracle(t *testing.T) {
	t.Parallel()
	s := world(t, "latency uniform 5ms 15ms\nstall call 1%% 1s\narrivals poisson %d\nwarmup 0s\nduration 3s", sized(2500))
	o, err := FindOracle(t.Context(), NewPool(), s)
	if err != nil {
		t.Fatal(err)
	}
	p := o.Policy()
	r := play(t, s, p, 1)
	near(t, fmt.Sprintf("p99.9 of %s", p.Text), Millis(r.P999), 28.7, .05)
	if x := r.Extra(); !raceEnabled && (x > .055 || x < .03) {
		t.Errorf("extra load %.4f of %s, want at most about .05", x, p.Text)
	}
}
