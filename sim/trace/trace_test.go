package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// written is a trace of n calls, one a ms, on so many replicas (0: latencies only).
func written(t *testing.T, n, replicas int, latency func(r *rand.Rand, i, replica int) time.Duration) *Trace {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for i := range n {
		if replicas == 0 {
			fmt.Fprintf(&b, "%v\n", latency(r, i, 0))
			continue
		}
		on := r.IntN(replicas)
		fmt.Fprintf(&b, "%v,r%d,%v\n", time.Duration(i)*time.Millisecond, on, latency(r, i, on))
	}
	tr, err := Parse("trace", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func uniform(r *rand.Rand) time.Duration {
	return 5*time.Millisecond + time.Duration(r.Int64N(int64(10*time.Millisecond)))
}

func near(t *testing.T, what string, got time.Duration, want float64, off float64) {
	t.Helper()
	if ms := float64(got) / 1e6; math.Abs(ms/want-1) > off {
		t.Errorf("%s: %.2f ms, want %.2f within %.0f%%", what, ms, want, 100*off)
	}
}

// Independent copies are worth what theory says: the best p99.9 of one hedge.
func TestIndependentCopies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		budget     float64
		none, p999 float64
		off        float64
		latency    func(r *rand.Rand) time.Duration
	}{
		{"stalls", .05, 1014, 28.7, .02, func(r *rand.Rand) time.Duration {
			d := uniform(r)
			if r.Float64() < .01 {
				d += time.Second
			}
			return d
		}},
		{"lognormal", .05, 219.8, 92.4, .06, func(r *rand.Rand) time.Duration {
			return time.Duration(1e7 * math.Exp(r.NormFloat64()))
		}},
		{"lognormal, a fifth of it", .01, 219.8, 127, .08, func(r *rand.Rand) time.Duration {
			return time.Duration(1e7 * math.Exp(r.NormFloat64()))
		}},
		{"pareto", .01, 200, 50.9, .06, func(r *rand.Rand) time.Duration {
			return time.Duration(2e6 * math.Pow(1-r.Float64(), -1/1.5))
		}},
	} {
		tr := written(t, 120_000, 0, func(r *rand.Rand, _, _ int) time.Duration { return c.latency(r) })
		o := Estimate(tr, []float64{c.budget})
		near(t, c.name+" without hedging", o.Plain[0].P999.Value, c.none, .15)
		got := o.Plain[1]
		near(t, c.name+" hedged", got.P999.Value, c.p999, c.off)
		if got.Extra > c.budget*1.001 || got.Extra < c.budget*.95 {
			t.Errorf("%s: %+v, want a budget of %v to be spent", c.name, got, c.budget)
		}
		if !got.P999.OK || got.P999.Least > got.P999.Value || got.P999.Most < got.P999.Value {
			t.Errorf("%s: interval %+v does not hold its value", c.name, got.P999)
		}
		if o.Picked != nil || !math.IsNaN(o.Together) {
			t.Errorf("%s: routing is told of a trace without replicas", c.name)
		}
	}
}

// Slowness that all replicas share is not rescued, and the trace shows it.
func TestSharedSlowness(t *testing.T) {
	t.Parallel()
	o := Estimate(written(t, 30_000, 3, func(r *rand.Rand, i, _ int) time.Duration {
		d := uniform(r)
		if i%5000 < 150 { // 150 ms of every 5 s
			d += 500 * time.Millisecond
		}
		return d
	}), []float64{.05})
	near(t, "shared slowness hedged", o.Plain[1].P999.Value, 514, .02)
	if o.Together < 10 {
		t.Errorf("slow calls meet %v times as often as by chance, want far more than once", o.Together)
	}
}

// A slow replica is for routing, and hedging comes on top of it.
func TestSlowReplica(t *testing.T) {
	t.Parallel()
	o := Estimate(written(t, 30_000, 5, func(r *rand.Rand, _, replica int) time.Duration {
		d := uniform(r)
		if replica == 2 {
			d *= 8
		}
		if r.Float64() < .002 {
			d += time.Second
		}
		return d
	}), []float64{.05})
	if p, q := o.Plain[0].P99.Value, o.Picked[0].P99.Value; p < 100*time.Millisecond || q > 20*time.Millisecond {
		t.Errorf("p99 %v as it was, %v with better routing, want 100 ms and more, and 15", p, q)
	}
	near(t, "p99.9 with routing alone", o.Picked[0].P999.Value, 1010, .02)
	if both := o.Picked[1].P999.Value; both > 40*time.Millisecond || o.Plain[1].P999.Value < 2*both {
		t.Errorf("p99.9 hedged %v as it was routed and %v with better routing", o.Plain[1].P999.Value, o.Picked[1].P999.Value)
	}
	if o.Together > 1.3 {
		t.Errorf("slow calls meet %v times as often as by chance, want about once", o.Together)
	}
}

// The interval holds the truth about as often as it says: over traces of one and
// the same service.
func TestIntervalCovers(t *testing.T) {
	t.Parallel()
	const traces = 40
	held := 0
	truth := time.Duration(1e7 * math.Exp(2.3263)) // p99
	for seed := range uint64(traces) {
		r := rand.New(rand.NewPCG(seed, 9))
		tr := &Trace{calls: make([]call, 20_000)}
		for i := range tr.calls {
			tr.calls[i] = call{arrival: time.Duration(i), latency: time.Duration(1e7 * math.Exp(r.NormFloat64()))}
		}
		if p := Estimate(tr, nil).Plain[0].P99; p.Least <= truth && truth <= p.Most {
			held++
		}
	}
	if held < traces*85/100 {
		t.Errorf("%d of %d intervals hold the true p99, want some 38", held, traces)
	}
}

func TestFewCallsTellNoP999(t *testing.T) {
	t.Parallel()
	o := Estimate(written(t, 2000, 0, func(r *rand.Rand, _, _ int) time.Duration { return uniform(r) }), []float64{.05})
	if o.Plain[0].P999.OK || o.Plain[1].P999.OK || !o.Plain[1].P99.OK {
		t.Errorf("got %+v, want no p99.9 of 2,000 calls", o.Plain)
	}
}

// names are calls on so many replicas of different names.
func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "1s,r%d,1ms\n", i)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("1ms\n", minCalls)
	three := func(line string) string { return strings.Repeat("1s,a,1ms\n", minCalls) + line }
	for _, c := range []struct{ text, want string }{
		{"", "t: has 0 calls, want at least 1000"},
		{many + "12\n", `t:1001: latency: "12", want a time with its unit such as 12.5ms`},
		{many + "-1ms\n", `t:1001: latency: "-1ms"`},
		{many + "25h\n", `t:1001: latency: "25h"`},
		{many + "1s,a,1ms\n", "t:1001: has 3 values, want 1 as on the lines before"},
		{"1ms,2ms\n", "t:1: has 2 values, want one, a latency, or three: arrival,replica,latency"},
		{"latency\n" + many, `t:1: latency: "latency"`},
		{three("1s,a\n"), "t:1001: has 2 values, want 3 as on the lines before"},
		{three("1,a,1ms\n"), `t:1001: arrival: "1", want a time since the start such as 1.5s`},
		{three("-1s,a,1ms\n"), `t:1001: arrival: "-1s"`},
		{three("2026-01-02T15:04:05Z,a,1ms\n"), `t:1001: arrival: "2026-01-02T15:04:05Z", want a time since the start`},
		{"2026-01-02T15:04:05Z,a,1ms\n1s,a,1ms\n", `t:2: arrival: "1s", want a time of day`},
		{"2026-01-02T15:04:05Z,a,1ms\n2028-01-02T15:04:05Z,a,1ms\n", `t:2: arrival: "2028-01-02T15:04:05Z", want a time of day such as`},
		{three("1s, ,1ms\n"), "t:1001: replica: is missing"},
		{three("1s," + strings.Repeat("x", 254) + ",1ms\n"), "want at most 253 bytes"},
		{three("1s,\xff,1ms\n"), "bytes of UTF-8"},
		{three(strings.Repeat("y", 1<<17)), "token too long"},
		{three(names(maxReplicas)), `replica: "r999" is one too many, want at most 1000`},
		{strings.Repeat("0s\n", maxCalls+1), "t:5000001: is a call too many, want at most 5000000"},
	} {
		if _, err := Parse("t", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: got %v, want %s", c.text, err, c.want)
		}
	}
	// In any order, with a header, comments and spaces.
	text := "# from the log\n\narrival, replica, latency\n"
	for i := range minCalls {
		text += fmt.Sprintf("%v , b%d , %dus\n", time.Duration(minCalls-i)*time.Second, i%2, i)
	}
	tr, err := Parse("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Calls() != minCalls || len(tr.Replicas) != 2 || tr.Span != (minCalls-1)*time.Second || tr.calls[0].latency != (minCalls-1)*time.Microsecond {
		t.Errorf("got %d calls on %v in %v, first %+v", tr.Calls(), tr.Replicas, tr.Span, tr.calls[0])
	}
	dated := ""
	for i := range minCalls {
		dated += time.Unix(1_800_000_000+int64(i), 0).UTC().Format(time.RFC3339) + ",a,1ms\n"
	}
	if tr, err = Parse("t", []byte(dated)); err != nil || tr.Span != (minCalls-1)*time.Second {
		t.Errorf("got %+v, %v, want a span of 999 s", tr, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1ms\n2ms\n")
	f.Add("arrival,replica,latency\n1s,a,1ms\n")
	f.Add("2026-01-02T15:04:05.123Z,a,1ms\n")
	f.Add(",,\n")
	f.Fuzz(func(t *testing.T, text string) {
		// Enough good lines before it that what is odd gets as far as it can.
		for _, good := range []string{"1ms\n", "1s,a,1ms\n2s,b,3ms\n", "2026-01-02T15:04:05Z,a,1ms\n"} {
			tr, err := Parse("t", []byte(strings.Repeat(good, minCalls)+text))
			if err != nil {
				if !strings.HasPrefix(err.Error(), "t:") {
					t.Errorf("error %q does not name the file", err)
				}
				continue
			}
			for i, c := range tr.calls {
				if c.latency < 0 || c.arrival < 0 || i > 0 && c.arrival < tr.calls[i-1].arrival || len(tr.Replicas) > 0 && int(c.replica) >= len(tr.Replicas) {
					t.Fatalf("call %d: %+v", i, c)
				}
			}
			if len(tr.Replicas) > 0 {
				Estimate(tr, []float64{.05})
			}
		}
	})
}
