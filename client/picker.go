package client

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// errNoReplica fails a hedge that found every ready replica tried: the set
// changed after the hedge was decided on. It fails that attempt only, and being
// a status error it does so at once; ErrNoSubConnAvailable would block it to the
// call's deadline.
var errNoReplica = status.Error(codes.Unavailable, "hedged: no replica is ready that this call has not tried")

// picker chooses between the replicas that were ready when it was made. Its
// slices are never written again.
type picker struct {
	balancer *replicaBalancer
	replicas []*liveReplica
	children []balancer.Picker // by replica: the endpoint's own connection

	seen atomic.Pointer[standings] // by the policy of the last pick
}

// standings is a picker's replicas as one policy sees them.
type standings struct {
	policy     *policy.Policy // nil: none
	candidates []candidate
}

// candidate is a replica with its standing. Two candidates of one replica under
// one policy are equal, whichever picker they are from.
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
// so the answer of the last pick is mostly right.
func (p *picker) candidates(pol *policy.Policy) []candidate {
	if s := p.seen.Load(); s != nil && s.policy == pol {
		return s.candidates
	}
	s := &standings{policy: pol, candidates: make([]candidate, len(p.replicas))}
	for i, r := range p.replicas {
		s.candidates[i] = candidate{liveReplica: r}
		if pol == nil {
			continue
		}
		if standing, ok := pol.Replicas[r.name]; ok {
			s.candidates[i].state, s.candidates[i].share = standing.State, standing.Share
		}
	}
	p.seen.Store(s)
	return s.candidates
}

// Pick sends an attempt to the better of two replicas, never to one that its
// call has tried. What carries no attempt, such as a stream, is picked for alike
// but under no policy.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	a := attemptOf(info)
	chosen, err := p.choose(a)
	if err != nil {
		return balancer.PickResult{}, err
	}
	result, err := p.children[slices.Index(p.replicas, chosen.liveReplica)].Pick(info)
	if err != nil {
		if a != nil {
			a.unpick()
		}
		return result, err
	}
	chosen.outstanding.Add(1)
	childDone := result.Done
	result.Done = func(done balancer.DoneInfo) {
		chosen.outstanding.Add(-1)
		if a != nil {
			a.done(done)
		}
		if childDone != nil {
			childDone(done)
		}
	}
	return result, nil
}

func (p *picker) choose(a *attempt) (candidate, error) {
	if a == nil {
		chosen, ok := hedge.Choose(p.candidates(nil), nil, rand.Uint64)
		if !ok {
			return candidate{}, errNoReplica
		}
		return chosen, nil
	}
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balancer = p.balancer
	candidates := p.candidates(c.policy)
	chosen, ok := hedge.Choose(candidates, c.tried(a), rand.Uint64)
	if !ok && a.index == 0 {
		// grpc picks once more for a primary whose stream no server took. It
		// goes somewhere, whatever its hedges have tried meanwhile.
		chosen, ok = hedge.Choose(candidates, nil, rand.Uint64)
	}
	if !ok {
		a.replica, a.stranded = candidate{}, a.index > 0
		return candidate{}, errNoReplica
	}
	a.replica, a.sent = chosen, true
	return chosen, nil
}
