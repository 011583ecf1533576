package goals

import (
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/sim"
)

const (
	sickReplica = "replica-4"
	sickFrom    = 20 * time.Second
	sickUntil   = 45 * time.Second
	sickEnd     = 66 * time.Second
)

// mixedPool is a pool whose clients and replicas are in two zones, and whose methods
// are unlike.
const mixedPool = "network 250us\nzones %s far 1ms\nmethod 20%% 3\nmethod 10%% 10"

// sickWorld is ten replicas of 100 calls a second, one of which is slow for a while.
func sickWorld(factor float64, clients int, more string) *sim.Scenario {
	return World(fmt.Sprintf("slow-%g-%d", factor, clients), `
		duration %v
		warmup   10s
		clients  %d
		arrivals poisson 1000
		latency  lognormal 10ms 0.5
		stall    call 1%% 500ms
		replicas 10
		routing  better-of-two
		at %v    slowdown %g replica 4
		at %v    slowdown 1 replica 4
		%s`, sickEnd, clients, sickFrom, factor, sickUntil, more)
}

// sickness is what a run's verdicts were.
type sickness struct {
	flagged, released time.Duration // 0: never
	early             bool          // released while it was slow
	windows, false    int           // of healthy replicas, a second each
	most              int           // replicas in probation at a time
}

func (s *sickness) decided(at time.Duration, d *control.Decision, status func() control.Status) {
	in := 0
	for name, r := range d.Policy.Replicas {
		if r.State == policy.ReplicaProbation {
			in++
		}
		if name != sickReplica && at%time.Second == 0 {
			s.false++
		}
	}
	s.most = max(s.most, in)
	if at%time.Second == 0 {
		s.windows += len(status().Replicas) - 1
	}
	r, out := d.Policy.Replicas[sickReplica]
	switch {
	case out && at < sickFrom:
		s.false++
	case out && s.flagged == 0:
		s.flagged = at - sickFrom
	case s.flagged > 0 && at > sickFrom && at < sickUntil && r.State != policy.ReplicaProbation:
		s.early = true
	case !out && s.flagged > 0 && at >= sickUntil && s.released == 0:
		s.released = at - sickUntil
	}
}

// sick runs a world and returns what was found in each seed.
func sick(b *Bench, s *sim.Scenario, seeds int) ([]sickness, error) {
	all := make([]sickness, seeds)
	_, err := b.Run(s, Hedged(), seeds, func(i int) sim.Probe { return sim.Probe{Decided: all[i].decided} })
	return all, err
}

// probation counts how soon, and how often wrongly, replicas are put into it.
func probation(b *Bench) ([]Check, error) {
	seeds := Pick(b, 40, 2)
	var flagged, released, early, wrong, windows, most float64
	var checks []Check
	for _, pool := range []struct {
		name, more string
		clients    int
	}{
		{"one client", "", 1},
		{"20 clients", "", 20},
		{"mixed", fmt.Sprintf(mixedPool, "50%"), 20},
		{"mixed, zones of unlike size", fmt.Sprintf(mixedPool, "80%"), 20},
	} {
		for _, factor := range []float64{1.5, 2, 5} {
			all, err := sick(b, sickWorld(factor, pool.clients, pool.more), seeds)
			if err != nil {
				return nil, err
			}
			worst := 0.0
			for _, s := range all {
				worst = max(worst, seconds(s.flagged))
				released = max(released, seconds(s.released))
				if s.early {
					early++
				}
				wrong += float64(s.false)
				windows += float64(s.windows)
			}
			flagged = max(flagged, worst)
			checks = append(checks, AtMost(fmt.Sprintf("%s, %g times", pool.name, factor), "s", Figure{Value: worst}, 4))
		}
	}
	three, err := sick(b, World("three", `
		duration 60s
		warmup   10s
		clients  20
		arrivals poisson 300
		latency  lognormal 10ms 0.5
		replicas 3
		routing  better-of-two
		at 20s   slowdown 3 replica 1
		at 22s   slowdown 3 replica 2`), seeds)
	for _, s := range three {
		most = max(most, float64(s.most))
	}
	return append([]Check{
		AtMost("flagged", "s", Figure{Value: flagged}, 4),
		AtMost("false", "", Figure{Value: wrong}, 0),
		AtMost("released", "s", Figure{Value: released}, 20),
		AtMost("released while slow", "", Figure{Value: early}, 0),
		AtMost("of three", "", Figure{Value: most}, 1),
		AtLeast("healthy replica-windows", "", Figure{Value: windows}, float64(Pick(b, 24_000, 1000))),
	}, checks...), err
}

// seconds of a time at which something happened; 0: it never did.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.Inf(1)
	}
	return d.Seconds()
}
