package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

// A replica's standing, and what moves it:
//
//	             a run of slow windows, and room under the cap
//	SERVING ------------------------------------------------------------> PROBATION
//	   ^                                                                   |     ^
//	   | share reached 1                  minimum stay over, and 100 fresh |     | a run of
//	   |                                  samples that look healthy        v     | slow windows
//	   +--------------------------------------------------------------- RECOVERING
//
// A run is 3 windows, 1 for a known offender, and more where runs pass by
// themselves: see patience. Time alone moves nothing: without samples a replica stays what it is.
const (
	// Release takes this many samples: ten could pass a replica of 1.5 times the
	// latency one time in three.
	releaseSamples = 100

	// Shares on the way back: recoverFrom, then doubled by each healthy window.
	recoverFrom = 0.25

	// Minimum stay in probation: firstStay, doubled by each relapse up to
	// maxDoublings times. Each forgiveWindows healthy windows in service undo one.
	firstStay      = 5 * time.Second
	maxDoublings   = 6
	forgiveWindows = 30
)

// replica is what is known of one replica.
type replica struct {
	name     string
	lastSeen time.Time
	latency  *estimator.Window // of primaries, for display

	state     policy.ReplicaState
	share     float64
	reason    string
	since     time.Time // of state; zero: restored, the first window sets it
	run       run       // of slow windows, in service or recovering
	ejected   int       // length of the run for which it is in probation
	good      int       // healthy windows since the last forgiveness, in service
	doublings int
	fresh     []evidence // windows since the last transition, oldest first

	ended, failed uint64 // attempts in the window under way
}

// enter makes the replica start anew in state. Nothing that was gathered for
// one state speaks in the next.
func (r *replica) enter(now time.Time, state policy.ReplicaState, share float64, reason string) {
	r.state, r.share, r.reason, r.since = state, share, reason, now
	r.run, r.ejected, r.good, r.fresh = run{}, 0, 0, nil
}

func (r *replica) stay() time.Duration {
	return firstStay << max(r.doublings-1, 0)
}

// recent is the sum of the newest fresh windows that hold enough samples; older
// ones are forgotten.
func (r *replica) recent(enough float64) evidence {
	var sum evidence
	for i := len(r.fresh) - 1; i >= 0; i-- {
		sum.add(r.fresh[i])
		if sum.known >= enough {
			r.fresh = slices.Delete(r.fresh, 0, i)
			break
		}
	}
	return sum
}

// move applies one window's evidence to a replica, except that it enters no
// probation from normal service: see eject.
func (r *replica) move(now time.Time, e evidence, trickle float64, p *patience) {
	if r.since.IsZero() {
		r.since = now
	}
	// Fast failures are not low latency: a window of mostly failures proves nothing.
	proves := r.failed <= r.ended
	switch r.state {
	case policy.ReplicaServing:
		switch {
		case r.ended == 0:
			r.run = run{}
		case e.judged():
			p.observe(&r.run, e)
		}
		if e.judged() && proves && e.healthy() && r.doublings > 0 {
			if r.good++; r.good >= forgiveWindows {
				r.good = 0
				r.doublings--
			}
		}
	case policy.ReplicaProbation:
		if e.known > 0 && proves {
			r.fresh = append(r.fresh, e)
		}
		sum := r.recent(releaseSamples)
		if sum.known >= releaseSamples && sum.healthy() && now.Sub(r.since) >= r.stay() {
			if now.Sub(r.since) <= soonReleased {
				p.pass(r.ejected)
			}
			r.enter(now, policy.ReplicaRecovering, recoverFrom, sum.String())
		} else {
			r.share = steadied(r.share, trickle, keepFactor, false)
		}
	case policy.ReplicaRecovering:
		if e.known > 0 && proves {
			r.fresh = append(r.fresh, e)
		}
		sum := r.recent(minJudged)
		switch {
		case sum.slow():
			p.observe(&r.run, sum)
			r.fresh = nil
			if r.run.length >= p.needs(r.doublings) {
				r.relapse(now, trickle, sum)
			}
		case sum.judged() && sum.healthy():
			if share := 2 * r.share; share < 1 {
				r.enter(now, policy.ReplicaRecovering, share, sum.String())
			} else {
				r.enter(now, policy.ReplicaServing, 1, "")
			}
		}
	}
}

// relapse puts the replica into probation, for twice as long as the last time.
func (r *replica) relapse(now time.Time, share float64, e evidence) {
	r.doublings = min(r.doublings+1, maxDoublings)
	length := r.run.length
	r.enter(now, policy.ReplicaProbation, share, fmt.Sprintf("%v, a run of %d slow windows", &e, length))
	r.ejected = length
}

func (r *replica) status(now time.Time) ReplicaStatus {
	r.latency.Advance(now)
	total := r.latency.Total()
	return ReplicaStatus{
		Name:    r.name,
		Policy:  policy.Replica{State: r.state, Share: r.share, Reason: r.reason},
		Samples: total.Count(),
		P50:     quantile(total, .5),
		P95:     quantile(total, .95),
	}
}
