package hedge

import (
	"slices"

	"github.com/hedged-project/hedged/policy"
)

// Candidate is what Choose must know of a replica.
type Candidate interface {
	comparable
	// Outstanding returns how many attempts of this client it has not answered.
	Outstanding() int64
	// Standing returns its state, and its share of its fair share of primaries
	// (0 to 1), which counts only when the state is not ReplicaServing.
	Standing() (policy.ReplicaState, float64)
}

// Untried reports whether a hedge has anywhere to go.
func Untried[C Candidate](replicas, tried []C) bool {
	for _, r := range replicas {
		if !slices.Contains(tried, r) {
			return true
		}
	}
	return false
}

// Choose picks the replica of an attempt: for a primary, tried is empty; for a
// hedge it holds the replicas of the call's earlier attempts. False: there is
// none. random returns 64 random bits, such as math/rand/v2.Uint64.
func Choose[C Candidate](replicas, tried []C, random func() uint64) (C, bool) {
	var none C
	if !Untried(replicas, tried) {
		return none, false
	}
	return replicas[0], true
}
