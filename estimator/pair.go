package estimator

import "time"

// Pair is what became of two attempts of one call that both ran to their ends:
// the buckets, as Index has them, of the primary's latency and of the first
// hedge's, each from its own dispatch. An attempt that ran into a limit counts
// with the time at which it was cut.
type Pair struct{ Primary, Hedge int16 }

// NewPair returns the pair of two latencies.
func NewPair(primary, hedge time.Duration) Pair {
	return Pair{Primary: int16(Index(primary)), Hedge: int16(Index(hedge))}
}
