package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"pgregory.net/rapid"
)

// crowded feeds so many seconds of rate calls each, of which a share that is drawn
// anew every second is eligible.
func crowded(rng *rand.Rand, seconds, rate int, share func(second int) float64) *crowding {
	var c crowding
	for i := range seconds {
		yes := 0
		p := share(i)
		for range rate {
			if rng.Float64() < p {
				yes++
			}
		}
		c.add(epoch.Add(time.Duration(i)*time.Second), uint64(rate), uint64(yes))
	}
	c.advance(epoch.Add(time.Duration(seconds) * time.Second))
	return &c
}

func TestCrowding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	burst := func(int) float64 { // one second in four is full of slow calls
		if rng.IntN(4) == 0 {
			return .17
		}
		return 0
	}
	for _, c := range []struct {
		name     string
		seconds  int
		rate     int
		share    func(int) float64
		from, to float64
	}{
		{"one by one", 600, 90, func(int) float64 { return .043 }, 1, 1},
		{"one by one, thousands", 600, 4000, func(int) float64 { return .043 }, 1, 1},
		{"one by one, a few", 600, 5, func(int) float64 { return .043 }, 1, 1},
		{"together", 600, 90, burst, 6, 15},
		{"together, but not for long enough to tell", crowdPairs, 90, burst, 1, 1},
		{"none at all", 600, 90, func(int) float64 { return 0 }, 1, 1},
		{"all of them", 600, 90, func(int) float64 { return 1 }, 1, 1},
		{"a slow drift", 600, 1000, func(i int) float64 { return .02 + .06*float64(i)/600 }, 1, 1},
		{"one shift of everything", 200, 1000, func(i int) float64 {
			if i == 100 {
				return .6
			}
			return .043
		}, 1, 1},
		{"hiccups of a tenth among thousands", 600, 4000, func(int) float64 { return .043 * (.8 + .4*rng.Float64()) }, 1, 1},
	} {
		if got := crowded(rng, c.seconds, c.rate, c.share).factor(); got < c.from || got > c.to {
			t.Errorf("%s: factor %.3g, want %v to %v", c.name, got, c.from, c.to)
		}
	}
}

// Once there is crowding it takes clear evidence that there is none any more.
func TestCrowdingDoesNotFlap(t *testing.T) {
	c := crowding{pairs: 100, safe: 9000, eligible: 200, ratios: 100 * leastCrowding, open: share{90, 2}, last: share{90, 2}}
	c.compare(c.last, c.open)
	if c.on {
		t.Fatalf("just below the least: %.3g, want none", c.ratios/c.pairs)
	}
	c.on = true
	c.compare(c.last, c.open)
	if got := c.factor(); got < 1.4 || got > leastCrowding {
		t.Errorf("the same when it was on: %.3g, want that it stays", got)
	}
}

// Whatever is counted, the factor is between 1 and crowdMost; seconds in which
// nothing is counted break pairs up.
func TestCrowdingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c crowding
		now := epoch
		count := rapid.OneOf(rapid.Uint64Range(0, 200), rapid.Uint64())
		for range rapid.IntRange(0, 200).Draw(t, "reports") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 2e9).Draw(t, "pass")))
			c.add(now, count.Draw(t, "safe"), count.Draw(t, "eligible"))
			if f := c.factor(); math.IsNaN(f) || f < 1 || f > crowdMost {
				t.Fatalf("factor %v", f)
			}
		}
	})
	var c crowding
	for i := range 200 {
		c.add(epoch.Add(time.Duration(2*i)*time.Second), 100, uint64(i%2)*20)
	}
	if c.pairs != 0 {
		t.Errorf("%v pairs of seconds that do not follow each other, want none", c.pairs)
	}
}

func TestCrowdedCallsGetABiggerBucket(t *testing.T) {
	f := fleet{clients: 1, calls: 910, life: time.Hour, crowding: 1}
	before := wantBudget(.05, f)
	for _, c := range []struct{ crowding, clients, burst, ratio float64 }{
		{1, 1, 11, .046},
		{2, 1, 111, .05},
		{4, 1, 200, .05},
		{11, 100, 21, .05},
	} {
		f.crowding, f.clients = c.crowding, c.clients
		if b := wantBudget(.05, f); b.Burst != max(c.burst, b.Start) || b.Ratio != c.ratio {
			t.Errorf("crowding %v of %v clients: %+v, want burst %v, ratio %v", c.crowding, c.clients, b, c.burst, c.ratio)
		} else if c.clients == 1 && b.Start != before.Start {
			t.Errorf("crowding %v: start %v, want %v", c.crowding, b.Start, before.Start)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := fleet{
			clients:  rapid.Float64Range(1, maxClients).Draw(t, "clients"),
			calls:    rapid.Float64Range(0, 1e7).Draw(t, "calls"),
			life:     time.Minute,
			crowding: rapid.Float64Range(1, crowdMost).Draw(t, "crowding"),
		}
		more := f
		more.crowding = rapid.Float64Range(f.crowding, crowdMost).Draw(t, "more")
		b, above := wantBudget(.05, f), wantBudget(.05, more)
		if above.Validate() != nil || above.Burst < b.Burst || above.Ratio < b.Ratio {
			t.Errorf("%+v: %+v, and with more crowding %+v", f, b, above)
		}
	})
}

// Of crowded evidence it takes so many times more for a verdict.
func TestCrowdedEvidenceWeighsLess(t *testing.T) {
	alone, together := newTold(), newTold()
	together.in.crowding = 10
	alone.hear(t, 20, 0, 0, true)
	together.hear(t, 20, 0, 0, false)
	together.hear(t, 110, 0, 0, true)
}

// A replica that is slow for a few windows is nothing where all are, by turns.
func TestProbationInACrowd(t *testing.T) {
	for _, c := range []struct {
		crowding float64
		want     int
	}{{1, 1}, {12, 0}} {
		p := newProbation()
		p.crowding = c.crowding
		now := epoch
		for range 8 {
			for i := range 100 {
				for _, name := range []string{"a", "b", "c"} {
					s := &estimator.Sample{}
					d := 10 * time.Millisecond
					if i < 8 || name == "c" && i < 30 {
						d *= 5
					}
					s.Completed.Record(d)
					p.add(now.Add(time.Duration(i)*10*time.Millisecond), name, testMethod, "", s, 0)
				}
			}
			now = now.Add(1100 * time.Millisecond)
			p.tick(now, .34, 300)
		}
		if got := len(p.policies()); got != c.want {
			t.Errorf("crowding %v: %d replicas out of service, want %d", c.crowding, got, c.want)
		}
	}
}
