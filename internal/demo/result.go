package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Result is everything that the demonstration measured. A figure's name ends in
// its unit, but for counts and ratios.
type Result struct {
	Runs      []Run       `json:"runs"`
	Simulated []Simulated `json:"simulated"`
	Scenes    []Scene     `json:"scenes"`
}

// Run is one run of the article's experiment under one policy.
type Run struct {
	Run             int     `json:"run"` // 1, 2, ...
	InFlight        int     `json:"in_flight"`
	Policy          string  `json:"policy"` // plain or hedged
	Calls           int     `json:"calls"`
	Errors          int     `json:"errors"`
	P50             float64 `json:"p50_ms"`
	P99             float64 `json:"p99_ms"`
	P999            float64 `json:"p999_ms"`
	Over1s          int     `json:"over_1s"`
	HedgesClient    uint64  `json:"hedges_client"`
	HedgesServer    uint64  `json:"hedges_server"`
	CancelledUnsent uint64  `json:"cancelled_unsent"`
	ExtraClient     float64 `json:"extra_client"` // hedges per call, as the client decided them
	ExtraServer     float64 `json:"extra_server"` // hedges per call, as the servers saw them
	CancelledServer uint64  `json:"cancelled_server"`
	// Delay at the end of the run; null: none, so no call is hedged.
	Delay  *float64 `json:"delay_ms"`
	Target float64  `json:"target"`
	// Optimum is the least p99.9 that two attempts within the target reach, on
	// the latencies of all plain runs with as many in flight; null: too few.
	Optimum *float64 `json:"optimum_p999_ms"`
	// FirstHedge is the time from the first call until a hedge was seen, to 10 ms; null: none.
	FirstHedge *float64 `json:"first_hedge_ms"`
	// Moves are the policies that came into force with another delay.
	Moves []Move `json:"moves"`
}

// Move is one change of delay, as a client applied it.
type Move struct {
	At    float64 `json:"at_ms"` // since the client started
	Delay float64 `json:"delay_ms"`
}

// Scene is what one scene measured. As JSON it is one object: its name, then its
// figures by theirs.
type Scene struct {
	Name    string
	Figures []Figure
}

// Figure is one number of a scene. Name ends in its unit; counts have none.
type Figure struct {
	Name  string
	Value float64
}

// MarshalJSON keeps the order of the figures.
func (s Scene) MarshalJSON() ([]byte, error) {
	b := append([]byte(`{"name":`), strconv.Quote(s.Name)...)
	for _, f := range s.Figures {
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", f.Name, s.Name, err)
		}
		b = append(append(b, ','), strconv.Quote(f.Name)...)
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}
