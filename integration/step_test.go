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
	f.slowDown(6) // 30 to 90 ms, far above what a loaded machine adds
	c := f.call(t, d.ready.GRPC, "client")
	end := c.load(t, 80)
	delay := func() time.Duration { return c.stats().Delay[getUser] }
	await(t, "3,000 calls", func() bool { return c.stats().Calls >= 3000 })
	await(t, "the delay fits", func() bool { return c.hedging() && delay() < 180*time.Millisecond })
	before := delay()

	stepped := time.Now()
	f.slowDown(18) // 90 to 270 ms
	await(t, "the delay fits again", func() bool { return delay() > 200*time.Millisecond })
	took := time.Since(stepped)
	if _, err := end(); err != nil {
		t.Errorf("a call failed: %v", err)
	}
	t.Logf("delay %v; %v after the step %v", before, took.Round(time.Millisecond), delay())
	metrics, err := d.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if early := regexp.MustCompile(`(?m)^hedged_report_frames_early_total (\d+)$`).FindStringSubmatch(metrics); len(early) != 2 || early[1] == "0" {
		t.Errorf("frames ahead of the cadence: %q, want some", early)
	}
	wantWithinBudget(t, c)
}
