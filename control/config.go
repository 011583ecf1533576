package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Bounds of a Config that policy does not set already.
const (
	MinTarget = 0.001 // below it the tail that would be hedged is too thin to estimate
	MaxTarget = 0.5   // above it hedging is plain duplication

	MinObjective = 0.5
	MaxObjective = 0.9999
)

// Config is what the operator says about one service. Start from
// DefaultConfig: the zero Config does not validate.
type Config struct {
	// Configured is true for a service that the operator named. One that nobody
	// named is in policy.ModeShadow, whatever Mode says.
	Configured bool
	// Mode of a configured service. The zero value is policy.ModeOff.
	Mode policy.Mode
	// Target is the most hedges per call of methods that may be hedged, over the
	// whole fleet and any 10 s. MinTarget to MaxTarget.
	Target float64
	// Objective is the quantile of latency that hedging is to make short.
	// MinObjective to MaxObjective.
	Objective float64
	// MinDelay and MaxDelay bound the delay before a hedge. More than 0, at most
	// policy.MaxDelay.
	MinDelay, MaxDelay time.Duration
	// DefaultDelay is used while there is no estimate. 0: no hedge then.
	DefaultDelay time.Duration
	// MaxAttempts of a call, its primary included. 2 to policy.MaxAttempts.
	MaxAttempts int
	// NonFatal are the gRPC status codes after which the next attempt goes at
	// once instead of ending the call. Empty: none.
	NonFatal []uint32
	// Throttle is gRFC A6's; MaxTokens 0 means none.
	Throttle policy.Throttle
	// ProbationCap is the largest share of replicas that may be out of normal
	// service, rounded down. 0 to 1; 0: none ever.
	ProbationCap float64
	// ValidFor is the life of a policy at a client that hears nothing more. More
	// than 0, at most policy.MaxValidFor.
	ValidFor time.Duration
}

// DefaultConfig is the configuration of a service that nobody named. To
// configure one, set Configured and what differs.
func DefaultConfig() Config {
	return Config{
		Mode:         policy.ModeActive,
		Target:       0.05,
		Objective:    0.999,
		MinDelay:     time.Millisecond,
		MaxDelay:     10 * time.Second,
		MaxAttempts:  policy.DefaultMaxAttempts,
		Throttle:     policy.Throttle{MaxTokens: 10, TokenRatio: 0.1},
		ProbationCap: 0.34,
		ValidFor:     policy.DefaultValidFor,
	}
}

// Validate reports the first field that is out of bounds, with its value and
// the bound.
func (c Config) Validate() error {
	if c.Mode > policy.ModeActive {
		return fmt.Errorf("mode: %d is unknown, want off, shadow or active", c.Mode)
	}
	if err := validateTarget(c.Target); err != nil {
		return err
	}
	if !(c.Objective >= MinObjective && c.Objective <= MaxObjective) {
		return fmt.Errorf("objective: %g, want %g to %g", c.Objective, MinObjective, MaxObjective)
	}
	if c.MinDelay <= 0 || c.MinDelay > policy.MaxDelay {
		return fmt.Errorf("min_delay: %v, want more than 0 and at most %v", c.MinDelay, policy.MaxDelay)
	}
	if c.MaxDelay < c.MinDelay || c.MaxDelay > policy.MaxDelay {
		return fmt.Errorf("max_delay: %v, want min_delay %v to %v", c.MaxDelay, c.MinDelay, policy.MaxDelay)
	}
	if c.DefaultDelay != 0 && (c.DefaultDelay < c.MinDelay || c.DefaultDelay > c.MaxDelay) {
		return fmt.Errorf("default_delay: %v, want 0 or %v to %v", c.DefaultDelay, c.MinDelay, c.MaxDelay)
	}
	if !(c.ProbationCap >= 0 && c.ProbationCap <= 1) {
		return fmt.Errorf("probation_cap: %g, want 0 to 1", c.ProbationCap)
	}
	// What goes into the policy as it is has the policy's own bounds.
	p := policy.Policy{
		Key:      policy.Key{Tenant: policy.DefaultTenant, Service: "any"},
		Throttle: c.Throttle,
		Default:  policy.Method{Delay: c.MinDelay, MaxAttempts: c.MaxAttempts, NonFatal: c.NonFatal},
		ValidFor: c.ValidFor,
	}
	return p.Validate()
}

func validateTarget(t float64) error {
	if !(t >= MinTarget && t <= MaxTarget) {
		return fmt.Errorf("target: %g, want %g to %g", t, MinTarget, MaxTarget)
	}
	return nil
}

func (c Config) clone() Config {
	c.NonFatal = slices.Clone(c.NonFatal)
	return c
}

// Override is an operator's word on one service. It outranks the configuration
// and all guards on the mode; the budget still holds.
type Override struct {
	Mode    policy.Mode
	HasMode bool    // false: the mode is as configured
	Target  float64 // 0: as configured
}

// Validate reports the first field that is out of bounds.
func (o Override) Validate() error {
	if o.HasMode && o.Mode > policy.ModeActive {
		return fmt.Errorf("mode: %d is unknown, want off, shadow or active", o.Mode)
	}
	if o.Target != 0 {
		return validateTarget(o.Target)
	}
	return nil
}
