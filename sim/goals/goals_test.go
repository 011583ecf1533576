package goals

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/sim"
)

func TestFind(t *testing.T) {
	t.Parallel()
	got, err := Find([]string{"fanout"})
	if err != nil || len(got) != 1 || got[0].ID != "fanout" {
		t.Errorf("got %v, %v, want the goal fanout", got, err)
	}
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{"fanuot"}, `goal: "fanuot" is unknown; did you mean "fanout"?`},
		{[]string{"fanout", "fanout"}, `goal: "fanout" is there twice`},
	} {
		if _, err := Find(c.ids); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.ids, err, c.want)
		}
	}
}

func TestIDsAreThereOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range All() {
		if seen[g.ID] || g.Text == "" {
			t.Errorf("%q: is there twice or promises nothing", g.ID)
		}
		seen[g.ID] = true
	}
}

// small is a goal with a world of its own that takes no time.
func small(most float64) Goal {
	return Goal{ID: "small", Text: "extra", Parts: []Part{func(b *Bench) ([]Check, error) {
		s := World("small", "duration 4s\nwarmup 1s\nlatency lognormal 10ms 0.5\nstall call 1%% 500ms\narrivals poisson 500")
		hedges := make([]int, 3)
		row, err := b.Run(s, Hedged(), 3, func(i int) sim.Probe {
			return sim.Probe{Hedge: func(time.Duration, time.Duration) { hedges[i]++ }}
		})
		if err != nil {
			return nil, err
		}
		seen := 0.0
		for _, n := range hedges {
			seen += float64(n)
		}
		return []Check{
			AtMost("extra", "%", Of(row, func(r *sim.Result) float64 { return 100 * r.Extra() }), most),
			AtLeast("hedges", "", Figure{Value: seen}, 1),
		}, nil
	}}}
}

// Figures do not depend on the number of processors, nor on what else is measured.
func TestSameOnEveryMachine(t *testing.T) {
	var all [][]Result
	for _, n := range []int{1, 4} {
		before := runtime.GOMAXPROCS(n)
		got, err := Run(t.Context(), []Goal{small(5), small(5)}, Options{Base: 7})
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got[:1], got[1:])
	}
	for _, got := range all[1:] {
		if !reflect.DeepEqual(got, all[0]) {
			t.Errorf("got %+v and %+v, want the same", got, all[0])
		}
	}
	if r := all[0][0]; !r.Pass || r.Seeds != 3 || r.Calls < 4000 || r.SD == 0 || !strings.Contains(r.Measured, "extra") {
		t.Errorf("got %+v", r)
	}
}

func TestMissedGoal(t *testing.T) {
	t.Parallel()
	got, err := Run(t.Context(), []Goal{small(0)}, Options{Base: 1})
	if err != nil || got[0].Pass || got[0].Checks[0].Pass || !got[0].Checks[1].Pass {
		t.Errorf("got %+v, %v, want one check of two missed", got, err)
	}
}

func TestGoalThatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	g := Goal{ID: "broken", Parts: []Part{
		func(*Bench) ([]Check, error) { return []Check{AtMost("a", "", Figure{}, 1)}, nil },
		func(*Bench) ([]Check, error) { return nil, errors.New("no figures") },
	}}
	got, err := Run(t.Context(), []Goal{g}, Options{})
	if err != nil || got[0].Pass || got[0].Measured != "a 0, not measured: no figures" {
		t.Errorf("got %+v, %v, want a missed goal that says why", got, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, []Goal{small(5)}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check Check
		pass  bool
		json  string
	}{
		{AtMost("extra", "%", Figure{5, 1}, 5), true, `{"name":"extra","measured":5,"unit":"%","goal":"<= 5%","sd":1,"pass":true}`},
		{AtMost("extra", "%", Figure{5.01, 1}, 5), false, `{"name":"extra","measured":5.01,"unit":"%","goal":"<= 5%","sd":1,"pass":false}`},
		{AtLeast("p99.9", "ms", Figure{3, 0}, 4), false, `{"name":"p99.9","measured":3,"unit":"ms","goal":">= 4 ms","sd":0,"pass":false}`},
		{Near("share", "%", Figure{2, 0}, 1, 1), true, `{"name":"share","measured":2,"unit":"%","goal":"1% +- 1","sd":0,"pass":true}`},
		{AtMost("none", "", Figure{math.NaN(), math.Inf(1)}, 1), false, `{"name":"none","measured":null,"unit":"","goal":"<= 1","sd":null,"pass":false}`},
		{AtLeast("none", "", Figure{Value: math.NaN()}, 1), false, `{"name":"none","measured":null,"unit":"","goal":">= 1","sd":0,"pass":false}`},
		{Near("none", "", Figure{Value: math.NaN()}, 1, 1), false, `{"name":"none","measured":null,"unit":"","goal":"1 +- 1","sd":0,"pass":false}`},
	} {
		text, err := c.check.MarshalJSON()
		if got := strings.TrimSpace(string(text)); err != nil || c.check.Pass != c.pass || got != c.json || !json.Valid(text) {
			t.Errorf("got %s, %v, want %s", got, err, c.json)
		}
	}
}

func TestOracleTable(t *testing.T) {
	t.Parallel()
	s := World("small", "latency constant 1ms")
	table, err := readOracles("# a comment\nsmall 3 1.5ms 0.5 20ms 30ms 0.049\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Oracle{Oracle: sim.Oracle{Delay: 1500 * time.Microsecond, Probability: .5}, P99: 20 * time.Millisecond, P999: 30 * time.Millisecond, Extra: .049}
	if got := table["small"]; got.Oracle != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b := &Bench{Quick: true, table: table}
	if _, err := b.Oracle(s); err == nil || !strings.Contains(err.Error(), `no figures for world "small" as it is now`) {
		t.Errorf("of a world that changed: got %v, want that the table is too old", err)
	}
	table["small"] = line{Oracle: want, world: checksum(s)}
	if got, err := b.Oracle(s); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"small 3", "small 3 1.5 0.5 20ms 30ms 0.049", "small 3 1ms 0.5 20 30ms 0.049"} {
		if _, err := readOracles(bad); err == nil || !strings.HasPrefix(err.Error(), "oracle.txt:1: ") {
			t.Errorf("%q: got %v, want an error that names the line", bad, err)
		}
	}
}

// The committed table has every world that a goal asks for, as it is now.
func TestOracleTableIsWhole(t *testing.T) {
	t.Parallel()
	table, err := readOracles(oracleText)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range All() {
		if g.Oracles == nil {
			continue
		}
		for _, s := range g.Oracles() {
			if table[s.Name].world != checksum(s) {
				t.Errorf("%s: no figures for world %q as it is now; write oracle.txt anew with hedgectl simulate --goals --oracle", g.ID, s.Name)
			}
		}
	}
}

// What is not looked for anew stays as it is.
func TestWriteOraclesKeepsTheRest(t *testing.T) {
	t.Parallel()
	got, err := WriteOracles(t.Context(), nil, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := readOracles(got)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readOracles(oracleText)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range All() {
		if g.Oracles == nil {
			continue
		}
		for _, s := range g.Oracles() {
			if kept[s.Name] != want[s.Name] {
				t.Errorf("%s: got %+v, want %+v", s.Name, kept[s.Name], want[s.Name])
			}
		}
	}
}
