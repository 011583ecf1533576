package client

import (
	"context"
	"strings"
	"time"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Bounds and default of the time between reports.
const (
	minCadence     = 100 * time.Millisecond
	maxCadence     = time.Minute
	defaultCadence = time.Second
)

// maxRefusals is how many kinds of refusal are logged.
const maxRefusals = 64

// sequence numbers the reports of one source. Guarded by Client.mu.
type sequence struct {
	last uint64
	lost uint64 // observations given up since the last report
}

// report sends reports until ctx ends: all at the cadence, and ahead of it those of
// a service that is busy or whose eligibility ran away. Policies that come into force
// cut a report by themselves, see Apply.
func (c *Client) report(ctx context.Context) {
	cadence := defaultCadence
	looks := 0
	timer := time.NewTimer(cadence / hedge.ReportLooks)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-c.cadence:
			if d != cadence { // each answer repeats it
				cadence = d
				timer.Reset(cadence / hedge.ReportLooks)
			}
		case <-timer.C:
			looks++
			c.flush(looks, time.Now())
			timer.Reset(cadence / hedge.ReportLooks)
		case <-c.early: // no more often than hedge.EarlyRule allows
			c.flushEarly(time.Now())
		}
	}
}

// wake asks for an early report. It never blocks.
func (c *Client) wake() {
	select {
	case c.early <- struct{}{}:
	default:
	}
}

// flush makes the reports of a look, which is every service's and server's once in a
// cadence; one where nothing happened sends an empty report, whose answer shows that
// the controller lives.
func (c *Client) flush(look int, now time.Time) {
	for _, s := range c.all() {
		if hedge.Reports(look, s.begun()) {
			c.cut(s, now)
		}
	}
	for _, s := range c.allServers() {
		if hedge.Reports(look, 0) {
			c.hand(s.source, s.drain(now))
		}
	}
}

// flushEarly reports the services whose eligibility ran away.
func (c *Client) flushEarly(now time.Time) {
	for _, s := range c.all() {
		if s.runaway.Load() {
			c.cut(s, now)
		}
	}
}

// cut ends a service's interval at now and hands over its report. The report
// carries the generation that was in force when the interval began: a policy
// that comes into force cuts at once, so counts of two do not mix.
func (c *Client) cut(s *service, now time.Time) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	r := s.drain(now)
	r.Service = s.key
	r.Generation = s.generation
	r.Early = s.runaway.Swap(false)
	r.Silent = s.silence.Silent()
	s.early.Reset()
	s.generation = policy.Generation{}
	if p := s.policy(); p != nil {
		s.generation = p.Generation
	}
	c.hand(c.source, r)
}

// hand numbers a report and gives it to the controller.
func (c *Client) hand(src report.Source, r *report.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seq := c.sources[src]
	if seq == nil {
		seq = &sequence{}
		c.sources[src] = seq
	}
	seq.last++
	r.Source, r.Sequence = src, seq.last
	r.Dropped, seq.lost = seq.lost, 0
	seq.lost = c.controller.Report(r)
}

// Apply implements Listener.
func (c *Client) Apply(p *policy.Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	c.Heard()
	c.mu.Lock()
	s := c.services[p.Key]
	c.mu.Unlock()
	if s == nil || !s.apply(p) {
		return nil
	}
	c.cut(s, time.Now())
	if c.opts.OnPolicy != nil {
		c.opts.OnPolicy(*p)
	}
	return nil
}

// Heard implements Listener.
func (c *Client) Heard() {
	now := time.Now()
	for _, s := range c.all() {
		s.renew(now)
	}
}

// Refused implements Listener. It logs the first report of a kind.
func (c *Client) Refused(reason string) {
	c.refused.Add(1)
	kind, _, _ := strings.Cut(reason, ":")
	kind, _, _ = strings.Cut(kind, "[") // a name follows
	c.mu.Lock()
	again := c.refusals[kind] || len(c.refusals) >= maxRefusals
	if !again {
		c.refusals[kind] = true
	}
	c.mu.Unlock()
	if !again {
		c.log.Error("a report was refused", "reason", reason)
	}
}

// SetCadence implements Listener.
func (c *Client) SetCadence(d time.Duration) {
	d = min(max(d, minCadence), maxCadence)
	select {
	case <-c.cadence: // an older wish
	default:
	}
	select {
	case c.cadence <- d:
	default: // another goroutine's wish came between; either will do
	}
}
