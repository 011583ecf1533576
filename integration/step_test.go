package integration_test

import (
	"regexp"
	"testing"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// All latencies become three times longer under about 1,000 calls a second: the
// client says so ahead of its cadence, and soon has a delay that fits.
func TestStepInLatency(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir()) // at the cadence that everybody gets: a second
	d.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0)
	f := startFleet(t, "users")
	c := f.call(t, d.ready.GRPC, "client")
	end := c.load(t, 12)
	await(t, "it hedges", c.hedging)
	await(t, "3,000 calls", func() bool { return c.stats().Calls >= 3000 })
	before := c.stats().Delay[getUser]

	stepped := time.Now()
	f.slowDown(3)
	await(t, "the delay is twice what it was", func() bool { return c.stats().Delay[getUser] >= 2*before })
	took := time.Since(stepped)
	if _, err := end(); err != nil {
		t.Errorf("a call failed: %v", err)
	}
	t.Logf("delay %v; %v after the step %v", before, took.Round(time.Millisecond), c.stats().Delay[getUser])
	if took > 10*time.Second {
		t.Errorf("it took %v, want about a second", took)
	}
	metrics, err := d.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if early := regexp.MustCompile(`(?m)^hedged_report_frames_early_total (\d+)$`).FindStringSubmatch(metrics); len(early) != 2 || early[1] == "0" {
		t.Errorf("frames ahead of the cadence: %q, want some", early)
	}
	wantWithinBudget(t, c)
}
