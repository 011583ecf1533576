package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQueueOrder(t *testing.T) {
	var q queue
	r := rand.New(rand.NewPCG(1, 1))
	var want, got []event
	for i := range 2000 {
		e := event{at: time.Duration(r.IntN(300)), ref: int32(i), seq: uint64(i + 1)}
		want = append(want, e)
		q.push(e)
		if r.IntN(3) == 0 { // pops in between
			last := q.pop()
			last.at += 300
			last.seq = q.seq + 1
			want = slices.DeleteFunc(want, func(x event) bool { return x.ref == last.ref })
			want = append(want, last)
			q.push(last)
		}
	}
	for len(q.heap) > 0 {
		got = append(got, q.pop())
	}
	slices.SortFunc(want, func(a, b event) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(int64(a.seq) - int64(b.seq))
	})
	for i := range got {
		if got[i].at != want[i].at || i > 0 && got[i].at == got[i-1].at && got[i].seq < got[i-1].seq {
			t.Fatalf("event %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
}

// In the steady state a call costs no allocation, whatever happens to it.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	s := world(t, `latency lognormal 10ms 1
replicas 3 workers 4
routing better-of-two
network 1ms jitter 1ms
arrivals poisson 300
fanout 2
duration 1h
warmup 50m`)
	w := newWorld(s, 1, newAlways(20*time.Millisecond, .5))
	w.setClients(10)
	w.startLoad()
	step := func() {
		for range 1000 {
			e := w.events.pop()
			w.now = e.at
			w.happen(e)
		}
	}
	for range 200 {
		step()
	}
	if n := testing.AllocsPerRun(20, step); n > 1 { // a queue may grow to a new height
		t.Errorf("%v allocations in 1,000 events, want 1 at most", n)
	}
}

func BenchmarkWorld(b *testing.B) {
	s := world(b, "latency lognormal 10ms 0.5\nstall call 1%% 500ms\narrivals poisson 1000\nduration 100s\nwarmup 10s")
	for _, name := range []string{"none", "windowed", "hedged"} {
		p := under(b, name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			calls := uint64(0)
			for b.Loop() {
				calls += play(b, s, p, 1).Calls
			}
			b.ReportMetric(float64(calls)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
