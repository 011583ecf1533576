package client

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/hedged-project/hedged/policy"
)

// What callers waited for goes by whether their call was hedged; of those that
// were not, the coin's are told apart.
func TestWhatCallersWaitedFor(t *testing.T) {
	slow := func(ctx context.Context, replica string, index int, reply any) error {
		return answer(ctx, 20*ms, replica, reply)
	}
	tests := map[string]struct {
		policy                    func(*policy.Policy)
		hedged, unhedged, heldOut uint64
	}{
		"hedged":   {func(*policy.Policy) {}, 1, 0, 0},
		"prompt":   {func(p *policy.Policy) { p.Default.Delay = 25 * ms }, 0, 0, 0},
		"held out": {func(p *policy.Policy) { p.Default.Probability = 1e-300 }, 0, 1, 1},
		"paused":   {func(p *policy.Policy) { p.Default.Probability = 0 }, 0, 1, 0},
		"budget":   {func(p *policy.Policy) { p.Budget = policy.Budget{Burst: 1} }, 0, 1, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newStub(testService(t, testPolicy(tt.policy)), slow, "a", "b")
				if _, err := n.call(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				m := n.service.drain(n.start).Methods[testMethod]
				if h, u, o := m.Hedged.Count(), m.Unhedged.Count(), m.HeldOut.Count(); h != tt.hedged || u != tt.unhedged || o != tt.heldOut {
					t.Errorf("%d hedged, %d not, of which %d held out; want %d, %d, %d", h, u, o, tt.hedged, tt.unhedged, tt.heldOut)
				}
				if m := n.service.drain(n.start).Methods; m != nil {
					t.Errorf("a second drain holds %v, want nothing", m)
				}
			})
		})
	}
}
