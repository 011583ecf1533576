// Package trace says what hedging would have bought for calls that were measured
// without it, at which budget, and how sure that is; and what picking away from slow
// replicas would have.
//
// It replays no load: a copy takes what a call on another replica took at about that
// time, and that hedges and other picks change queues is left out. Where the trace does
// not say who was called when, copies are taken to be independent, which is the best
// case. Read offer.go first.
package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a trace.
const (
	MaxBytes    = 256 << 20
	maxCalls    = 5_000_000
	minCalls    = 1000 // fewer have no p99 to speak of
	maxReplicas = 1000
	maxName     = 253
	maxLatency  = 24 * time.Hour
)

// Trace is calls that were measured without hedging, in the order of their arrival.
type Trace struct {
	Name     string
	Replicas []string // names, sorted; none: the trace does not say
	Span     time.Duration

	calls []call
}

type call struct {
	arrival time.Duration // since the first; the order of lines where the trace has none
	latency time.Duration
	replica int32
}

// Calls is how many there are.
func (t *Trace) Calls() int { return len(t.calls) }

// header may stand on the first line of a trace of three values.
const header = "arrival,replica,latency"

// Parse reads one latency a line, such as "12.5ms", or on every line
// "ARRIVAL,REPLICA,LATENCY", with the arrival as a time since any moment, such as
// "1.5s", or of the day, such as "2026-01-02T15:04:05.123Z". Empty lines and those that
// begin with # do not count. name is for errors, which name line, field and value.
func Parse(name string, text []byte) (*Trace, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s: is %d bytes long, want at most %d", name, len(text), MaxBytes)
	}
	p := parser{t: &Trace{Name: name}, replicas: map[string]int32{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if n := len(p.t.calls); n < minCalls {
		return nil, fmt.Errorf("%s: has %d calls, want at least %d", name, n, minCalls)
	}
	p.finish()
	return p.t, nil
}

type parser struct {
	t        *Trace
	begun    bool // a line was read, which says how many values each has
	values   int
	dated    bool // arrivals are times of day
	first    time.Time
	names    []string
	replicas map[string]int32
}

func (p *parser) line(line string) error {
	if !p.begun {
		p.begun = true
		p.values = 1 + strings.Count(line, ",")
		if p.values != 1 && p.values != 3 {
			return fmt.Errorf("has %d values, want one, a latency, or three: %s", p.values, header)
		}
		if strings.ReplaceAll(line, " ", "") == header {
			return nil
		}
	}
	values := strings.Split(line, ",")
	if len(values) != p.values {
		return fmt.Errorf("has %d values, want %d as on the lines before", len(values), p.values)
	}
	if len(p.t.calls) == maxCalls {
		return fmt.Errorf("is a call too many, want at most %d", maxCalls)
	}
	c := call{arrival: time.Duration(len(p.t.calls))}
	var err error
	if p.values == 3 {
		if c.arrival, err = p.arrival(strings.TrimSpace(values[0])); err != nil {
			return err
		}
		if c.replica, err = p.replica(strings.TrimSpace(values[1])); err != nil {
			return err
		}
	}
	text := strings.TrimSpace(values[len(values)-1])
	if c.latency, err = time.ParseDuration(text); err != nil || c.latency < 0 || c.latency > maxLatency {
		return fmt.Errorf("latency: %.40q, want a time with its unit such as 12.5ms, 0s to %v", text, maxLatency)
	}
	p.t.calls = append(p.t.calls, c)
	return nil
}

func (p *parser) arrival(text string) (time.Duration, error) {
	first := len(p.t.calls) == 0
	if first {
		at, err := time.Parse(time.RFC3339Nano, text)
		p.dated, p.first = err == nil, at
	}
	if p.dated {
		at, err := time.Parse(time.RFC3339Nano, text)
		d := at.Sub(p.first)
		if err != nil || d > 365*maxLatency || d < -365*maxLatency {
			return 0, fmt.Errorf("arrival: %.40q, want a time of day such as 2026-01-02T15:04:05.123Z, as on the first line, within a year of it", text)
		}
		return d, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 365*maxLatency {
		return 0, fmt.Errorf("arrival: %.40q, want a time since the start such as 1.5s, or of the day such as 2026-01-02T15:04:05.123Z on every line", text)
	}
	return d, nil
}

func (p *parser) replica(name string) (int32, error) {
	if i, ok := p.replicas[name]; ok {
		return i, nil
	}
	switch {
	case name == "":
		return 0, fmt.Errorf("replica: is missing")
	case len(name) > maxName || !utf8.ValidString(name):
		return 0, fmt.Errorf("replica: %.40q, want at most %d bytes of UTF-8", name, maxName)
	case len(p.names) == maxReplicas:
		return 0, fmt.Errorf("replica: %.40q is one too many, want at most %d", name, maxReplicas)
	}
	i := int32(len(p.names))
	name = strings.Clone(name) // not the whole line
	p.names = append(p.names, name)
	p.replicas[name] = i
	return i, nil
}

// finish sorts the calls, whose lines may stand in the order in which they ended.
func (p *parser) finish() {
	t := p.t
	slices.SortStableFunc(t.calls, func(a, b call) int { return cmp.Compare(a.arrival, b.arrival) })
	first := t.calls[0].arrival
	for i := range t.calls {
		t.calls[i].arrival -= first
	}
	if p.values == 3 {
		t.Span = t.calls[len(t.calls)-1].arrival
	}
	t.Replicas = p.names
}
