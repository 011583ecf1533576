package sim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/internal/suggest"
	"github.com/hedged-project/hedged/policy"
)

// parser reads one scenario.
type parser struct {
	name string
	open func(string) ([]byte, error)
	s    *Scenario
	seen map[string]int // the line of each field that was set without "at"

	named []namedReplica

	// Of the line under way.
	number int
	at     time.Duration
	timed  bool   // it began with "at"
	text   string // without its time
	field  string
	words  []string
}

// namedReplica is a replica's number, which is checked once their count is known.
type namedReplica struct{ replica, line int }

// field is one field of a scenario.
type field struct {
	name    string
	changes bool // may follow "at"
	again   bool // may be set on several lines without "at"
	set     func(*parser) error
}

var fields []field

// The table refers to functions that suggest names out of it.
func init() {
	fields = []field{
		{name: "title", set: (*parser).title},
		{name: "duration", set: func(p *parser) error { return p.time("time", &p.s.duration, time.Second, maxDuration) }},
		{name: "warmup", set: func(p *parser) error { return p.time("time", &p.s.warmup, 0, maxDuration) }},
		{name: "bound", set: func(p *parser) error { return p.time("time", &p.s.bound, 1, maxTime) }},
		{name: "target", set: func(p *parser) error {
			return p.share("share", &p.s.target, control.MinTarget, control.MaxTarget)
		}},
		{name: "objective", set: func(p *parser) error {
			return p.real("quantile", &p.s.objective, control.MinObjective, control.MaxObjective)
		}},
		{name: "attempts", set: func(p *parser) error { return p.integer("number", &p.s.attempts, 2, policy.MaxAttempts) }},
		{name: "min-delay", set: func(p *parser) error { return p.time("time", &p.s.minDelay, 1, 10*time.Second) }},
		{name: "probation", set: func(p *parser) error { return p.share("share", &p.s.probationCap, 0, 1) }},
		{name: "clients", changes: true, set: (*parser).clients},
		{name: "fanout", set: func(p *parser) error { return p.integer("number", &p.s.fanout, 1, 1000) }},
		{name: "arrivals", changes: true, set: (*parser).arrivals},
		{name: "bursts", set: (*parser).bursts},
		{name: "daily", set: (*parser).daily},
		{name: "latency", changes: true, set: (*parser).latency},
		{name: "stall", changes: true, again: true, set: (*parser).stall},
		{name: "correlation", set: func(p *parser) error { return p.real("number", &p.s.correlation, 0, 1) }},
		{name: "method", again: true, set: (*parser).method},
		{name: "replicas", set: (*parser).replicas},
		{name: "routing", set: (*parser).routing},
		{name: "cancel", set: (*parser).cancel},
		{name: "network", changes: true, set: (*parser).network},
		{name: "zones", set: (*parser).zones},
		{name: "slowdown", changes: true, again: true, set: (*parser).slowdown},
		{name: "freeze", changes: true, set: (*parser).freeze},
		{name: "fail", changes: true, set: (*parser).fail},
		{name: "reports", set: (*parser).reports},
		{name: "servers", set: (*parser).servers},
		{name: "liars", set: (*parser).liars},
		{name: "push", set: func(p *parser) error { return p.time("time", &p.s.push, 0, 10*time.Second) }},
		{name: "daemon", changes: true, set: (*parser).daemon},
	}
}

func fieldNames() []string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return names
}

func (p *parser) line(number int, line string) error {
	line, _, _ = strings.Cut(line, "#")
	p.number, p.words, p.at, p.timed, p.field = number, strings.Fields(line), 0, false, "at"
	if len(p.words) == 0 {
		return nil
	}
	if p.words[0] == "at" {
		p.words, p.timed = p.words[1:], true
		if err := p.time("time", &p.at, 0, maxDuration); err != nil {
			return err
		}
		if len(p.words) == 0 {
			return p.bad("no field follows, want one such as \"slowdown 3\"")
		}
	}
	p.text = strings.Join(p.words, " ")
	p.field, p.words = p.words[0], p.words[1:]
	for i := range fields {
		f := &fields[i]
		if f.name != p.field {
			continue
		}
		switch first, set := p.seen[f.name]; {
		case p.timed && !f.changes:
			return p.bad("cannot change in the course of a run")
		case !p.timed && set && !f.again:
			return p.bad("was set already, on line %d", first)
		case !p.timed:
			p.seen[f.name] = number
		}
		if len(p.s.changes) >= maxChanges {
			return p.bad("has more than %d changes before it", maxChanges)
		}
		if err := f.set(p); err != nil {
			return err
		}
		if len(p.words) > 0 {
			return p.bad("%.40q is one value too many", p.words[0])
		}
		return nil
	}
	field := p.field
	p.field = "field"
	return p.bad("%.40q is unknown%s", field, suggest.For(field, fieldNames()))
}

// bad is an error about the field under way.
func (p *parser) bad(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", p.name, p.number, p.field, fmt.Sprintf(format, args...))
}

func (p *parser) change(apply func(*World)) {
	p.s.changes = append(p.s.changes, change{p.at, p.number, p.text, apply})
}

// word takes the next value.
func (p *parser) word(what string) (string, error) {
	if len(p.words) == 0 {
		return "", p.bad("the %s is missing", what)
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w, nil
}

// choice takes one of several words.
func (p *parser) choice(what string, options ...string) (int, error) {
	w, err := p.word(what + ", " + suggest.List(options) + ",")
	if err != nil {
		return 0, err
	}
	for i, o := range options {
		if o == w {
			return i, nil
		}
	}
	return 0, p.bad("%s %.40q, want %s%s", what, w, suggest.List(options), suggest.For(w, options))
}

// option takes a keyword if it comes next.
func (p *parser) option(keyword string) bool {
	if len(p.words) == 0 || p.words[0] != keyword {
		return false
	}
	p.words = p.words[1:]
	return true
}

// keyword takes a word that must come next.
func (p *parser) keyword(keyword string) error {
	if p.option(keyword) {
		return nil
	}
	if len(p.words) == 0 {
		return p.bad("%q and its value are missing", keyword)
	}
	return p.bad("%.40q, want %q", p.words[0], keyword)
}

func (p *parser) time(what string, into *time.Duration, least, most time.Duration) error {
	w, err := p.word(what)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(w)
	if err != nil || d < least || d > most {
		return p.bad("%s %.40q, want a time of %v to %v", what, w, least, most)
	}
	*into = d
	return nil
}

func (p *parser) integer(what string, into *int, least, most int) error {
	w, err := p.word(what)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(w)
	if err != nil || n < least || n > most {
		return p.bad("%s %.40q, want a whole number of %d to %d", what, w, least, most)
	}
	*into = n
	return nil
}

func (p *parser) real(what string, into *float64, least, most float64) error {
	w, err := p.word(what)
	if err != nil {
		return err
	}
	v, err := strconv.ParseFloat(w, 64)
	if err != nil || !(v >= least && v <= most) {
		return p.bad("%s %.40q, want a number of %g to %g", what, w, least, most)
	}
	*into = v
	return nil
}

// share reads "5%" or ".05".
func (p *parser) share(what string, into *float64, least, most float64) error {
	w, err := p.word(what)
	if err != nil {
		return err
	}
	digits, percent := strings.CutSuffix(w, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= least && v <= most) || math.IsInf(v, 0) {
		return p.bad("%s %.40q, want a share of %g%% to %g%%", what, w, 100*least, 100*most)
	}
	*into = v
	return nil
}

// first returns the first error.
func first(errs ...func() error) error {
	for _, f := range errs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("files are not read here")
