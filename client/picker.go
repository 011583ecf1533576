package client

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/hedge"
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
	replicaSet
	children []balancer.Picker // by replica: the endpoint's own connection
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
	c.service.noteConfig(p.balancer)
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
