package hedge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hedged-project/hedged/policy"
)

type fakeReplica struct {
	outstanding int64
	state       policy.ReplicaState
	share       float64
}

func (r *fakeReplica) Outstanding() int64 { return r.outstanding }

func (r *fakeReplica) Standing() (policy.ReplicaState, float64) { return r.state, r.share }

func serving(n int) (out []*fakeReplica) {
	for range n {
		out = append(out, new(fakeReplica))
	}
	return out
}

func seeded() func() uint64 { return rand.New(rand.NewPCG(1, 2)).Uint64 }

// Three replicas, three attempts: three different replicas. One replica: the
// primary is as ever, and there is no hedge.
func TestChooseNeverTried(t *testing.T) {
	random := seeded()
	for n := 1; n <= 4; n++ {
		for range 1000 {
			replicas := serving(n)
			for _, r := range replicas {
				r.state = policy.ReplicaState(random() % 3)
				r.outstanding = int64(random() % 5)
			}
			var tried []*fakeReplica
			for range n {
				r, ok := Choose(replicas, tried, random)
				if !ok || slices.Contains(tried, r) {
					t.Fatalf("%d replicas, %d tried: chose %v, %v", n, len(tried), r, ok)
				}
				tried = append(tried, r)
			}
			if _, ok := Choose(replicas, tried, random); ok || Untried(replicas, tried) {
				t.Fatalf("%d replicas, all tried: one was chosen", n)
			}
		}
	}
	if _, ok := Choose([]*fakeReplica(nil), nil, random); ok {
		t.Error("no replicas: one was chosen")
	}
}

// A hedge goes to a serving replica first, then to a recovering one, and only
// then to one in probation; with two replicas, one in probation, it goes there.
func TestChooseHedgeByStanding(t *testing.T) {
	random := seeded()
	replicas := serving(4)
	replicas[1].state = policy.ReplicaProbation
	replicas[2].state = policy.ReplicaRecovering
	replicas[3].outstanding = 100
	tried := replicas[:1:1]
	for _, want := range []int{3, 2, 1} {
		r, ok := Choose(replicas, tried, random)
		if !ok || r != replicas[want] {
			t.Fatalf("%d tried: chose %d, want %d", len(tried), slices.Index(replicas, r), want)
		}
		tried = append(tried, r)
	}
	pair := serving(2)
	pair[1].state = policy.ReplicaProbation
	if r, ok := Choose(pair, pair[:1], random); !ok || r != pair[1] {
		t.Error("two replicas, one in probation: the hedge did not go there")
	}
}

// A replica in probation gets its share of its fair share of primaries, however
// little it has outstanding.
func TestChooseShare(t *testing.T) {
	const n = 200_000
	random := seeded()
	for _, share := range []float64{0, .02, .5, 1} {
		replicas := serving(4)
		for _, r := range replicas[1:] {
			r.outstanding = 10
		}
		replicas[0].state, replicas[0].share = policy.ReplicaProbation, share
		count := 0
		for range n {
			if r, _ := Choose(replicas, nil, random); r == replicas[0] {
				count++
			}
		}
		if got := float64(count) / n; math.Abs(got-share/4) > .003 {
			t.Errorf("share %v: got %.4f of the primaries, want %.4f", share, got, share/4)
		}
	}
}

// A fourth replica without any history joins under load: it soon has a fourth of
// primaries and hedges, and is never flooded.
func TestChooseNewReplica(t *testing.T) {
	const inFlight, n = 40, 40_000
	random := seeded()
	replicas := serving(4)
	for _, r := range replicas[:3] {
		r.outstanding = inFlight / 3
	}
	var running []*fakeReplica
	for _, r := range replicas[:3] {
		for range inFlight / 3 {
			running = append(running, r)
		}
	}
	var primaries, hedges, newPrimaries, newHedges int
	send := func(tried []*fakeReplica) *fakeReplica {
		r, _ := Choose(replicas, tried, random)
		r.outstanding++
		running = append(running, r)
		for len(running) > inFlight {
			i := below(len(running), random)
			running[i].outstanding--
			running[i] = running[len(running)-1]
			running = running[:len(running)-1]
		}
		return r
	}
	for i := range n {
		primary := send(nil)
		primaries++
		if primary == replicas[3] {
			newPrimaries++
		}
		if i%20 == 0 {
			hedges++
			if send([]*fakeReplica{primary}) == replicas[3] {
				newHedges++
			}
		}
		if i == 100 && newPrimaries > 60 {
			t.Errorf("new replica got %d of its first 100 primaries", newPrimaries)
		}
	}
	if got := float64(newPrimaries) / float64(primaries); math.Abs(got-.25) > .02 {
		t.Errorf("share of primaries %.3f, want about 1/4", got)
	}
	if got := float64(newHedges) / float64(hedges); math.Abs(got-.25) > .04 {
		t.Errorf("share of hedges %.3f, want about 1/4", got)
	}
}

// The better of two: the busiest replica of three is never chosen.
func TestChooseBetterOfTwo(t *testing.T) {
	random := seeded()
	replicas := serving(3)
	replicas[0].outstanding = 9
	for range 1000 {
		if r, _ := Choose(replicas, nil, random); r == replicas[0] {
			t.Fatal("chose the busiest")
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{3, 100} {
		replicas := serving(n)
		b.Run(map[int]string{3: "3 replicas", 100: "100 replicas"}[n], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Choose(replicas, replicas[:1], rand.Uint64)
			}
		})
	}
}
