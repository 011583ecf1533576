package client

import (
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Counts is what a client counted of one method or service since it started.
type Counts struct {
	Calls           uint64                         // primaries sent
	Safe            uint64                         // of Calls: may run twice, so they earn budget
	Eligible        uint64                         // of Safe: still pending at the delay
	Hedges          uint64                         // attempts beyond the primary, decided on
	CancelledUnsent uint64                         // of Hedges: ended before a replica was picked; over HTTP, before their header was begun
	Wins            uint64                         // calls that a hedge answered first
	Failures        uint64                         // calls that ended in a failure that counts
	Suppressed      [policy.NumSuppressions]uint64 // eligible calls that never were hedged
}

// ServiceStats is a snapshot of one service. Its counts are exact once no call
// is under way or observed.
type ServiceStats struct {
	Key    policy.Key
	Counts                   // of all methods
	Method map[string]Counts // by full method; "other" beyond the bounds

	Generation policy.Generation // of the policy in force; zero: none
	Mode       policy.Mode       // off when no policy is in force
	Delay      map[string]time.Duration
	Applied    uint64 // policies that came into force
	Delays     uint64 // of Applied: changed a delay
	Tokens     float64
	Observing  int // hedged calls whose loser runs to its end, to be measured

	// RefusedConfig says what is not used of a service config that a resolver
	// brought, and why. Empty: none came.
	RefusedConfig string
}

// ServerStats is what a server counted of one service on one replica since it
// started. It is exact once no call is under way.
type ServerStats struct {
	Key     policy.Key
	Replica string
	report.Served
}

func (m *method) counts() Counts {
	// Parts before wholes, so that a call counted meanwhile cannot make a part
	// look larger than its whole.
	var c Counts
	for i := range m.suppressed {
		c.Suppressed[i] = m.suppressed[i].Load()
	}
	c.Wins = m.wins.Load()
	c.CancelledUnsent = m.cancelledUnsent.Load()
	c.Hedges = m.hedges.Load()
	c.Eligible = m.eligible.Load()
	c.Failures = m.failures.Load()
	c.Safe = m.safe.Load()
	c.Calls = m.calls.Load()
	return c
}

// minus returns what was counted since o.
func (c Counts) minus(o Counts) Counts {
	c.Calls -= o.Calls
	c.Safe -= o.Safe
	c.Eligible -= o.Eligible
	c.Hedges -= o.Hedges
	c.CancelledUnsent -= o.CancelledUnsent
	c.Wins -= o.Wins
	c.Failures -= o.Failures
	for i := range c.Suppressed {
		c.Suppressed[i] -= o.Suppressed[i]
	}
	return c
}

// plus returns c and o together.
func (c Counts) plus(o Counts) Counts {
	c.Calls += o.Calls
	c.Safe += o.Safe
	c.Eligible += o.Eligible
	c.Hedges += o.Hedges
	c.CancelledUnsent += o.CancelledUnsent
	c.Wins += o.Wins
	c.Failures += o.Failures
	for i := range c.Suppressed {
		c.Suppressed[i] += o.Suppressed[i]
	}
	return c
}

// put writes c into a report.
func (c Counts) put(m *report.Method) {
	m.Calls, m.Safe, m.Eligible = c.Calls, c.Safe, c.Eligible
	m.Hedges, m.CancelledUnsent, m.Wins = c.Hedges, c.CancelledUnsent, c.Wins
	m.Failures, m.Suppressed = c.Failures, c.Suppressed
}

// stats is a snapshot of the service.
func (s *service) stats() ServiceStats {
	out := ServiceStats{Key: s.key, Method: map[string]Counts{}, Delay: map[string]time.Duration{}, Tokens: s.budget.Tokens(), Observing: int(s.observed.Load())}
	p := s.policy()
	if p != nil {
		out.Generation, out.Mode = p.Generation, p.Mode
	}
	if text := s.refusedConfig.Load(); text != nil {
		out.RefusedConfig = *text
	}
	s.mu.Lock()
	out.Applied, out.Delays = s.applied, s.delays
	s.mu.Unlock()
	for name, m := range *s.methods.Load() {
		out.add(name, m.counts())
		if p != nil {
			law, _ := p.Method(name)
			out.Delay[name] = law.Delay
		}
	}
	if c := s.rest.counts(); c != (Counts{}) {
		out.add(other, c)
	}
	return out
}

func (s *ServiceStats) add(method string, c Counts) {
	s.Counts = s.plus(c)
	s.Method[method] = c
}
