package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func figure() *Figure {
	nan := math.NaN()
	return &Figure{
		Title: `a < b & "c"`,
		Until: 80 * time.Second,
		Names: []string{"none", "ours"},
		Marks: []Mark{{40 * time.Second, "slowdown 3"}, {41 * time.Second, "slowdown 1"}},
		Panels: []Panel{
			{Title: "delay, ms", Log: true, Lines: []Line{{nan, nan, nan, nan, nan, nan, nan, nan}, {10, 10, nan, 20, nan, 30, 30, 10}}},
			{Title: "extra load, %", Bound: 5, Lines: []Line{{0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 4, 4, 4}}},
			{Title: "p99.9, ms", Log: true, Lines: []Line{{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, {0, 30, 30, 30, 30, 30, 30, 30}}},
		},
	}
}

// paths returns the d of every path of a picture that is well-formed.
func paths(t *testing.T, f *Figure) (all []string, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	text = b.String()
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
			for _, a := range e.Attr {
				if a.Name.Local == "d" {
					all = append(all, a.Value)
				}
			}
		}
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	all, text := paths(t, figure())
	for _, want := range []string{"a &lt; b &amp;", ">1000<", ">extra load, %<", ">40 s<", ">slowdown 3</text>", "<title>slowdown 1</title>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, ">slowdown 1</text>") {
		t.Error("two marks' texts lie on each other")
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("a number that is none in\n%s", text)
	}
	// A gap where there is no value, and a dot for one that is alone.
	found := false
	for _, d := range all {
		found = found || strings.Count(d, "M") == 3 && strings.Count(d, "h1.5") == 1 && strings.Count(d, "L") == 3
	}
	if !found {
		t.Errorf("no line with a gap and a dot in %q", all)
	}
}

func TestEmptyFigure(t *testing.T) {
	t.Parallel()
	f := &Figure{Names: []string{"none"}, Panels: []Panel{{Title: "delay", Log: true, Lines: []Line{nil}}, {Title: "extra", Lines: []Line{{math.NaN()}}}}}
	if _, text := paths(t, f); strings.Contains(text, "NaN") {
		t.Errorf("got %s", text)
	}
	var b bytes.Buffer
	if err := f.Text(&b, 10); err != nil || strings.Contains(b.String(), "delay") {
		t.Errorf("got %v and %s, want no panel without values", err, &b)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := figure().Text(&b, 8); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"delay, ms", "none                   none", "ours         ▁▁ ▆ ██▁  10 to 30", "ours         ▁▃▅▇████  0 to 4", "none         ████████  1000 to 1000", "ours          ▁▁▁▁▁▁▁  30 to 30", "0   80 s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		panel Panel
		want  []float64
	}{
		{"linear", Panel{Lines: []Line{{0, 4.3}}}, []float64{0, 1, 2, 3, 4, 5}},
		{"with a bound", Panel{Bound: 5, Lines: []Line{{1}}}, []float64{0, 1, 2, 3, 4, 5}},
		{"below zero", Panel{Lines: []Line{{-3, 7}}}, []float64{-4, -2, 0, 2, 4, 6, 8}},
		{"nothing but zero", Panel{Lines: []Line{{0}}}, []float64{0, .2, .4, .6, .8, 1}},
		{"logarithmic", Panel{Log: true, Lines: []Line{{12, 180}}}, []float64{10, 20, 50, 100, 200}},
		{"over decades", Panel{Log: true, Lines: []Line{{1, 503}}}, []float64{1, 10, 100, 1000}},
		{"within half a power", Panel{Log: true, Lines: []Line{{26, 39}}}, []float64{25, 30, 40}},
		{"one value", Panel{Log: true, Lines: []Line{{10}}}, []float64{10, 15}},
	} {
		s := newScale(&c.panel)
		ok := len(s.ticks) == len(c.want)
		for i := 0; ok && i < len(c.want); i++ {
			ok = math.Abs(s.ticks[i]-c.want[i]) < 1e-9*max(1, c.want[i])
		}
		if !ok {
			t.Errorf("%s: got %v, want %v", c.name, s.ticks, c.want)
		}
		for _, line := range c.panel.Lines {
			for _, v := range line {
				if at := s.at(v); at < -1e-9 || at > 1+1e-9 {
					t.Errorf("%s: %v is outside, at %v", c.name, v, at)
				}
			}
		}
	}
}
