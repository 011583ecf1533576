package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The picture's measures, in pixels.
const (
	width       = 960
	left, right = 64, 32
	top         = 50 // title and legend
	panelHeight = 190
	panelGap    = 44 // a panel's title, and room for the marks' texts above the first
	bottom      = 36
	labelWidth  = 7 // of a letter, about
)

// colours tell up to eight lines apart for those too who see some colours alike
// (Okabe and Ito); after them dashes do. The last line is the one that the picture is
// about: it comes in the strongest.
var (
	colours   = []string{"#8a8a8a", "#e69f00", "#56b4e9", "#cc79a7", "#009e73", "#d55e00", "#b8a400", "#7b4fb0"}
	strongest = "#0050a0"
)

func (f *Figure) colour(i int) string {
	if i == len(f.Names)-1 && i > 0 {
		return strongest
	}
	return colours[i%len(colours)]
}

func (f *Figure) stroke(i int) string {
	switch {
	case i == len(f.Names)-1:
		return fmt.Sprintf(`stroke="%s" stroke-width="2.2"`, f.colour(i))
	case i >= len(colours):
		return fmt.Sprintf(`stroke="%s" stroke-width="1.3" stroke-dasharray="5 3"`, f.colour(i))
	default:
		return fmt.Sprintf(`stroke="%s" stroke-width="1.3"`, f.colour(i))
	}
}

// SVG writes the figure as a picture that needs nothing else.
func (f *Figure) SVG(w io.Writer) error {
	var b bytes.Buffer
	height := top + len(f.Panels)*(panelHeight+panelGap) + bottom
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="16" font-weight="600">%s</text>`+"\n", left, escaped(f.Title))
	f.legend(&b)
	for i := range f.Panels {
		f.panel(&b, &f.Panels[i], top+panelGap+i*(panelHeight+panelGap), i == 0)
	}
	ticks, text := f.axis()
	for _, t := range ticks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", f.x(t), height-bottom+18, text(t))
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (f *Figure) x(t time.Duration) float64 {
	return left + (width-left-right)*float64(t)/float64(max(f.Until, 1))
}

func (f *Figure) legend(b *bytes.Buffer) {
	x := left
	for i, name := range f.Names {
		fmt.Fprintf(b, `<path d="M%d 48h22" %s/><text x="%d" y="52">%s</text>`+"\n", x, f.stroke(i), x+28, escaped(name))
		x += 28 + labelWidth*len(name) + 20
	}
}

func (f *Figure) panel(b *bytes.Buffer, p *Panel, y0 int, first bool) {
	s := newScale(p)
	y := func(v float64) float64 { return float64(y0) + panelHeight*(1-s.at(v)) }
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", left, y0-8, escaped(p.Title))
	for _, t := range s.ticks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y(t), width-right, left-8, y(t)+4, number(t))
	}
	f.marks(b, y0, first)
	if p.Bound > 0 {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#c00" stroke-dasharray="2 4"/>`+"\n", left, y(p.Bound), width-right)
	}
	for i, line := range p.Lines {
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke-linejoin="round" %s/>`+"\n", f.path(p, line, y), f.stroke(i))
	}
}

// marks are thin lines in every panel, and their texts above the first, left out
// where they would lie on each other.
func (f *Figure) marks(b *bytes.Buffer, y0 int, texts bool) {
	free := float64(left + labelWidth*12) // the panel's title
	for _, m := range f.Marks {
		x := f.x(m.At)
		fmt.Fprintf(b, `<path d="M%.1f %dv%d" stroke="#999" stroke-dasharray="1 3"><title>%s</title></path>`+"\n", x, y0, panelHeight, escaped(m.Text))
		if size := float64(labelWidth * len(m.Text)); texts && x >= free && x+size < width-right {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#666" font-size="11">%s</text>`+"\n", x, y0-8, escaped(m.Text))
			free = x + size + labelWidth
		}
	}
}

// path draws a line's values in the middle of their spans; where there is none it has
// a gap, and a value alone is a dot.
func (f *Figure) path(p *Panel, line Line, y func(float64) float64) string {
	var d strings.Builder
	pen := false
	for i, v := range line {
		if !p.drawable(v) {
			pen = false
			continue
		}
		x := f.x(time.Duration((float64(i) + .5) / float64(len(line)) * float64(f.Until)))
		switch alone := i+1 == len(line) || !p.drawable(line[i+1]); {
		case pen:
			fmt.Fprintf(&d, "L%.1f %.1f", x, y(v))
		case alone:
			fmt.Fprintf(&d, "M%.1f %.1fh1.5", x-.75, y(v))
		default:
			fmt.Fprintf(&d, "M%.1f %.1f", x, y(v))
		}
		pen = true
	}
	return d.String()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
