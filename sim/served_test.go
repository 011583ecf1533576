package sim

import (
	"testing"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

// Replicas tell how long they were busy with what was cancelled. Where they finish it
// while calls queue, hedges are costly; where they end it, or do not tell, nobody
// concludes so.
func TestReplicasTellOfWhatWasCancelled(t *testing.T) {
	for name, want := range map[string]struct{ tells, costly bool }{
		"cancel at-once":                {true, false},
		"cancel queued":                 {true, false},
		"cancel never":                  {true, true},
		"cancel never\nservers silent":  {false, false},
		"cancel never\nservers report":  {true, true},
		"cancel queued\nservers silent": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := world(t, `
arrivals poisson 127
latency lognormal 10ms 1
replicas 3 workers 1
routing random
duration 200s
%s`, name)
			var costly, tells bool
			_, err := Observe(t.Context(), s, under(t, "hedged"), 1, Probe{Decided: func(at time.Duration, d *control.Decision, status func() control.Status) {
				costly = costly || d.Policy.Reason.Code == policy.ReasonCostly
				tells = tells || at > 199*time.Second && status().Load.Server.Cancelled > 0
			}})
			if err != nil {
				t.Fatal(err)
			}
			if tells != want.tells || costly != want.costly {
				t.Errorf("replicas tell: %v, want %v; costly: %v, want %v", tells, want.tells, costly, want.costly)
			}
		})
	}
}
