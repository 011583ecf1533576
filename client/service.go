package client

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// service is everything a client knows of one service, shared by all its
// connections to it: the policy in force, the budget and throttle that the
// policy sets, and what was counted. Calls may use every method of it from any
// goroutine; apply, expire and renew belong to the subscriber's side.
type service struct {
	key      policy.Key
	budget   *hedge.Budget
	throttle *hedge.Throttle
	recorder

	log           *slog.Logger
	refusedConfig atomic.Pointer[string] // of a resolver; nil: it brought none

	onAttempt func(context.Context, Attempt) // the application's; may be nil

	// wake asks for a report ahead of the cadence; it never blocks.
	wake func()

	observed atomic.Int64 // calls under observation

	silence hedge.Silence
	early   *hedge.EarlyRule
	runaway atomic.Bool // early fired since the last report
	start   time.Time   // of the service, for silence and early

	cutting    sync.Mutex        // held while a report of this service is made
	generation policy.Generation // in force when the interval began; guarded by cutting

	// inForce is held, or nil when there is none or it has outlived its
	// valid_for. A timer clears it, so that a call needs no look at the clock.
	inForce atomic.Pointer[policy.Policy]

	mu      sync.Mutex // guards what follows, and the order of policies
	held    *policy.Policy
	heard   time.Time // of the last message from the controller; monotonic
	expiry  *time.Timer
	applied uint64 // policies that came into force
	delays  uint64 // of applied: changed the delay of a method, or of the default
	closed  bool
}

func newService(key policy.Key, wake func()) *service {
	s := &service{
		key:      key,
		budget:   hedge.NewBudget(),
		throttle: hedge.NewThrottle(),
		early:    hedge.NewEarlyRule(),
		wake:     wake,
		log:      slog.New(slog.DiscardHandler),
		start:    time.Now(),
	}
	s.recorder.init(s.start)
	return s
}

// policy returns the policy in force, or nil: then there is no hedging.
func (s *service) policy() *policy.Policy { return s.inForce.Load() }

// noteCall counts a primary that was sent; safe says that the call may run twice.
func (s *service) noteCall(m *method, safe bool) {
	m.calls.Add(1)
	if safe {
		m.safe.Add(1)
	}
}

// pending notes a call that is pending at its delay or later, and tells the
// controller of a silence at once.
func (s *service) pending(delay time.Duration) {
	now := time.Since(s.start)
	if s.silence.Pending(now, delay) && s.early.Alarm(now) {
		s.runaway.Store(true)
		s.wake()
	}
}

// noteEligible counts a safe call that is still pending at the delay.
func (s *service) noteEligible(m *method) {
	m.eligible.Add(1)
	s.observe(true)
}

// notePrompt notes a safe call, of a method with a delay, that ended before it.
func (s *service) notePrompt() { s.observe(false) }

func (s *service) observe(eligible bool) {
	if s.early.Observe(eligible, time.Since(s.start)) {
		s.runaway.Store(true)
		s.wake()
	}
}

// apply brings p into force, unless an equal or newer one is held already, and
// reports whether it did. p is valid. The caller makes one call at a time.
func (s *service) apply(p *policy.Policy) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.held != nil && p.Generation.Compare(s.held.Generation) <= 0 {
		return false
	}
	if delaysDiffer(s.held, p) {
		s.delays++
	}
	s.applied++
	s.held = p
	s.enforce(p)
	s.arm()
	return true
}

// renew notes a message from the controller at now: the policy held lives on, or again.
func (s *service) renew(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = now
	if s.held != nil && !s.closed && s.inForce.Load() == nil {
		s.enforce(s.held)
		s.arm()
	}
}

// close ends hedging for good and stops the timer.
func (s *service) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if s.held != nil {
		s.enforce(nil)
	}
}

// enforce makes p what calls see; nil suspends what is held. The pointer goes first: a hedge about to be
// sent reads it again, so that off holds from this instant.
func (s *service) enforce(p *policy.Policy) {
	s.inForce.Store(p)
	if p == nil {
		s.budget.Set(s.held.Budget, false)
		s.early.Set(0)
		return
	}
	s.budget.Set(p.Budget, p.Mode == policy.ModeActive)
	s.throttle.Set(p.Throttle)
	s.early.Set(p.Expected())
}

// arm starts the timer for the end of the held policy's life. Messages do not
// re-arm it: when it fires early it starts itself again for the rest.
func (s *service) arm() {
	left := time.Until(s.heard.Add(s.held.ValidFor))
	if s.expiry == nil {
		s.expiry = time.AfterFunc(left, s.expire)
		return
	}
	s.expiry.Reset(left)
}

// expire takes the held policy out of force if its time is over.
func (s *service) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inForce.Load() == nil {
		return
	}
	if time.Since(s.heard) < s.held.ValidFor {
		s.arm()
		return
	}
	s.enforce(nil)
}

func delaysDiffer(old, p *policy.Policy) bool {
	if old == nil {
		return true
	}
	if old.Default.Delay != p.Default.Delay || len(old.Methods) != len(p.Methods) {
		return true
	}
	for name, m := range p.Methods {
		if was, ok := old.Methods[name]; !ok || was.Delay != m.Delay {
			return true
		}
	}
	return false
}
