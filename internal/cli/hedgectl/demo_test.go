package hedgectl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/internal/demo"
)

// A figure's unit is the end of its name in JSON, and stands behind its value for
// people.
func TestReadable(t *testing.T) {
	for _, tt := range []struct {
		figure      demo.Figure
		name, value string
	}{
		{demo.Figure{Name: "clients", Value: 200}, "clients", "200"},
		{demo.Figure{Name: "last_stopped_ms", Value: 62.17}, "last stopped", "62.17 ms"},
		{demo.Figure{Name: "probation_after_s", Value: 3}, "probation after", "3 s"},
		{demo.Figure{Name: "calls_in_probation_per_s", Value: 12.33333}, "calls in probation", "12.33 per s"},
		{demo.Figure{Name: "extra_0_to_10s_ratio", Value: 0.0462}, "extra 0 to 10s", "4.62%"},
		{demo.Figure{Name: "delay_at_10s_ms", Value: 15.5}, "delay at 10s", "15.5 ms"},
		{demo.Figure{Name: "generation_after", Value: 65537}, "generation after", "65537"},
	} {
		if name, value := readable(tt.figure); name != tt.name || value != tt.value {
			t.Errorf("%v is %q %q, want %q %q", tt.figure, name, value, tt.name, tt.value)
		}
	}
}

// The table says in words what hedging changed, by the medians over the runs, and
// shows the article's figures beside those settings that the article has.
func TestDemoTable(t *testing.T) {
	runs := []demo.Run{
		{Run: 1, InFlight: 4, Policy: "plain", Calls: 4000, P999: 1000, Target: .05},
		{Run: 1, InFlight: 4, Policy: "hedged", Calls: 4000, P999: 30, ExtraClient: .04, Target: .05, Delay: new(15.5), Moves: []demo.Move{{At: 12, Delay: 15.5}}},
		{Run: 2, InFlight: 4, Policy: "plain", Calls: 4000, P999: 1010, Target: .05},
		{Run: 2, InFlight: 4, Policy: "hedged", Calls: 4000, P999: 40, ExtraClient: .05, Target: .05},
		{Run: 1, InFlight: 7, Policy: "hedged", Calls: 4000, P999: 40, Target: .05}, // cold
	}
	var b bytes.Buffer
	writeDemo(&b, &demo.Result{Runs: runs, Scenes: []demo.Scene{{Name: "drift", Figures: []demo.Figure{{Name: "calls", Value: 9}}}}})
	for _, want := range []string{
		"4 in flight: p99.9 from 1005 to 35 ms, for 4.5% extra load.\n",
		"The article",
		"4 in flight, run 1: 15.5 ms at 0.01 s\n",
		"7 in flight, run 1: no delay\n",
		"\ndrift\n  calls  9\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "7 in flight: p99.9") {
		t.Errorf("compared with plain runs that were not made:\n%s", &b)
	}

	b.Reset()
	writeDemo(&b, &demo.Result{Runs: runs[4:]})
	if strings.Contains(b.String(), "article") {
		t.Errorf("the article had no such setting:\n%s", &b)
	}
}

// On a terminal a look is written over the one before: every line is cleared to
// its end, and what was below it too.
func TestInPlace(t *testing.T) {
	b := inPlace(*bytes.NewBufferString("a\n\nbc\n"))
	if want := "\x1b[Ha\x1b[K\n\x1b[K\nbc\x1b[K\n\x1b[J"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
