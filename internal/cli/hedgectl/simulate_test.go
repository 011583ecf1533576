package hedgectl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/sim/goals"
	"github.com/hedged-project/hedged/sim/trace"
)

const smallWorld = `title    small
duration 12s
warmup   2s
arrivals poisson 200
latency  file measured.txt
stall    call 2% 500ms
`

// simulateWith runs the command and returns what it printed.
func simulateWith(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := NewCommand(&out, &errs)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(append([]string{"simulate"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "small.txt")
	for name, text := range map[string]string{"small.txt": smallWorld, "measured.txt": "8ms\n9ms\n10ms\n12ms\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, err := simulateWith(t, file, "--seeds", "2", "--compare", "none,finagle,hedged")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"small: small", "2 runs of", "p99.9", "none", "finagle", "hedged", "over 1s", "extra load, %", "▁"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	picture := filepath.Join(dir, "small.svg")
	if _, err := simulateWith(t, file, "--seeds", "1", "--plot", picture); err != nil {
		t.Fatal(err)
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(svg, []byte("<svg")) || !bytes.Contains(svg, []byte("small: small")) {
		t.Errorf("%v in\n%s", err, svg)
	}
	nowhere := filepath.Join(dir, "nowhere", "small.svg")
	if _, err := simulateWith(t, file, "--seeds", "1", "--plot", nowhere); err == nil || !strings.Contains(err.Error(), nowhere) {
		t.Errorf("got %v, want an error that names %s", err, nowhere)
	}
	text, err := simulateWith(t, file, file, "--seeds", "2", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var all []played
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(all) != 2 || len(all[0].Policies) != 2 || all[0].Seeds != 2 {
		t.Fatalf("%+v", all)
	}
	plain := all[0].Policies[0]
	if plain.Policy != "none" || plain.P999.Median < 500 || plain.Extra.Median != 0 || plain.Requests.Median < 1800 || plain.Busy != nil {
		t.Errorf("%+v", plain)
	}
}

func TestSimulateList(t *testing.T) {
	table, err := simulateWith(t, "--list")
	if err != nil || !strings.Contains(table, "queue-better-of-two") {
		t.Errorf("%v in\n%s", err, table)
	}
	text, err := simulateWith(t, "--list", "-o", "json")
	if err != nil || !json.Valid([]byte(text)) {
		t.Errorf("%v in\n%s", err, text)
	}
}

func TestSimulateShow(t *testing.T) {
	text, err := simulateWith(t, "--show", "queue")
	if err != nil || !strings.Contains(text, "workers 1") {
		t.Errorf("%v in\n%s", err, text)
	}
}

func TestSimulateUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.txt")
	if err := os.WriteFile(bad, []byte("latency constant\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(t.TempDir(), "huge.csv")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, trace.MaxBytes+1); err != nil { // takes no room
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--trace " + huge, "huge.csv: is 268435457 bytes long, want at most 268435456"},
		{"", "no scenario, want the name of one"},
		{"qeue", `did you mean "queue"?`},
		{"queue --seeds 0", "--seeds: 0, want 1 to 1000"},
		{"queue --compare hedgd", `--compare: policy: "hedgd" is unknown; did you mean "hedged"?`},
		{"queue --compare none,none", `--compare: "none" is there twice`},
		{"--list queue", `--list takes no scenario, but got "queue"`},
		{"./nowhere.txt", "nowhere.txt"},
		{"--trace nowhere.csv", "--trace: stat nowhere.csv: no such file"},
		{"--trace " + bad, "bad.txt:1: latency: \"latency constant\", want a time with its unit"},
		{"--trace a.csv queue", `--trace: takes no scenario, but got "queue"`},
		{"--trace a.csv --goals", "--goals: does not go with --trace"},
		{"--trace a.csv --seeds 3", "--seeds: does not go with --trace"},
		{"queue --plot=", "--plot: is empty, want a file to write"},
		{"queue step --plot a.svg", "--plot: draws one scenario, but got 2"},
		{"--goals --plot a.svg", "--plot: does not go with --goals"},
		{"--goals fanuot", `goal: "fanuot" is unknown; did you mean "fanout"?`},
		{"--goals fanout fanout", `goal: "fanout" is there twice`},
		{"--goals --seeds 3", "--seeds: does not go with --goals"},
		{"--goals --list", "--list: does not go with --goals"},
		{"--goals --quick --oracle", "--oracle: does not go with --quick"},
		{"queue --quick", "--quick: goes with --goals only"},
		{"queue --oracle", "--oracle: goes with --goals only"},
		{"--show qeue", `did you mean "queue"?`},
		{bad, "bad.txt:1: latency: the latency is missing"},
	} {
		_, err := simulateWith(t, strings.Fields(c.args)...)
		var usage *cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want a usage error with %s", c.args, err, c.want)
		}
	}
}

func TestSimulateGoals(t *testing.T) {
	text, err := simulateWith(t, "--goals", "--quick", "fanout", "-o", "json")
	var all []goals.Result
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(all) != 1 || all[0].ID != "fanout" || all[0].Pass != (err == nil) || len(all[0].Checks) == 0 {
		t.Errorf("%v: %+v", err, all)
	}
}

// Of a goal that needs no oracle none is looked for, and the table stays.
func TestSimulateOracle(t *testing.T) {
	text, err := simulateWith(t, "--goals", "--oracle", "fanout")
	if err != nil || !strings.HasPrefix(text, "# The best fixed delay") || !strings.Contains(text, "unseen-far") {
		t.Errorf("%v in\n%s", err, text)
	}
}

func TestMissedGoalFailsTheCommand(t *testing.T) {
	results := []goals.Result{
		{ID: "one", Pass: true, Goal: "this", Seeds: 3, Checks: []goals.Check{goals.AtMost("extra", "%", goals.Figure{Value: 4}, 5)}},
		{ID: "two", Goal: "that", Seeds: 1, Checks: []goals.Check{goals.AtMost("extra", "%", goals.Figure{Value: 6}, 5)}},
		{ID: "three", Goal: "else", Measured: "not measured: no figures"},
	}
	err := missed(results)
	var usage *cli.UsageError
	if err == nil || errors.As(err, &usage) || err.Error() != "2 of 3 goals missed: two, three" {
		t.Errorf("got %v", err)
	}
	if err := missed(results[:1]); err != nil {
		t.Errorf("got %v, want none missed", err)
	}
	var out bytes.Buffer
	if err := writeGoals(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one: pass", "two: MISSED", "6%", "<= 5%", "1 seed,", "not measured: no figures"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestSimulateTrace(t *testing.T) {
	dir := t.TempDir()
	var plain, csv strings.Builder
	for i := range 4000 {
		latency := 10 + i%7
		if i%50 == 0 {
			latency = 500
		}
		fmt.Fprintf(&plain, "%dms\n", latency)
		fmt.Fprintf(&csv, "%dms,replica-%d,%dms\n", i, i%3, latency)
	}
	for name, text := range map[string]string{"plain.txt": plain.String(), "calls.csv": csv.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		want []string
	}{
		{"plain.txt", []string{"4000 calls", "routing: as it was", "5%", "500.0", "taken to be independent"}},
		{"calls.csv", []string{"4000 calls on 3 replicas in 3.999s", "routing: better of two", "as often as by chance"}},
	} {
		table, err := simulateWith(t, "--trace", filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(table, want) {
				t.Errorf("%s: no %q in\n%s", c.file, want, table)
			}
		}
	}
	text, err := simulateWith(t, "--trace", filepath.Join(dir, "calls.csv"), "-o", "json")
	var got traced
	if err != nil || json.Unmarshal([]byte(text), &got) != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(got.Routings) != 2 || len(got.Routings[0].Offers) != 1+len(traceBudgets) || got.Together == nil {
		t.Fatalf("got %+v", got)
	}
	none, five := got.Routings[0].Offers[0], got.Routings[0].Offers[4]
	if (*none.P99)[0] != 500 || (*five.P99)[0] > 50 || five.Extra > .05 {
		t.Errorf("without hedging %+v, at 5%% %+v", none, five)
	}
}
