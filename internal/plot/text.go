package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// bars are eight heights of a column.
var bars = []rune("▁▂▃▄▅▆▇█")

// Text writes each line of each panel as a row of bars, so many columns wide, and its
// least and greatest value. All bars of a panel have one scale.
func (f *Figure) Text(w io.Writer, columns int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range f.Panels {
		p := &f.Panels[i]
		least, most, ok := p.extent(p.Lines)
		if !ok {
			continue
		}
		fmt.Fprintf(t, "%s\t\t\n", p.Title)
		for k, line := range p.Lines {
			extent := "none"
			if from, to, ok := p.extent([]Line{line}); ok {
				extent = number(from) + " to " + number(to)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\n", f.Names[k], p.row(line, columns, least, most), extent)
		}
	}
	_, text := f.axis()
	fmt.Fprintf(t, "\t%-*s%s\t\n", max(columns-len([]rune(text(f.Until))), 1), "0", text(f.Until))
	return t.Flush()
}

// row shows the mean of the values that fall into a column.
func (p *Panel) row(line Line, columns int, least, most float64) string {
	var b strings.Builder
	columns = min(columns, len(line))
	for c := range columns {
		sum, n := 0.0, 0.0
		for _, v := range line[c*len(line)/columns : (c+1)*len(line)/columns] {
			if p.drawable(v) {
				sum, n = sum+v, n+1
			}
		}
		if n == 0 {
			b.WriteByte(' ')
			continue
		}
		share := (sum/n - least) / (most - least)
		if p.Log {
			share = math.Log(sum/n/least) / math.Log(most/least)
		}
		if math.IsNaN(share) { // all are the same
			share = 0
		}
		b.WriteRune(bars[min(max(int(share*float64(len(bars))), 0), len(bars)-1)])
	}
	return b.String()
}
