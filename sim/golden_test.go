package sim

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/internal/golden"
)

// A scenario's golden holds what each policy did in it, so that a change of the
// controller, of the client's law or of the world shows as figures.
func TestGoldens(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Shipped(name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintf(&b, "# %s\n", s.Title)
			for _, p := range Policies() {
				if name != "queue" && p.Name != "none" && p.Name != "hedged" {
					continue
				}
				if raceEnabled && name != "bursts" {
					return // as good as any for races
				}
				r := play(t, s, p, 1)
				fmt.Fprintf(&b, "%-12s %d requests, p50 %.2f p99 %.2f p99.9 %.2f ms, over %d, failed %d, extra %.3f%%, in the worst 10 s %.3f%%, delay %v, out of service %.3f\n",
					p.Name, r.Requests, Millis(r.P50), Millis(r.P99), Millis(r.P999), r.Over, r.Failed, 100*r.Extra(), 100*r.Worst, r.Delay, r.Unwell)
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), b.String(), "go test ./sim -run Goldens -update")
		})
	}
}

// The figures depend on the seed, and on nothing else.
func TestSameSeedSameFigures(t *testing.T) {
	s := world(t, `latency lognormal 10ms 0.5
stall call 1%% 500ms
stall replica 30%% 100ms every 5s for 500ms
clients 30 life 5s
arrivals poisson %d
replicas 4 workers 5
routing better-of-two
network 200us jitter 200us
reports 1s loss 10%%
correlation .3
warmup 5s
duration 20s
at 8s slowdown 3 replica 1
at 10s freeze 500ms
at 12s fail 10%%
at 14s clients 10
at 15s daemon down
at 17s daemon up`, sized(2500)/5)
	run := func(cpus int) []Row {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cpus))
		rows, err := Compare(t.Context(), NewPool(), s, Policies(), 2, 7, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Policy.new = nil // cannot be compared
		}
		return rows
	}
	one := run(1)
	if !reflect.DeepEqual(one, run(2)) {
		t.Error("on one and on two CPUs: the figures differ")
	}
	if !reflect.DeepEqual(one, run(2)) {
		t.Error("run twice: the figures differ")
	}
	if reflect.DeepEqual(one[0].Results[0].P50, one[0].Results[1].P50) {
		t.Error("two seeds: the same figures")
	}
}
