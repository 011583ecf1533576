package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

const (
	tickEvery = 250 * time.Millisecond
	// A service that nothing was heard of for quietAfter is decided on every
	// quietTick only: by then nothing in the law's memory is left to expire but
	// names. Thousands of idle services cost next to nothing that way.
	quietAfter = 2 * time.Minute
	quietTick  = 30 * time.Second

	// What is shown of the past is saved so often where no policy changes.
	saveEvery = 5 * time.Minute

	inboxSize  = 256 // reports; a full inbox holds up only the streams that post to it
	maxChanges = 100 // remembered of each service
)

// owner owns one service: its goroutine alone touches the law and the totals.
// Others post to it, and read the snapshot that it leaves after each tick.
type owner struct {
	key     policy.Key
	law     *control.Service
	table   *table
	rules   func(policy.Key) (control.Config, *control.Override)
	logger  *slog.Logger
	inbox   chan *report.Report
	reviews chan review

	snapshot atomic.Pointer[snapshot]

	// The goroutine's own.
	inForce *policy.Policy // published last; nil: the next tick publishes
	resumed bool           // inForce is from before a restart
	totals  totals
	changes []change // newest first
	series  series
	saved   time.Time
	heard   time.Time // when measurements came in last
}

// review asks the owner to read its rules again and to decide at once.
type review struct {
	renumber bool          // publish under a new generation, whatever the content
	done     chan struct{} // closed when what was decided is published
}

// snapshot is a service at one moment. It is never written to again.
type snapshot struct {
	status  control.Status
	policy  *policy.Policy // in force; never nil
	guards  []control.Guard
	totals  totals
	changes []change
	series  series
}

// reason returns the published reason of the service, or of a method, with the
// numbers of now where it is still the same guard that decides.
func (s *snapshot) reason(method string, published policy.Reason) policy.Reason {
	for _, g := range s.guards {
		if g.Decided && g.Method == method && g.Code == published.Code {
			return policy.Reason{Code: g.Code, Text: g.Text}
		}
	}
	return published
}

// change is one published change of policy.
type change struct {
	at         time.Time
	generation policy.Generation
	mode       policy.Mode
	method     string // empty: it concerns the service
	before     time.Duration
	after      time.Duration
	reason     policy.Reason
}

// newOwner prepares a service and decides once, so that it has a policy and a
// snapshot before anybody asks. before is what was in force before a restart; rows counts the methods with metrics of their own, of all services.
func newOwner(key policy.Key, t *table, rules func(policy.Key) (control.Config, *control.Override), logger *slog.Logger, rows *atomic.Int64, before stored) *owner {
	cfg, override := rules(key)
	now := time.Now()
	o := &owner{
		key:     key,
		law:     control.New(key, cfg),
		table:   t,
		rules:   rules,
		logger:  logger.With("service", key.String()),
		inbox:   make(chan *report.Report, inboxSize),
		reviews: make(chan review),
		totals:  totals{methods: map[string]*methodTotals{}, rows: rows},
		changes: before.changes,
		series:  before.series,
		saved:   now,
		heard:   now,
	}
	o.law.Configure(cfg, override)
	if before.policy != nil {
		o.law.Restore(before.policy)
		o.law.Published(before.policy)
		o.inForce = before.policy
	}
	o.tick(now)
	if before.policy != nil && o.inForce == before.policy { // nothing tells otherwise, so it goes on as it is
		o.resumed = true
		if err := t.resume(key); err != nil {
			o.logger.Error("stored policy not published", "error", err)
		}
	}
	return o
}

// run owns the service until ctx ends.
func (o *owner) run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	quiet, early := false, false
	for {
		select {
		case <-ctx.Done():
			if o.inForce != nil {
				o.save(time.Now())
			}
			return
		case r := <-o.inbox:
			now := time.Now()
			o.law.Add(now, r)
			o.totals.add(now, r)
			if len(r.Methods) > 0 { // else it is a sign of life only
				o.heard = now
				if quiet {
					quiet = false
					ticker.Reset(tickEvery)
				}
			}
			early = early || r.Early || o.overtaken(r)
			if early && len(o.inbox) == 0 { // a fleet's early reports come together
				early = false
				o.tick(now)
			}
		case rv := <-o.reviews:
			cfg, override := o.rules(o.key)
			o.law.Configure(cfg, override)
			if rv.renumber {
				o.inForce = nil
			}
			o.tick(time.Now())
			close(rv.done)
		case now := <-ticker.C:
			o.tick(now)
			if !quiet && now.Sub(o.heard) > quietAfter {
				quiet = true
				ticker.Reset(quietTick)
			}
		}
	}
}

// overtaken reports whether a client holds a later policy than the one that a
// restart found: one that was published, but not saved before the crash. Ours
// then needs a new generation, or that client would ignore it. Numbers of this
// life are above all that were ever given, so that this happens once at most.
func (o *owner) overtaken(r *report.Report) bool {
	if !o.resumed || r.Generation.Compare(o.inForce.Generation) <= 0 {
		return false
	}
	o.resumed, o.inForce = false, nil
	return true
}

// post hands over a report. It waits while the inbox is full.
func (o *owner) post(ctx context.Context, r *report.Report) error {
	select {
	case o.inbox <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// review makes the owner decide by the rules as they are now, and returns when
// the outcome is published. running is the context of run.
func (o *owner) review(running context.Context, renumber bool) {
	rv := review{renumber: renumber, done: make(chan struct{})}
	select {
	case o.reviews <- rv:
		<-rv.done
	case <-running.Done():
	}
}

// tick decides, publishes what must go out, and leaves a snapshot.
func (o *owner) tick(now time.Time) {
	d := o.law.Tick(now)
	if d.Publish || o.inForce == nil {
		o.publish(now, d)
	}
	o.totals.forget(now)
	st := o.law.Status(now)
	if o.series.due(now) {
		o.series.add(now, st)
	}
	if o.inForce != nil && now.Sub(o.saved) >= saveEvery {
		o.save(now)
	}
	o.snapshot.Store(&snapshot{
		status:  st,
		policy:  cmp.Or(o.inForce, d.Policy), // the latter where publishing failed from the start
		guards:  d.Guards,
		totals:  o.totals.clone(),
		changes: o.changes,
		series:  o.series,
	})
}

func (o *owner) publish(now time.Time, d control.Decision) {
	p, err := o.table.publish(d.Policy, o.inForce == nil, d.Tightens)
	if err != nil {
		o.logger.Error("policy not published", "error", err)
		return
	}
	if o.inForce != nil && o.inForce.Generation == p.Generation {
		return
	}
	o.law.Published(p)
	changes := changesBetween(now, o.inForce, p)
	kept := slices.Concat(changes, o.changes) // a new one: snapshots share the one before
	o.changes = kept[:min(len(kept), maxChanges)]
	o.inForce, o.resumed = p, false
	o.save(now)
	for _, c := range changes {
		o.logger.Info("policy changed", "generation", c.generation.String(), "mode", c.mode.String(),
			"method", c.method, "delay_before", c.before, "delay_after", c.after, "reason", c.reason.Text)
	}
}

// save has the service's state written behind.
func (o *owner) save(now time.Time) {
	o.saved = now
	if err := o.table.save(o.inForce, o.changes, o.series); err != nil {
		o.logger.Error("policy not saved", "error", err)
	}
}

// changesBetween says what differs, for people. before may be nil.
func changesBetween(now time.Time, before, after *policy.Policy) []change {
	var old policy.Policy
	if before != nil {
		old = *before
	}
	var cs []change
	if before == nil || old.Mode != after.Mode || old.Budget != after.Budget || old.Reason.Code != after.Reason.Code {
		cs = append(cs, change{at: now, generation: after.Generation, mode: after.Mode, reason: after.Reason})
	}
	names := make([]string, 0, len(after.Methods))
	for name := range after.Methods {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m, was := after.Methods[name], old.Methods[name]
		if m.Delay != was.Delay || m.Probability != was.Probability || m.Reason.Code != was.Reason.Code {
			cs = append(cs, change{
				at: now, generation: after.Generation, mode: after.Mode, method: name,
				before: was.Delay, after: m.Delay, reason: m.Reason,
			})
		}
	}
	return cs
}
