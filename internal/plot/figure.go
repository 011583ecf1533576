// Package plot draws figures over time, one panel above the other with one and the
// same axis: as SVG, and as lines of text for a terminal. It knows nothing about what
// they mean. ADR 30 says why it is no library.
package plot

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Figure is what is drawn.
type Figure struct {
	Title string
	Until time.Duration // where the axis ends; it begins at 0
	Names []string      // of the lines that every panel has
	Marks []Mark
	// Panels from top to bottom.
	Panels []Panel
}

// Mark is a moment at which something happened.
type Mark struct {
	At   time.Duration
	Text string
}

// Panel is one figure of every line.
type Panel struct {
	Title string
	Log   bool    // for what is above 0; nothing else is drawn then
	Bound float64 // a line that is not to be exceeded; 0: none
	Lines []Line
}

// Line has a value for each of as many equal spans of the axis; NaN: none.
type Line []float64

// drawable reports whether a panel shows a value.
func (p *Panel) drawable(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (v > 0 || !p.Log)
}

// extent is the least and the greatest of what the panel shows of lines; false: nothing.
func (p *Panel) extent(lines []Line) (least, most float64, ok bool) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, line := range lines {
		for _, v := range line {
			if p.drawable(v) {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	return least, most, least <= most
}

// scale maps a panel's values to 0 (bottom) to 1 (top).
type scale struct {
	log      bool
	from, to float64
	ticks    []float64
}

// newScale has round ends that hold the panel's values and its bound.
func newScale(p *Panel) scale {
	least, most, ok := p.extent(p.Lines)
	if !ok {
		least, most = 1, 1
	}
	if p.Bound > 0 {
		least, most = min(least, p.Bound), max(most, p.Bound)
	}
	if p.Log {
		return logScale(least, most)
	}
	return linearScale(min(least, 0), most)
}

// linearScale has some five ticks at 1, 2 or 5 times a power of ten.
func linearScale(least, most float64) scale {
	if most <= least {
		most = least + 1
	}
	step := roundStep((most - least) / 5)
	s := scale{from: math.Floor(least/step) * step, to: math.Ceil(most/step-1e-9) * step}
	for i := 0; ; i++ {
		t := s.from + float64(i)*step
		if t > s.to+step/2 {
			return s
		}
		s.ticks = append(s.ticks, t)
	}
}

func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= x*(1-1e-9) {
			return f * power
		}
	}
	return 10 * power
}

// logScale has ticks at 1, 2 and 5 times powers of ten; only at the powers where there
// are more than two of them, and at more than these within half a one.
func logScale(least, most float64) scale {
	low, high := math.Log10(least), math.Log10(most)
	factors := []float64{1, 2, 5}
	switch {
	case high-low > 2:
		factors = factors[:1]
	case high-low < .5:
		factors = []float64{1, 1.5, 2, 2.5, 3, 4, 5, 7}
	}
	var all []float64
	for e := math.Floor(low) - 1; e <= math.Ceil(high)+1; e++ {
		for _, f := range factors {
			all = append(all, f*math.Pow(10, e))
		}
	}
	first, last := 0, len(all)-1
	for all[first+1] <= least*(1+1e-9) {
		first++
	}
	for all[last-1] >= most*(1-1e-9) && last-1 > first {
		last--
	}
	return scale{log: true, from: all[first], to: all[last], ticks: all[first : last+1]}
}

func (s *scale) at(v float64) float64 {
	if s.log {
		return math.Log(v/s.from) / math.Log(s.to/s.from)
	}
	return (v - s.from) / (s.to - s.from)
}

// number is a value in as few digits as tell it.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a < 1e-12: // what is left of a sum that is 0
		return "0"
	case a >= 100 && a < 1e9:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// axis is the common one: its ticks and how they are written.
func (f *Figure) axis() (ticks []time.Duration, text func(time.Duration) string) {
	until := max(f.Until, time.Second)
	unit, name := time.Second, "s"
	switch {
	case until > 3*time.Hour:
		unit, name = time.Hour, "h"
	case until > 5*time.Minute:
		unit, name = time.Minute, "min"
	}
	step := roundStep(until.Seconds() / unit.Seconds() / 12)
	for t := 0.; t*float64(unit) <= float64(until); t += step {
		ticks = append(ticks, time.Duration(t*float64(unit)))
	}
	return ticks, func(d time.Duration) string {
		return fmt.Sprintf("%s %s", number(float64(d)/float64(unit)), name)
	}
}
