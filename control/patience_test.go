package control

import (
	"slices"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Evidence of a window that is slow, looks healthy, or is between the two.
var (
	slowWindow    = evidence{known: 100, score: 160, expected: 95, variance: 100, clearly: 60, pools: 40}
	healthyWindow = evidence{known: 100, score: 90, expected: 85, variance: 100, clearly: 30, pools: 40}
	weakWindow    = evidence{known: 100, score: 122, expected: 85, variance: 100, clearly: 55, pools: 40}
	chanceWindow  = evidence{known: 100, score: 115, expected: 85, variance: 100, clearly: 50, pools: 40}
	unclearWindow = evidence{known: 100, score: 110, expected: 85, variance: 100, clearly: 50, pools: 40}
	smallWindow   = evidence{known: 1000, score: 1250, expected: 850, variance: 1000, clearly: 390, pools: 400}
)

func (p *patience) observeAll(r *run, n int, e evidence) {
	for range n {
		p.observe(r, e)
	}
}

// A run grows by slow windows and shrinks by healthy ones; where it is gone it
// has passed, and longer ones are asked for.
func TestRunsThatPassAskForLongerOnes(t *testing.T) {
	if !slowWindow.slow() || !healthyWindow.healthy() || unclearWindow.slow() || unclearWindow.healthy() {
		t.Fatal("the windows are not what they are called")
	}
	var p patience
	var r run
	within(t, "needed at first", p.needs(0), slowWindows, slowWindows)
	within(t, "needed of one that was in probation", p.needs(1), 1, 1)

	p.observeAll(&r, 2, slowWindow)
	p.observeAll(&r, 5, unclearWindow)
	p.observeAll(&r, 1, healthyWindow)
	p.observeAll(&r, 1, slowWindow)
	within(t, "run of 2, 5 that are unclear, 1 healthy, 1 slow", r.length, 7, 7)
	within(t, "needed while it lasts", p.needs(0), slowWindows, slowWindows)
	p.observeAll(&r, 7, healthyWindow)
	within(t, "needed after it passed", p.needs(0), 9, 9)
	within(t, "needed of one that was in probation", p.needs(1), 4, 4)
	within(t, "needed of one that was there five times", p.needs(5), 1, 1)

	p.observeAll(&r, 1, slowWindow)
	p.observeAll(&r, 1, healthyWindow)
	within(t, "needed after a shorter one", p.needs(0), 9, 9)

	for range patienceWindows {
		p.tick()
	}
	within(t, "needed when none passed for long", p.needs(0), slowWindows, slowWindows)
}

// Windows of which none is slow by itself are enough together, and windows of
// chance are not, nor do they teach patience when they pass.
func TestRunsAreJudgedBySum(t *testing.T) {
	for _, c := range []struct {
		name     string
		windows  []evidence
		persists bool
	}{
		{"three slow", []evidence{slowWindow, slowWindow, slowWindow}, true},
		{"two slow", []evidence{slowWindow, slowWindow}, false},
		{"three with z 3.7", []evidence{weakWindow, weakWindow, weakWindow}, true},
		{"one healthy among them", []evidence{weakWindow, healthyWindow, weakWindow, weakWindow}, false},
		{"three with z 3", []evidence{chanceWindow, chanceWindow, chanceWindow}, false},
		{"thirty that the floors explain", slices.Repeat([]evidence{smallWindow}, 30), false},
	} {
		var p patience
		var r run
		for _, e := range c.windows {
			p.observe(&r, e)
		}
		if got := r.persists(slowWindows); got != c.persists {
			t.Errorf("%s: enough %v, want %v (z %.1f)", c.name, got, c.persists, r.sum.z())
		}
	}
	var p patience
	var r run
	p.observeAll(&r, 2, weakWindow)
	p.observeAll(&r, 2, healthyWindow)
	within(t, "needed after chance passed", p.needs(0), slowWindows, slowWindows)
	if r != (run{}) {
		t.Errorf("%+v is left of a run that passed", r)
	}
}

// A replica that only the cap keeps in service is sick for an hour, and recovers.
// That must not make the next sick one wait for an hour, whatever happens then.
func TestLongRunsTeachLittle(t *testing.T) {
	var p patience
	var r run
	p.observeAll(&r, 3600, slowWindow)
	p.observeAll(&r, 3600, healthyWindow)
	within(t, "needed after one", p.needs(0), 9, 9)
	for range 10 {
		p.observeAll(&r, 3600, slowWindow)
		p.observeAll(&r, 3600, healthyWindow)
	}
	within(t, "needed after ten more", p.needs(0), 60, 60)
}

// Load alone made a replica slow: with only a trickle of calls it looks healthy at
// once. Its ejection was for nothing, and one as short does not follow, neither
// while its share grows nor in service.
func TestEjectionForNothingIsNotRepeated(t *testing.T) {
	p := newProbation()
	now := epoch
	step := func(at time.Duration, n uint64) {
		sick(p, now, at, n)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	for range slowWindows {
		step(60*time.Millisecond, 60)
	}
	r := p.replicas["3"]
	if r.state != policy.ReplicaProbation {
		t.Fatalf("after %d slow windows: %v, want probation", slowWindows, r.state)
	}
	for r.state == policy.ReplicaProbation {
		step(0, 20)
	}
	within(t, "out for", now.Sub(epoch), firstStay, soonReleased+slowWindows*windowTime)
	step(60*time.Millisecond, 60)
	if r.state != policy.ReplicaRecovering {
		t.Errorf("slow in one window while its share grew: %v, want recovering", r.state)
	}
	for r.state != policy.ReplicaServing {
		step(0, 60)
	}
	need := p.patience.needs(r.doublings)
	if need <= slowWindows {
		t.Errorf("needs %d slow windows the second time, want more than the %d of the first", need, slowWindows)
	}
	for range need - 1 {
		step(60*time.Millisecond, 60)
	}
	if r.state != policy.ReplicaServing {
		t.Errorf("slow for as long as the first time and no longer: %v, want serving", r.state)
	}
	step(60*time.Millisecond, 60)
	if r.state != policy.ReplicaProbation {
		t.Errorf("slow in %d windows running: %v, want probation", need, r.state)
	}
}

// On its way back a replica gets few calls: each counts in one window only.
func TestSamplesCountOnceOnTheWayBack(t *testing.T) {
	p := newProbation()
	p.patience.pass(2)
	r := p.find("3")
	r.doublings = 1
	r.enter(epoch, policy.ReplicaRecovering, recoverFrom, "")
	now, windows := epoch, 0
	for r.state == policy.ReplicaRecovering && windows < 100 {
		sick(p, now, 60*time.Millisecond, minJudged/2)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
		windows++
	}
	need := 2 * p.patience.needs(1)
	within(t, "windows of half the samples that count", windows, need, need)
}

// What a replica did before it was silent is not part of a run after it.
func TestSilenceEndsARun(t *testing.T) {
	p := newProbation()
	now := epoch
	for _, n := range []uint64{60, 60, 0, 60} {
		sick(p, now, 60*time.Millisecond, n)
		now = now.Add(windowTime)
		p.tick(now, .34, 200)
	}
	if r := p.replicas["3"]; r.state != policy.ReplicaServing {
		t.Errorf("slow in two windows, silent in one, slow in one: %v, want serving", r.state)
	}
}
