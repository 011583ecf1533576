package client

import (
	"sync/atomic"

	"github.com/hedged-project/hedged/policy"
)

// liveReplica is one replica as one connection or transport sees it. Its name is
// its identity for as long as the resolver names it.
type liveReplica struct {
	name        string
	outstanding atomic.Int64 // attempts sent and not ended
}

// replicaSet is the replicas that an attempt may go to. The slice is never
// written again.
type replicaSet struct {
	replicas []*liveReplica

	seen atomic.Pointer[standings] // by the policy of the last choice
}

// standings is a set's replicas as one policy sees them.
type standings struct {
	policy     *policy.Policy // nil: none
	candidates []candidate
}

// candidate is a replica with its standing. Two candidates of one replica under
// one policy are equal, whichever set they are from.
type candidate struct {
	*liveReplica
	state policy.ReplicaState
	share float64
}

// Outstanding is part of hedge.Candidate.
func (c candidate) Outstanding() int64 { return c.outstanding.Load() }

// Standing is part of hedge.Candidate.
func (c candidate) Standing() (policy.ReplicaState, float64) { return c.state, c.share }

// candidates returns the replicas as pol sees them. Calls mostly share a policy,
// so the answer of the last choice is mostly right.
func (r *replicaSet) candidates(pol *policy.Policy) []candidate {
	if s := r.seen.Load(); s != nil && s.policy == pol {
		return s.candidates
	}
	s := &standings{policy: pol, candidates: make([]candidate, len(r.replicas))}
	for i, live := range r.replicas {
		s.candidates[i] = candidate{liveReplica: live}
		if pol == nil {
			continue
		}
		if standing, ok := pol.Replicas[live.name]; ok {
			s.candidates[i].state, s.candidates[i].share = standing.State, standing.Share
		}
	}
	r.seen.Store(s)
	return s.candidates
}
