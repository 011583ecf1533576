package sim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

// Format is how a scenario is written.
const Format = `A field and its values on each line, # before a comment. Fields marked * may change
in the course of a run: "at 30s slowdown 3".

  title     TEXT                      what it shows
  duration  TIME                      of a run, 1s to 24h
  warmup    TIME                      at its start, which does not count
  bound     TIME                      requests that take longer are counted
  target    SHARE                     most extra load; 5% unless said
  objective QUANTILE                  that hedged is to make short; .999 unless said
  attempts  N                         of a call at most, with policies that take a number: 2 to 5
  min-delay TIME                      shortest delay that hedged may choose
  probation SHARE                     of the replicas at most, with hedged; 0%: none
  clients   N [life TIME] *           1 to 1,000; each is replaced after so long on average
  fanout    N                         calls that a request makes and waits for
  arrivals  poisson RATE *            requests a second of all clients
  arrivals  steady RATE *             the same, evenly spaced
  arrivals  closed N                  callers that each wait for their answer
  bursts    RATE every TIME for TIME  arrivals in bursts
  daily     SHARE period TIME         arrivals swing by so much, as a sine
  latency   constant TIME *
  latency   uniform TIME TIME *       least, most
  latency   exponential TIME *        mean
  latency   lognormal TIME SIGMA *    median
  latency   pareto ALPHA TIME *       least
  latency   file PATH *               one measured latency a line
  stall     call SHARE TIME *         each attempt by itself takes so much longer
  stall     shared SHARE TIME *       every copy of a call does
  stall     replica SHARE TIME every TIME for TIME *  attempts on a replica, in its episodes
  stall     all SHARE TIME every TIME for TIME *      every copy of a call, in common episodes
  stall     off *
  correlation R                       of the latencies of a call's copies, 0 to 1
  method    SHARE FACTOR              of the calls are of a further method, with latencies times FACTOR
  replicas  N [workers N]             1 to 1,000; without workers nothing queues
  routing   random | round-robin | shortest-queue | better-of-two | peak-ewma
  cancel    at-once | queued | never  what a replica does about a cancelled attempt
  network   TIME [jitter TIME] *      one way
  zones     SHARE far TIME            so many clients and half of the replicas are in one zone, the others in
                                      another; the way between two zones takes so much longer
  slowdown  FACTOR [replica N] *      latencies times FACTOR; N counts from 0
  freeze    TIME *                    nothing moves at any replica for so long
  fail      SHARE [after TIME] *      of attempts
  reports   TIME [loss SHARE]         time between a client's reports
  servers   report | silent           whether replicas report what they work on, with hedged
  liars     SHARE WHAT                of the clients, with hedged, report latencies x0.01, x100 or random (times .01
                                      to 100), or counts that are a thousand times the true ones
  push      TIME                      a report's way to the daemon, and a policy's to the clients
  daemon    up | down *

A time is a number with its unit, such as 1.5s or 200us; a share is 5% or .05.
`

// Scenario is a world that was read from text; see Format. It is never written to
// after Parse, so any number of runs may share it.
type Scenario struct {
	Name  string // as Parse was given it
	Title string
	Text  string // that it was parsed from

	duration, warmup, bound time.Duration
	target                  float64
	attempts                int
	objective               float64
	minDelay                time.Duration
	probationCap            float64
	clients                 int
	clientLife              time.Duration // mean; 0: as long as the run
	fanout                  int
	arrivals                arrivals
	latency                 latencyModel
	correlation             float64
	independence            float64 // sqrt(1 - correlation^2)
	replicas, workers       int
	methods                 []methodShare // beside the first
	zones                   zones
	liars                   float64
	lie                     lie
	routing                 routing
	cancellation            cancellation
	cadence                 time.Duration
	loss                    float64
	silent                  bool // replicas do not report
	push                    time.Duration

	changes []change // by time
}

// change is what happens to a world at a time.
type change struct {
	at    time.Duration
	line  int
	text  string // without its time
	apply func(*World)
}

// Target is the extra load that the scenario allows.
func (s *Scenario) Target() float64 { return s.target }

// Bound is what Result.Over counts from.
func (s *Scenario) Bound() time.Duration { return s.bound }

// config is how the operator of the scenario's service configured it.
func (s *Scenario) config() control.Config {
	c := control.DefaultConfig()
	c.Configured = true
	c.Target = s.target
	c.MaxAttempts = s.attempts
	c.Objective = s.objective
	c.MinDelay = s.minDelay
	c.ProbationCap = s.probationCap
	return c
}

// Bounds of a scenario, so that a run fits on a machine.
const (
	maxText     = 1 << 16
	maxClients  = 1000
	maxReplicas = 1000
	maxDuration = 24 * time.Hour
	maxTime     = time.Hour
	maxRate     = 1e6
	maxChanges  = 1000
	maxCalls    = 1e8
)

// Parse reads a scenario. name is for errors and results; open reads the file of
// `latency file PATH`, and may be nil: then there is none. Errors name file, line,
// field, value and bound.
func Parse(name, text string, open func(path string) ([]byte, error)) (*Scenario, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%s: is %d bytes long, want at most %d", name, len(text), maxText)
	}
	p := &parser{
		name: name,
		open: open,
		seen: map[string]int{},
		s: &Scenario{
			Name:         strings.TrimSuffix(path.Base(name), ".txt"),
			Text:         text,
			duration:     time.Minute,
			warmup:       10 * time.Second,
			bound:        time.Second,
			target:       .05,
			attempts:     policy.DefaultMaxAttempts,
			objective:    control.DefaultConfig().Objective,
			minDelay:     control.DefaultConfig().MinDelay,
			probationCap: control.DefaultConfig().ProbationCap,
			clients:      1,
			fanout:       1,
			arrivals:     arrivals{rate: 1000},
			independence: 1,
			replicas:     3,
			cadence:      time.Second,
			push:         time.Millisecond,
		},
	}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(i+1, line); err != nil {
			return nil, err
		}
	}
	if err := p.whole(); err != nil {
		return nil, err
	}
	return p.s, nil
}

// whole checks what concerns several fields.
func (p *parser) whole() error {
	s := p.s
	slices.SortStableFunc(s.changes, func(a, b change) int { return int(max(min(a.at-b.at, 1), -1)) })
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s: %s", p.name, max(p.seen[field], 1), field, fmt.Sprintf(format, args...))
	}
	switch a := &s.arrivals; {
	case s.latency == nil:
		return bad("latency", "is missing, want for example \"latency lognormal 10ms 0.5\"")
	case s.warmup >= s.duration:
		return bad("warmup", "%v, want less than the duration of %v", s.warmup, s.duration)
	case a.closed > 0 && (a.burstRate > 0 || a.swing > 0):
		return bad("arrivals", "closed, want poisson or steady where there are bursts or a daily curve")
	case a.burstFor > 0 && a.burstFor >= a.burstEvery:
		return bad("bursts", "for %v, want less than every %v", a.burstFor, a.burstEvery)
	}
	for _, c := range s.changes {
		if c.at >= s.duration {
			return fmt.Errorf("%s:%d: at: %v, want less than the duration of %v", p.name, c.line, c.at, s.duration)
		}
	}
	for _, r := range p.named {
		if r.replica >= s.replicas {
			return fmt.Errorf("%s:%d: slowdown: replica %d, want 0 to %d", p.name, r.line, r.replica, s.replicas-1)
		}
	}
	// The latency of each request is kept until the end of the run.
	rate := max(s.arrivals.rate, s.arrivals.burstRate) * (1 + s.arrivals.swing) * float64(s.fanout)
	if calls := rate * s.duration.Seconds(); s.arrivals.closed == 0 && calls > maxCalls {
		return bad("duration", "%v at %g calls a second is %.3g calls, want at most %g", s.duration, rate, calls, float64(maxCalls))
	}
	s.independence = math.Sqrt(1 - s.correlation*s.correlation)
	return nil
}
