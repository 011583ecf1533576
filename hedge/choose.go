package hedge

import (
	"slices"

	"github.com/hedged-project/hedged/policy"
)

// Candidate is what Choose must know of a replica. It is a constraint, not an
// interface value, so that a picker keeps a slice of its own type and choosing
// allocates nothing.
type Candidate interface {
	comparable
	// Outstanding returns how many attempts of this client it has not answered.
	Outstanding() int64
	// Standing returns its state and, for a replica that is not serving, which
	// share of its fair share of primaries it gets, 0 to 1.
	Standing() (policy.ReplicaState, float64)
}

// Untried reports whether a hedge has anywhere to go: without, do not take a
// token for it.
func Untried[C Candidate](replicas, tried []C) bool {
	for _, r := range replicas {
		if !slices.Contains(tried, r) {
			return true
		}
	}
	return false
}

// Choose picks the replica of an attempt. For a primary, tried is empty; for a
// hedge it holds the replicas of the call's earlier attempts, which are never
// chosen again. False: there is none left, so with one replica there is no
// hedge. random returns 64 random bits, as math/rand/v2.Uint64 does.
//
// Among serving replicas it takes the better of two random ones, by outstanding
// attempts. Nothing else about a replica counts, so a new one without any history
// is neither preferred nor shunned.
//
// A replica in probation, or recovering from it, gets exactly its share of its
// fair share of primaries, whatever it has outstanding: they measure it. A hedge
// goes there only when no serving replica is left untried, to a recovering one
// first. It does go there then, even with two replicas of which one is in
// probation: slow is better than stalled, and hedges are few.
func Choose[C Candidate](replicas, tried []C, random func() uint64) (C, bool) {
	if len(tried) == 0 && len(replicas) > 0 {
		r := replicas[below(len(replicas), random)]
		if state, share := r.Standing(); state != policy.ReplicaServing && coin(share, random) {
			return r, true
		}
	}
	for _, state := range [...]policy.ReplicaState{
		policy.ReplicaServing, policy.ReplicaRecovering, policy.ReplicaProbation,
	} {
		if r, ok := betterOfTwo(replicas, tried, state, random); ok {
			return r, true
		}
	}
	var none C
	return none, false
}

// betterOfTwo picks among the untried replicas in one state.
func betterOfTwo[C Candidate](replicas, tried []C, state policy.ReplicaState, random func() uint64) (best C, ok bool) {
	n := 0
	for _, r := range replicas {
		if usable(r, tried, state) {
			n++
		}
	}
	if n == 0 {
		return best, false
	}
	i := below(n, random)
	j := i
	if n > 1 {
		j = (i + 1 + below(n-1, random)) % n
	}
	var first, second C
	k := 0
	for _, r := range replicas {
		if !usable(r, tried, state) {
			continue
		}
		if k == i {
			first = r
		}
		if k == j {
			second = r
		}
		k++
	}
	if second.Outstanding() < first.Outstanding() {
		return second, true
	}
	return first, true
}

func usable[C Candidate](r C, tried []C, state policy.ReplicaState) bool {
	s, _ := r.Standing()
	return s == state && !slices.Contains(tried, r)
}

// below returns a random number in [0, n). Its bias, n in 2^32, does not matter.
func below(n int, random func() uint64) int {
	return int(random() >> 32 * uint64(n) >> 32)
}

// coin comes up with probability share.
func coin(share float64, random func() uint64) bool {
	return float64(random()>>11)/(1<<53) < share
}
