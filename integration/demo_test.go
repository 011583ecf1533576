package integration_test

import (
	"encoding/json"
	"testing"
)

// runFields are the fields of each run of the demonstration's JSON.
var runFields = []string{
	"run", "in_flight", "policy", "calls", "errors", "p50_ms", "p99_ms", "p999_ms", "over_1s",
	"hedges_client", "hedges_server", "cancelled_unsent", "extra_client", "extra_server",
	"cancelled_server", "delay_ms", "target", "optimum_p999_ms",
}

// demonstrated is a run as far as the tests compare its figures.
type demonstrated struct {
	Run             int
	InFlight        int `json:"in_flight"`
	Policy          string
	Calls           int
	Errors          int
	HedgesClient    int      `json:"hedges_client"`
	HedgesServer    int      `json:"hedges_server"`
	CancelledUnsent int      `json:"cancelled_unsent"`
	CancelledServer int      `json:"cancelled_server"`
	ExtraClient     float64  `json:"extra_client"`
	ExtraServer     float64  `json:"extra_server"`
	Delay           *float64 `json:"delay_ms"`
	Target          float64
	Optimum         *float64 `json:"optimum_p999_ms"`
	FirstHedge      *float64 `json:"first_hedge_ms"`
}

// demonstrate runs hedgectl demo and returns its runs and the document.
func demonstrate(t *testing.T, args ...string) ([]demonstrated, map[string]json.RawMessage) {
	t.Helper()
	got := run(t, "hedgectl", append([]string{"demo", "-o", "json", "--no-progress"}, args...)...)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("exit code %d\n%s", got.code, got.stderr)
	}
	if n := len(decode(t, got.stdout)); n != 1 {
		t.Fatalf("%d documents, want 1:\n%s", n, got.stdout)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	var runs []demonstrated
	if err := json.Unmarshal(doc["runs"], &runs); err != nil {
		t.Fatal(err)
	}
	return runs, doc
}

// startingTokens is the most that a client of the demonstration starts with.
const startingTokens = 20

// The demonstration, short: its JSON has every documented field, client and
// servers agree on every hedge, and the extra load is within the target and the
// starting tokens.
func TestDemo(t *testing.T) {
	t.Parallel()
	runs, doc := demonstrate(t, "--calls", "400", "--in-flight", "4", "--scenes", "none")
	var fields []map[string]any
	if err := json.Unmarshal(doc["runs"], &fields); err != nil {
		t.Fatal(err)
	}
	for i, r := range fields {
		for _, name := range runFields {
			if _, ok := r[name]; !ok {
				t.Errorf("runs[%d] has no %s: %v", i, name, r)
			}
		}
	}
	if string(doc["scenes"]) != "[]" {
		t.Errorf("scenes: %s, want []", doc["scenes"])
	}
	if len(runs) != 2 || runs[0].Policy != "plain" || runs[1].Policy != "hedged" {
		t.Fatalf("runs: %+v, want a plain and a hedged one", runs)
	}
	plain, hedged := runs[0], runs[1]
	if plain.HedgesClient != 0 || plain.HedgesServer != 0 || plain.Calls != 400 {
		t.Errorf("plain: %+v, want 400 calls and no hedge", plain)
	}
	if hedged.Delay == nil {
		t.Errorf("hedged: %+v, want a delay", hedged)
	}
	for _, r := range runs {
		wantConsistent(t, r)
		if r.Optimum != nil {
			t.Errorf("optimum %v from %d calls, want null under 4,000", *r.Optimum, plain.Calls)
		}
	}
}

// Without a plain run the daemon knows nothing at first, and hedging begins all
// the same.
func TestDemoCold(t *testing.T) {
	t.Parallel()
	runs, _ := demonstrate(t, "--calls", "3000", "--in-flight", "8", "--scenes", "none", "--cold", "--target", "0.04", "--seed", "7")
	if len(runs) != 1 || runs[0].Policy != "hedged" || runs[0].Target != 0.04 {
		t.Fatalf("runs: %+v, want a hedged one", runs)
	}
	if runs[0].FirstHedge == nil || runs[0].HedgesServer == 0 || runs[0].CancelledServer == 0 {
		t.Errorf("%+v: want hedges, and attempts cancelled in mid-flight", runs[0])
	} else {
		t.Logf("first hedge after %.0f ms", *runs[0].FirstHedge)
	}
	wantConsistent(t, runs[0])
}

// wantConsistent holds what is exact in every run.
func wantConsistent(t *testing.T, r demonstrated) {
	t.Helper()
	if r.Errors != 0 {
		t.Errorf("%s: %d calls failed", r.Policy, r.Errors)
	}
	if r.HedgesClient != r.HedgesServer+r.CancelledUnsent {
		t.Errorf("%s: the client counted %d hedges; the servers saw %d, and %d were never sent",
			r.Policy, r.HedgesClient, r.HedgesServer, r.CancelledUnsent)
	}
	most := r.Target + startingTokens/float64(r.Calls)
	if r.ExtraClient > most || r.ExtraServer > r.ExtraClient {
		t.Errorf("%s: extra load %v by the client and %v by the servers, want at most %v", r.Policy, r.ExtraClient, r.ExtraServer, most)
	}
}
