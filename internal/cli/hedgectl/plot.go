package hedgectl

import (
	"bytes"
	"fmt"
	"os"

	"github.com/hedged-project/hedged/internal/plot"
	"github.com/hedged-project/hedged/sim"
)

// textColumns is how wide the terminal's picture is, so that it fits beside the names
// of policies into 80 columns.
const textColumns = 48

// drawing is what policies did over the scenario's time.
func drawing(sc *sim.Scenario, rows []sim.Row) *plot.Figure {
	f := &plot.Figure{
		Title: sc.Name + ": " + sc.Title,
		Until: sc.Duration(),
		Panels: []plot.Panel{
			{Title: "delay, ms", Log: true},
			{Title: "extra load, %", Bound: 100 * sc.Target()},
			{Title: "p99.9, ms", Log: true},
		},
	}
	for _, c := range sc.Changes() {
		f.Marks = append(f.Marks, plot.Mark{At: c.At, Text: c.Text})
	}
	for i := range rows {
		f.Names = append(f.Names, rows[i].Policy.Name)
		moments := rows[i].Timeline.Moments()
		lines := [3]plot.Line{}
		for _, m := range moments {
			lines[0] = append(lines[0], m.Delay)
			lines[1] = append(lines[1], m.Extra)
			lines[2] = append(lines[2], m.P999)
		}
		for k := range lines {
			f.Panels[k].Lines = append(f.Panels[k].Lines, lines[k])
		}
	}
	return f
}

// draw writes a figure to a file.
func draw(name string, f *plot.Figure) error {
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil {
		return err
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}
