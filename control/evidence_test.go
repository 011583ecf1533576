package control

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// A call scores the cuts that it outlives. One that was cancelled after the last has
// outlived all of them, and one that was cancelled before it says nothing.
func TestCallsScoreTheCutsTheyOutlive(t *testing.T) {
	var s estimator.Sample
	for d, n := range map[time.Duration]uint64{5: 50, 11: 20, 16: 10, 25: 4} {
		s.Completed.RecordN(d*time.Millisecond, n)
	}
	s.Censored.RecordN(25*time.Millisecond, 6)
	s.Censored.RecordN(12*time.Millisecond, 9)
	got := rank(&s, [...]time.Duration{10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond})
	within(t, "known", got.known, 90, 90)
	within(t, "longer", got.longer, 10, 10)
	within(t, "score", got.score, 20+2*10+3*10, 20+2*10+3*10)
	within(t, "squares", got.squares, 20+4*10+9*10, 20+4*10+9*10)
	// A fifth faster, 11 ms is less than the first cut, and 16 ms than the second.
	within(t, "clearly", got.clearly, 10+3*10, 10+3*10)

	// Half a millisecond more is not clear, however short they are.
	var short estimator.Sample
	short.Completed.RecordN(1500*time.Microsecond, 10)
	got = rank(&short, [...]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond})
	within(t, "score of short ones", got.score, 30, 30)
	within(t, "clearly of short ones", got.clearly, 0, 0)
}

// The z is that of scores dealt out at random, whatever share of them is the replica's.
func TestScoresHaveTheVarianceOfChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	scores := make([]float64, 300)
	for i := range scores {
		scores[i] = float64(i % 4)
	}
	var sum, squares float64
	const deals = 4000
	for range deals {
		rng.Shuffle(len(scores), func(i, j int) { scores[i], scores[j] = scores[j], scores[i] })
		var mine, pool ranked
		for i, v := range scores {
			one := ranked{known: 1, score: v, squares: v * v}
			if i < 60 {
				mine.add(one)
			} else {
				pool.add(one)
			}
		}
		var e evidence
		e.compare(mine, pool)
		sum += e.z() / deals
		squares += e.z() * e.z() / deals
	}
	within(t, "mean", sum, -.05, .05)
	within(t, "variance", squares, .95, 1.05)
}
