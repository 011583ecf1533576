package goals

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/hedged-project/hedged/sim"
)

// Figure is a measured number and its standard deviation over seeds; 0 where it
// is one number of all seeds together.
type Figure struct{ Value, SD float64 }

// Of returns the median over seeds of what figure says of a run.
func Of(row sim.Row, figure func(*sim.Result) float64) Figure {
	s := row.Spread(figure)
	return Figure{Value: s.Median, SD: s.SD}
}

// Mean returns the mean over seeds of what figure says of a run.
func Mean(row sim.Row, figure func(*sim.Result) float64) Figure {
	f := Figure{SD: row.Spread(figure).SD}
	for _, r := range row.Results {
		f.Value += figure(r) / float64(len(row.Results))
	}
	return f
}

// Worst returns the largest over seeds of what figure says of a run.
func Worst(row sim.Row, figure func(*sim.Result) float64) Figure {
	s := row.Spread(figure)
	return Figure{Value: s.Most, SD: s.SD}
}

// Pooled returns a quantile of the latencies of all seeds together in ms, and the
// deviation of a single seed's.
func Pooled(row sim.Row, q float64) Figure {
	s := row.Spread(func(r *sim.Result) float64 {
		d, _ := r.Pooled.Quantile(q)
		return sim.Millis(d)
	})
	return Figure{Value: sim.Millis(row.Pooled(q)), SD: s.SD}
}

// Check is one bound of a goal.
type Check struct {
	Name     string
	Measured float64 // NaN: nothing was
	Unit     string  // of Measured and the bound: "%", "ms", "s"; none: a number
	Goal     string  // the bound
	SD       float64
	Pass     bool
}

// AtMost is the check that a figure is not above a bound.
func AtMost(name, unit string, f Figure, most float64) Check {
	return Check{Name: name, Measured: f.Value, Unit: unit, Goal: fmt.Sprintf("<= %.4g%s", most, suffix(unit)), SD: f.SD, Pass: f.Value <= most}
}

// AtLeast is the check that a figure is not below a bound.
func AtLeast(name, unit string, f Figure, least float64) Check {
	return Check{Name: name, Measured: f.Value, Unit: unit, Goal: fmt.Sprintf(">= %.4g%s", least, suffix(unit)), SD: f.SD, Pass: f.Value >= least}
}

// Near is the check that a figure is at most so much off, both ways.
func Near(name, unit string, f Figure, want, off float64) Check {
	return Check{Name: name, Measured: f.Value, Unit: unit, Goal: fmt.Sprintf("%.4g%s +- %.2g", want, suffix(unit), off), SD: f.SD, Pass: math.Abs(f.Value-want) <= off}
}

func suffix(unit string) string {
	if unit == "" || unit == "%" {
		return unit
	}
	return " " + unit
}

// Text is the measured number with its unit.
func (c *Check) Text() string {
	if math.IsNaN(c.Measured) {
		return "nothing"
	}
	return fmt.Sprintf("%.4g%s", c.Measured, suffix(c.Unit))
}

// MarshalJSON writes numbers that JSON has none for as null.
func (c Check) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // "<=" stays legible
	err := e.Encode(struct {
		Name     string   `json:"name"`
		Measured *float64 `json:"measured"`
		Unit     string   `json:"unit"`
		Goal     string   `json:"goal"`
		SD       *float64 `json:"sd"`
		Pass     bool     `json:"pass"`
	}{c.Name, finite(c.Measured), c.Unit, c.Goal, finite(c.SD), c.Pass})
	return b.Bytes(), err
}

func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
