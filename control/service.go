package control

import (
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Service is the state of one service. It is not safe for concurrent use: one
// goroutine owns it.
type Service struct {
	key      policy.Key
	cfg      Config
	override Override
}

// New returns a Service that has seen nothing. cfg must validate.
func New(key policy.Key, cfg Config) *Service {
	return &Service{key: key, cfg: cfg.clone()}
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
// until there is data its delays are served as they are.
func (s *Service) Restore(p *policy.Policy) {}

// Published tells the Service that p, the Policy of its latest Decision with its
// Generation set, is what clients are getting. From then on reports that name
// that generation or a later one say what p does.
func (s *Service) Published(p *policy.Policy) {}

// Add takes in a report that arrived at now.
func (s *Service) Add(now time.Time, r *report.Report) {}

// Tick decides. Call it every 250 ms, and at once after an early report.
func (s *Service) Tick(now time.Time) Decision {
	return Decision{Policy: &policy.Policy{Key: s.key, ValidFor: s.cfg.ValidFor}}
}

// Status says what was measured and what is in force.
func (s *Service) Status(now time.Time) Status { return Status{Key: s.key} }
