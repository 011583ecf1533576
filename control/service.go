package control

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

const (
	// After a restart the stored policy holds for this long without data: clients
	// may take as long to find the daemon again.
	restoreGrace = time.Minute

	// A report in which so many times more calls ended than began holds the rest
	// of older calls. A steady client's report has as many of both.
	lateShare = 2

	// Clients that are told apart; of others only the counts are taken in.
	maxClients = 20000
)

// Service is the state of one service. It is not safe for concurrent use: one
// goroutine owns it.
//
// The order in which reports of different clients arrive between two Ticks
// changes nothing, except which methods and replicas are tracked where there are
// more than can be; and no report, however false, makes a policy that does not
// validate. What one client of many weighs is bounded: see weight.go.
type Service struct {
	key      policy.Key
	cfg      Config
	override Override

	counts    ring // of the service, all methods
	methods   map[string]*method
	probation *probation
	clients   map[client]*clientState

	crowding   crowding
	costly     costly
	run        float64        // calls of a client in Window, kept against jitter
	budget     policy.Budget  // burst and start, kept against jitter
	inForce    *policy.Policy // the last that was to be published; nil: none
	generation policy.Generation
	graceUntil time.Time // zero until the first Tick
	forgotten  time.Time // when forget last looked
	most       float64   // calls a second that a client may add
	voices     int       // of all methods
}

type client struct {
	id          string
	incarnation uint64
}

// New returns a Service that has seen nothing. cfg must validate.
func New(key policy.Key, cfg Config) *Service {
	s := &Service{
		key:       key,
		methods:   map[string]*method{},
		probation: newProbation(),
		clients:   map[client]*clientState{},
	}
	s.Configure(cfg, nil)
	s.most = math.Inf(1)
	s.budget = unknownBudget(s.target())
	return s
}

// Configure replaces configuration and override (nil: none); both must
// validate. The next Tick decides by them.
func (s *Service) Configure(cfg Config, o *Override) {
	s.cfg = cfg.clone()
	s.override = Override{}
	if o != nil {
		s.override = *o
	}
}

// Restore makes p, which must validate, the policy in force after a restart:
// until there is data, its delays are served as they are, for at most a minute.
// Call it before the first Add.
func (s *Service) Restore(p *policy.Policy) {
	s.inForce = p
	s.generation = p.Generation
	s.budget = p.Budget
	s.run = restoredRun(p.Budget, s.target())
	for name, from := range p.Methods {
		if len(s.methods) >= maxMethods {
			break
		}
		m := newMethod(name)
		held := from
		m.restored = &held
		if from.Reason.Code != policy.ReasonNoData { // else it is the default delay
			m.delay, m.since = from.Delay, p.Generation
			m.basis = restoredBasis(s.target(), s.run)
			if from.Reason.Code == policy.ReasonTracking {
				m.search = restoredSearch(from.Probability)
				m.basis.wanted /= m.search.probability()
			}
		}
		s.methods[name] = m
	}
	for name, r := range p.Replicas {
		s.probation.restore(name, r)
	}
}

// Published tells the Service that p, the Policy of its latest Decision with its
// Generation set, is what clients are getting. What they count under that
// generation or a later one is then held against the delays that p gave them.
func (s *Service) Published(p *policy.Policy) {
	s.generation = p.Generation
	for name, m := range s.methods {
		if m.since.IsZero() && m.delay > 0 && p.Methods[name].Delay == m.delay {
			m.since = p.Generation
		}
	}
}

// Add takes in a report that arrived at now.
func (s *Service) Add(now time.Time, r *report.Report) {
	total := s.counts.at(now)
	if r.Source.Kind == report.Server {
		for name, from := range r.Methods {
			t := tally{served: from.Served}
			s.costly.addServed(from.Served)
			total.add(&t)
			if m := s.methods[name]; m != nil {
				m.counts.at(now).add(&t)
			}
		}
		return
	}
	c := s.seen(total, r)
	r = c.weigh(now, r, s.most)
	before := c.generation
	at := c.measures(now, r)
	c.lastSeen, c.measured, c.generation = now, at, r.Generation
	calls := false
	var counted tally // at delays in force
	for _, name := range slices.Sorted(maps.Keys(r.Methods)) {
		from := r.Methods[name]
		t := tally{
			calls:      from.Calls,
			safe:       from.Safe,
			eligible:   from.Eligible,
			hedges:     from.Hedges,
			unsent:     from.CancelledUnsent,
			wins:       from.Wins,
			failures:   from.Failures,
			suppressed: from.Suppressed,
		}
		m := s.method(now, name)
		forced := m != nil && s.forced(m, before, r.Generation)
		heard := m == nil || s.hear(now, m, c, from, forced)
		thaws := m != nil && m.freeze.thaws(now, from)
		for replica, seen := range from.Replicas {
			if !heard {
				break
			}
			t.ended += seen.Primary.Count()
			s.costly.addWaited(&seen.Primary.Censored)
			s.costly.addWaited(&seen.Hedge.Censored)
			// The trickle of a replica in probation must not set the delay of the
			// others; that its calls are eligible shows in the counts.
			if m != nil && !thaws && !s.probation.excludes(replica) {
				m.latency.Add(at, &seen.Primary)
				m.shared.hedges.Merge(&seen.Hedge)
			}
			s.probation.add(now, replica, name, r.Source.Zone, &seen.Primary, seen.Failed)
		}
		if m != nil {
			if forced && heard {
				t.forcedSafe, t.forcedEligible = from.Safe, from.Eligible
				counted.safe += from.Safe
				counted.eligible += from.Eligible
			}
			if heard && s.forced(m, r.Generation, r.Generation) {
				m.freeze.add(now, from.Safe, from.Eligible, r.Silent)
			}
			if m.hedging && heard && !thaws && s.inForce != nil && s.inForce.Mode == policy.ModeActive {
				m.buys.add(now, from)
			}
			m.lastSeen = now
			m.counts.at(now).add(&t)
		}
		total.add(&t)
		calls = calls || from.Calls > 0
	}
	s.crowding.add(now, counted.safe, counted.eligible)
	if calls { // a client's rate is that of the time in which it calls
		total.clientTime += min(max(r.Interval, 0), Window)
	}
}

// hear reports whether a client's latencies of m count.
func (s *Service) hear(now time.Time, m *method, c *clientState, from *report.Method, forced bool) bool {
	before := len(m.voices)
	heard := m.voices.hear(now, c, from, m.delay, forced, s.voices < maxVoices)
	s.voices += len(m.voices) - before
	return heard
}

// seen remembers the client of a report.
func (s *Service) seen(total *tally, r *report.Report) *clientState {
	key := client{r.Source.ID, r.Source.Incarnation}
	c := s.clients[key]
	if c == nil {
		c = &clientState{}
		if len(s.clients) < maxClients {
			c.tracked = true
			s.clients[key] = c
			total.starts++
		}
	}
	return c
}

// measures returns the time to which the latencies of a report count: now, unless
// most of the calls that ended in it began before it. Such a report comes from a
// client that calls less or no more; it holds the slow ones of calls of which the
// quick ones were reported before, and alone it would look like a change of
// latency. So it counts to the time of the client's report before that had calls
// in it; in between the client may have had nothing to report.
func (c *clientState) measures(now time.Time, r *report.Report) time.Time {
	var began, over uint64
	for _, m := range r.Methods {
		began += m.Calls
		over += ended(m)
	}
	if began+over == 0 || over > lateShare*began && !c.measured.IsZero() {
		return c.measured
	}
	return now
}

// life is how long a client lives: so many begin in memory. Where none does, it is
// as if one did.
func (s *Service) life(now time.Time) time.Duration {
	starts := s.counts.sum(now, memorySubs).starts
	return memory * time.Duration(len(s.clients)) / time.Duration(max(starts, 1))
}

// forced reports whether the client had m's delay in force in the whole
// interval: in the first report of a generation part of the calls are older.
func (s *Service) forced(m *method, before, now policy.Generation) bool {
	return !m.since.IsZero() &&
		before.Compare(m.since) >= 0 && now.Compare(m.since) >= 0 &&
		now.Compare(s.generation) <= 0
}

// method returns the method of that name, or nil when too many are tracked.
func (s *Service) method(now time.Time, name string) *method {
	m := s.methods[name]
	if m == nil && len(s.methods) < maxMethods {
		m = newMethod(name)
		m.latency.Advance(now) // sub-windows begin now, whatever is added first
		s.methods[name] = m
	}
	return m
}

// Tick decides. Call it every 250 ms, and at once after an early report.
func (s *Service) Tick(now time.Time) Decision {
	if s.graceUntil.IsZero() {
		s.graceUntil = now.Add(restoreGrace)
	}
	s.forget(now)
	s.crowding.advance(now)
	crowding := s.crowding.factor()
	window := s.counts.sum(now, windowSubs)
	rate := float64(window.calls) / Window.Seconds()
	s.probation.crowding = crowding
	s.probation.tick(now, s.cfg.ProbationCap, rate)
	_, serving := s.probation.census()
	target := s.target()
	burstCrowding := crowding
	isCostly, costlyText := s.costly.decide(now, crowding)
	if isCostly {
		target *= costlyShare
		burstCrowding = min(crowding, costlyCrowding)
	}
	s.run = nextRun(s.run, window, len(s.clients), now.Before(s.graceUntil))
	s.budget = nextBudget(s.budget, target, window, len(s.clients), s.life(now), burstCrowding, s.run)

	fallback := policy.Method{
		Delay:       s.cfg.DefaultDelay,
		Probability: 1,
		MaxAttempts: s.cfg.MaxAttempts,
		NonFatal:    s.cfg.NonFatal,
		Reason: policy.Reason{
			Code: policy.ReasonNoData,
			Text: "methods that are not listed have no estimate" + fallbackText(s.cfg.DefaultDelay),
		},
	}
	p := &policy.Policy{
		Key:      s.key,
		Budget:   s.budget,
		Throttle: s.cfg.Throttle,
		Default:  fallback,
		Methods:  make(map[string]policy.Method, len(s.methods)),
		Replicas: s.probation.policies(),
		ValidFor: s.cfg.ValidFor,
	}
	in := setting{
		cfg:      s.cfg,
		target:   target,
		serving:  serving,
		run:      s.run,
		crowding: crowding,
		memory:   memory,
		grace:    now.Before(s.graceUntil),
		fallback: fallback,
	}
	if crowding > 1 {
		in.memory = crowdedMemory
	}
	var byMethod []Guard
	decided := map[policy.ReasonCode]int{}
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		m, guards := s.methods[name].decide(now, in)
		p.Methods[name] = m
		byMethod = append(byMethod, guards...)
		decided[m.Reason.Code]++
	}
	guards := s.guards(window, serving, decided, isCostly, costlyText)
	p.Mode = s.mode()
	for i := range guards {
		if guards[i].Decided {
			p.Reason = policy.Reason{Code: guards[i].Code, Text: guards[i].Text}
		}
	}
	d := Decision{
		Policy:   p,
		Publish:  s.inForce == nil || !same(s.inForce, p),
		Tightens: s.inForce != nil && tightens(s.inForce, p),
		Guards:   append(guards, byMethod...),
	}
	if d.Publish {
		s.inForce = p
	}
	return d
}

// guards asks the guards of the service in their order, the last of which
// decided; decided counts the methods by what decided them.
func (s *Service) guards(window tally, serving int, decided map[policy.ReasonCode]int, isCostly bool, costlyText string) []Guard {
	guards := make([]Guard, 0, 8)
	ask := func(code policy.ReasonCode, yes bool, text string) bool {
		guards = append(guards, Guard{Code: code, Decided: yes, Text: text})
		return yes
	}
	// On says that the other guards shall decide.
	on := s.override.HasMode && s.override.Mode == policy.ModeActive
	if ask(policy.ReasonOverride, s.override.HasMode && !on, s.overrideText()) {
		return guards
	}
	configured := "the operator configured it as " + s.cfg.Mode.String()
	switch {
	case s.cfg.Configured:
	case on:
		configured = "nobody configured it, but an operator said on"
	default:
		configured = "nobody configured it: it measures and advises, and hedges when an operator says on"
	}
	if ask(policy.ReasonNotConfigured, !s.cfg.Configured && !on, configured) {
		return guards
	}
	none := func(code policy.ReasonCode) bool { return decided[code] == len(s.methods) }
	if ask(policy.ReasonNoData, none(policy.ReasonNoData),
		fmt.Sprintf("%d of %d methods have no estimate", decided[policy.ReasonNoData], len(s.methods))) {
		return guards
	}
	if ask(policy.ReasonTooFewReplicas, decided[policy.ReasonTooFewReplicas] > 0,
		fmt.Sprintf("%d replicas in normal service, hedging needs %d", serving, minServing)) {
		return guards
	}
	if ask(policy.ReasonFailing, none(policy.ReasonFailing),
		fmt.Sprintf("%d of %d methods fail too often", decided[policy.ReasonFailing], len(s.methods))) {
		return guards
	}
	if ask(policy.ReasonFreeze, none(policy.ReasonFreeze),
		fmt.Sprintf("of %d of %d methods every call is slow", decided[policy.ReasonFreeze], len(s.methods))) {
		return guards
	}
	if ask(policy.ReasonCostly, isCostly, costlyText) {
		return guards
	}
	if ask(policy.ReasonShared, none(policy.ReasonShared),
		fmt.Sprintf("of %d of %d methods what is slow is slow on every copy", decided[policy.ReasonShared], len(s.methods))) {
		return guards
	}
	load := window.load()
	text := fmt.Sprintf("%s calls in %v", commas(load.Calls), Window)
	if extra, ok := load.ExtraLoad(); ok {
		text += fmt.Sprintf("; extra load %s of %s", percent(extra), percent(s.target()))
	}
	text += "; " + s.crowding.text()
	ask(policy.ReasonTracking, true, fmt.Sprintf("%s; each client earns %s hedges a call, holds at most %s and starts with %s",
		text, number(s.budget.Ratio), number(s.budget.Burst), number(s.budget.Start)))
	return guards
}

func (s *Service) overrideText() string {
	switch {
	case s.override.HasMode:
		return "an operator said " + s.override.Mode.String()
	case s.override.Target != 0:
		return "no mode; an operator set the target to " + percent(s.override.Target)
	}
	return "none"
}

func (s *Service) mode() policy.Mode {
	switch {
	case s.override.HasMode:
		return s.override.Mode
	case !s.cfg.Configured:
		return policy.ModeShadow
	}
	return s.cfg.Mode
}

func (s *Service) target() float64 {
	if s.override.Target != 0 {
		return s.override.Target
	}
	return s.cfg.Target
}

// forget drops clients and methods that are gone; it looks once a second.
func (s *Service) forget(now time.Time) {
	dt := subWindow
	if !s.forgotten.IsZero() {
		dt = min(now.Sub(s.forgotten), Window)
	}
	if dt < subWindow {
		return
	}
	s.forgotten = now
	rates := make([]float64, 0, len(s.clients))
	for key, c := range s.clients {
		if now.Sub(c.lastSeen) > Window {
			delete(s.clients, key)
			continue
		}
		c.time = decayed(c.time, dt) + dt.Seconds()
		if c.calls > 0 {
			rates = append(rates, c.calls/c.time)
		}
		c.calls = decayed(c.calls, dt)
	}
	s.most = mostOf(rates)
	s.voices = 0
	for name, m := range s.methods {
		if m.lastSeen.IsZero() { // restored
			m.lastSeen = now
		}
		if now.Sub(m.lastSeen) > forgetMethod {
			delete(s.methods, name)
			continue
		}
		m.voices.judge(now, dt)
		s.voices += len(m.voices)
	}
}

// Status says what was measured and what is in force.
func (s *Service) Status(now time.Time) Status {
	window := s.counts.sum(now, windowSubs)
	st := Status{
		Key:        s.key,
		Configured: s.cfg.Configured,
		Target:     s.target(),
		Load:       window.load(),
		Clients:    len(s.clients),
	}
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		var p policy.Method
		if s.inForce != nil {
			p, _ = s.inForce.Method(name)
		}
		st.Methods = append(st.Methods, s.methods[name].status(now, p))
	}
	for _, r := range s.probation.sorted {
		if s.probation.present(r) {
			st.Replicas = append(st.Replicas, r.status(now))
		}
	}
	return st
}
