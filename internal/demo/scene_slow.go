package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// slowReplica makes one replica three times slower, waits for its probation,
// mends it, and waits for its release.
func slowReplica(ctx context.Context, s stage) ([]Figure, error) {
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	if err := sleep(ctx, 3*time.Second, func(done float64) { s.progress(0.2 * done) }); err != nil {
		return nil, err
	}
	sick := s.fleet.replicas[1]

	sick.slowDown(3)
	probation, err := s.replicaState(ctx, sick.name, []hedgedv1.ReplicaState{hedgedv1.ReplicaState_REPLICA_STATE_PROBATION}, func(d float64) { s.progress(0.2 + 0.2*d) })
	if err != nil {
		return nil, err
	}
	before := sick.seen()
	if err := sleep(ctx, 3*time.Second, func(done float64) { s.progress(0.4 + 0.1*done) }); err != nil {
		return nil, err
	}
	trickled := sick.seen() - before

	sick.slowDown(1)
	release, err := s.replicaState(ctx, sick.name, []hedgedv1.ReplicaState{hedgedv1.ReplicaState_REPLICA_STATE_RECOVERING, hedgedv1.ReplicaState_REPLICA_STATE_SERVING}, func(d float64) { s.progress(0.5 + 0.3*d) })
	if err != nil {
		return nil, err
	}
	serving, err := s.replicaState(ctx, sick.name, []hedgedv1.ReplicaState{hedgedv1.ReplicaState_REPLICA_STATE_SERVING}, func(d float64) { s.progress(0.8 + 0.2*d) })
	if err != nil {
		return nil, err
	}
	return []Figure{
		{"slower_by_factor", 3},
		{"probation_after_s", probation.Seconds()},
		{"calls_in_probation_per_s", float64(trickled) / 3},
		{"release_after_s", release.Seconds()},
		{"serving_after_s", (release + serving).Seconds()},
		{"failed_calls", float64(l.end().errors)},
	}, nil
}

// replicaState waits until a replica's state is one of those wanted, and says how long it took.
func (s stage) replicaState(ctx context.Context, name string, wanted []hedgedv1.ReplicaState, progress func(float64)) (time.Duration, error) {
	const limit = 60 * time.Second
	begun := time.Now()
	var last hedgedv1.ReplicaState
	for time.Since(begun) < limit {
		st, err := s.d.status(ctx, s.service)
		if err != nil {
			return 0, err
		}
		for _, r := range st.GetReplicas() {
			if r.GetReplica() == name {
				last = r.GetPolicy().GetState()
			}
		}
		if slices.Contains(wanted, last) {
			return time.Since(begun), nil
		}
		progress(float64(time.Since(begun)) / float64(limit))
		if err := sleep(ctx, 50*time.Millisecond, nil); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("replica %s is still %v after %v", name, last, limit)
}
