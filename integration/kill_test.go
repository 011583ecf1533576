package integration_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// The daemon is killed 20 times at moments that chance picks, its start included,
// and started again on its ports, while clients call, operators change its mind,
// and every other time all calls become so slow that each of them would hedge. No
// call fails, no client spends more than its budget, and neither a client
// nor the daemon ever goes back to an older policy.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const kills = 20
	dir := t.TempDir()
	d := startDaemon(t, dir, "--cadence", "100ms")
	d.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0)
	f := startFleet(t, "users")
	var callers []*caller
	var ends []func() (int, error)
	for _, id := range []string{"client-1", "client-2"} {
		c := f.call(t, d.ready.GRPC, id)
		callers, ends = append(callers, c), append(ends, c.load(t, 4))
	}
	await(t, "all hedge", func() bool { return callers[0].hedging() && callers[1].hedging() })

	begun := time.Now()
	var newest policy.Generation // that the daemon or a client has had in force
	newer := func(g policy.Generation) bool {
		if g.Compare(newest) < 0 {
			return false
		}
		newest = g
		return true
	}
	up := d
	for round := range kills {
		if up != nil {
			// A durable word, and so a new generation, just before.
			up.admin = d.admin
			up.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, []float64{0.04, 0.05}[round%2])
			// Where nothing changed by it, the daemon learns from the clients that
			// they hold a policy which it had not saved.
			await(t, fmt.Sprintf("round %d: the daemon is at %v or above", round, newest), func() bool {
				g := up.status(t, "users").GetPolicy().GetGeneration()
				return newer(policy.Generation{Epoch: g.GetEpoch(), Number: g.GetNumber()})
			})
			time.Sleep(rand.N(800 * time.Millisecond)) // the moment is the test's input
			f.slowDown(float64(1 + 2*(round%2)))
			up.kill()
		}
		for _, c := range callers {
			newer(c.stats().Generation)
		}
		up = restart(t, dir, d, rand.N(2) == 0)
	}
	if up == nil {
		up = restart(t, dir, d, false)
	}
	up.admin = d.admin
	t.Cleanup(up.kill)
	t.Logf("%d kills in %v", kills, time.Since(begun).Round(time.Millisecond))

	up.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0.06)
	last := up.status(t, "users").GetPolicy().GetGeneration()
	if !newer(policy.Generation{Epoch: last.GetEpoch(), Number: last.GetNumber()}) {
		t.Errorf("afterwards the daemon is at %v, after %v", last, newest)
	}
	for i, c := range callers {
		await(t, "the client has what was said last", func() bool { return c.stats().Generation.Compare(newest) >= 0 })
		calls, err := ends[i]()
		if err != nil {
			t.Errorf("client %d: of %d calls one failed: %v", i+1, calls, err)
		}
		wantWithinBudget(t, c)
		policies, _ := c.applied()
		for j := 1; j < len(policies); j++ {
			if policies[j].Generation.Compare(policies[j-1].Generation) <= 0 {
				t.Errorf("client %d: %v came into force after %v", i+1, policies[j].Generation, policies[j-1].Generation)
			}
		}
		st := c.stats()
		if st.Hedges == 0 {
			t.Errorf("client %d never hedged", i+1)
		}
		t.Logf("client %d: %d calls, %d hedges (%.2f%%), %d policies up to %v",
			i+1, calls, st.Hedges, 100*float64(st.Hedges)/float64(calls), len(policies), st.Generation)
	}
	if len(newestEpochs(callers)) != 1 {
		t.Errorf("epochs %v, want one: the store was never damaged", newestEpochs(callers))
	}
}

// restart starts the daemon on the ports of the first one. With early it is
// killed again somewhere in its start, and nil returned.
func restart(t *testing.T, dir string, first *process, early bool) *process {
	t.Helper()
	if early {
		p, _, err := spawn(dir, first.ready.GRPC, first.ready.HTTP, "--cadence", "100ms")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(100 * time.Millisecond)) // the moment is the test's input
		p.kill()
		if p.err == nil || !strings.Contains(p.err.Error(), "killed") {
			t.Errorf("a daemon did not start: %v\n%s", p.err, p.log)
		}
		return nil
	}
	p, err := launch(dir, first.ready.GRPC, first.ready.HTTP, "--cadence", "100ms")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantWithinBudget holds the hard cap: hedges <= ratio * calls + burst, and what
// the client was started with.
func wantWithinBudget(t *testing.T, c *caller) {
	t.Helper()
	policies, _ := c.applied()
	var ratio, burst, start float64
	for _, p := range policies {
		ratio, burst, start = max(ratio, p.Budget.Ratio), max(burst, p.Budget.Burst), max(start, p.Budget.Start)
	}
	st := c.stats()
	if most := ratio*float64(st.Safe) + burst + start; float64(st.Hedges) > most {
		t.Errorf("%d hedges in %d calls, want at most %.1f: ratio %g, burst %g, start %g", st.Hedges, st.Safe, most, ratio, burst, start)
	}
}

func newestEpochs(callers []*caller) map[uint64]bool {
	epochs := map[uint64]bool{}
	for _, c := range callers {
		policies, _ := c.applied()
		for _, p := range policies {
			epochs[p.Generation.Epoch] = true
		}
	}
	return epochs
}
