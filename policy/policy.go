package policy

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Mode is what a service's clients do with the rest of its policy.
type Mode uint8

// Modes. The zero value, and any value a client does not know, is ModeOff.
const (
	ModeOff    Mode = iota // the kill switch: no hedges, at once
	ModeShadow             // measure and report eligibility, never send a hedge
	ModeActive             // hedge within the budget
	numModes
)

var modeNames = [numModes]string{"off", "shadow", "active"}

// String returns the mode in lower case.
func (m Mode) String() string {
	if m < numModes {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode of a name that String gives; false: there is none.
func ParseMode(name string) (Mode, bool) {
	for m, known := range modeNames {
		if name == known {
			return Mode(m), true
		}
	}
	return ModeOff, false
}

// Bounds of a policy's fields. A policy outside them is refused whole.
const (
	MaxRatio           = 1.0              // hedges per call
	MaxBurst           = 200              // hedges
	MaxDelay           = time.Hour        // longest delay before a hedge
	MaxAttempts        = 5                // gRFC A6: "Values greater than 5 are treated as 5."
	MaxValidFor        = 24 * time.Hour   // longest life of a policy without the daemon
	MaxMethods         = 1000             // methods in one policy
	MaxReplicas        = 10000            // replicas in one policy
	MaxTokens          = 1000             // gRFC A6: maxTokens is in (0, 1000]
	MaxHoldout         = 0.02             // of the calls to hedge; they keep their tail
	DefaultValidFor    = 10 * time.Minute // ValidFor unless configured
	DefaultMaxAttempts = 3                // MaxAttempts unless configured
)

// Policy is everything one service's clients need in order to hedge: one
// consistent state, replaced as a whole. A Policy that was published is never
// written to again, so it may be shared between goroutines.
type Policy struct {
	Key        Key
	Generation Generation
	Mode       Mode
	Budget     Budget
	Throttle   Throttle
	Default    Method             // for methods that Methods does not name
	Methods    map[string]Method  // by "/pkg.Service/Method"
	Replicas   map[string]Replica // by replica name; only those not in normal service
	ValidFor   time.Duration      // life without any message from the daemon; >0, <= MaxValidFor
	Reason     Reason             // why Mode and Budget are as they are
}

// Budget is one client's token bucket for one service, refilled by calls and
// never by the clock. In any stretch of n calls: hedges <= Ratio*n + Burst.
type Budget struct {
	Ratio float64 // tokens earned by each primary of a safe method; 0 to MaxRatio
	Burst float64 // most tokens held; 0 to MaxBurst
	Start float64 // tokens at a client's first ModeActive policy, or missing there if more later; 0 to Burst
}

// Throttle is gRFC A6's retry throttling: hedge only while more than half of
// the tokens are left. MaxTokens 0 means no throttle.
type Throttle struct {
	MaxTokens  float64 // 0, or up to MaxTokens; a failure takes 1
	TokenRatio float64 // a success returns this; > 0 where MaxTokens > 0
}

// Method says when a call of one method sends another attempt.
type Method struct {
	Delay       time.Duration // from an attempt to the next; 0: no estimate, so no hedge
	Probability float64       // share of eligible calls to hedge; 0 to 1
	MaxAttempts int           // primary included; 2 to MaxAttempts, ignored while Delay is 0
	NonFatal    []uint32      // gRPC status codes that do not end the call (gRFC A6)
	Observe     float64       // share of hedged calls whose loser runs to its end, to be measured; 0 to 1
	Holdout     float64       // share of calls to hedge that are not, to be measured; 0 to MaxHoldout
	Reason      Reason
}

// ReplicaState is a replica's standing. The zero value is normal service.
type ReplicaState uint8

// Replica states.
const (
	ReplicaServing    ReplicaState = iota // normal service
	ReplicaProbation                      // persistently slow: only a trickle of calls, to measure it
	ReplicaRecovering                     // looks well again: its share is being raised
	numReplicaStates
)

var replicaStateNames = [numReplicaStates]string{"serving", "probation", "recovering"}

// String returns the state in lower case.
func (s ReplicaState) String() string {
	if s < numReplicaStates {
		return replicaStateNames[s]
	}
	return fmt.Sprintf("replica_state(%d)", uint8(s))
}

// Replica is one replica that is not in normal service.
type Replica struct {
	State  ReplicaState
	Share  float64 // of its fair share of primaries; 0 to 1
	Reason string
}

// Method returns the policy for a method, and whether Methods names it: the method
// itself or, as "/package.Service/", all of its service. gRPC's service config has
// the same rule: the most specific name wins.
func (p *Policy) Method(name string) (Method, bool) {
	if m, ok := p.Methods[name]; ok {
		return m, true
	}
	if i := strings.LastIndexByte(name, '/'); i > 0 && name[0] == '/' {
		if m, ok := p.Methods[name[:i+1]]; ok {
			return m, true
		}
	}
	return p.Default, false
}

// Expected is the largest share of a method's calls that is to become eligible: what
// they earn pays for hedges, and where chance picks the calls to hedge, more are eligible.
// While hedging is restrained for a reason, the rate is not steered and does not count.
func (p *Policy) Expected() float64 {
	least := 1.
	for _, m := range p.Methods {
		if m.Reason.Code == ReasonTracking && m.Probability > 0 {
			least = min(least, m.Probability)
		}
	}
	return p.Budget.Ratio / least
}

// Validate reports the first field that is out of bounds, with its value and
// the bound. A client NACKs a policy that fails it and keeps the last good one.
func (p *Policy) Validate() error {
	if err := p.Key.Validate(); err != nil {
		return err
	}
	if p.Mode >= numModes {
		return fmt.Errorf("mode: %d is unknown, want at most %d", p.Mode, numModes-1)
	}
	if err := p.Budget.Validate(); err != nil {
		return err
	}
	if err := within("throttle.max_tokens", p.Throttle.MaxTokens, 0, MaxTokens); err != nil {
		return err
	}
	if err := within("throttle.token_ratio", p.Throttle.TokenRatio, 0, MaxTokens); err != nil {
		return err
	}
	if p.Throttle.MaxTokens > 0 && p.Throttle.TokenRatio == 0 {
		return fmt.Errorf("throttle.token_ratio: 0, want more than 0 where max_tokens is %g", p.Throttle.MaxTokens)
	}
	if p.ValidFor <= 0 || p.ValidFor > MaxValidFor {
		return fmt.Errorf("valid_for: %v, want more than 0 and at most %v", p.ValidFor, MaxValidFor)
	}
	if err := p.Default.validate("default"); err != nil {
		return err
	}
	if len(p.Methods) > MaxMethods {
		return fmt.Errorf("methods: %d, want at most %d", len(p.Methods), MaxMethods)
	}
	for name, m := range p.Methods {
		if err := ValidateName("method", name); err != nil {
			return err
		}
		if err := m.validate("methods[" + quote(name) + "]"); err != nil {
			return err
		}
	}
	if len(p.Replicas) > MaxReplicas {
		return fmt.Errorf("replicas: %d, want at most %d", len(p.Replicas), MaxReplicas)
	}
	for name, r := range p.Replicas {
		if err := ValidateName("replica", name); err != nil {
			return err
		}
		if r.State >= numReplicaStates {
			return fmt.Errorf("replicas[%s].state: %d is unknown, want at most %d", quote(name), r.State, numReplicaStates-1)
		}
		if err := within("replicas["+quote(name)+"].share", r.Share, 0, 1); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports the first field that is out of bounds.
func (b Budget) Validate() error {
	if err := within("budget.ratio", b.Ratio, 0, MaxRatio); err != nil {
		return err
	}
	if err := within("budget.burst", b.Burst, 0, MaxBurst); err != nil {
		return err
	}
	return within("budget.start", b.Start, 0, b.Burst)
}

func (m Method) validate(field string) error {
	if m.Delay < 0 || m.Delay > MaxDelay {
		return fmt.Errorf("%s.delay: %v, want 0 to %v", field, m.Delay, MaxDelay)
	}
	if err := within(field+".probability", m.Probability, 0, 1); err != nil {
		return err
	}
	if err := within(field+".observe", m.Observe, 0, 1); err != nil {
		return err
	}
	if err := within(field+".holdout", m.Holdout, 0, MaxHoldout); err != nil {
		return err
	}
	if m.Delay > 0 && (m.MaxAttempts < 2 || m.MaxAttempts > MaxAttempts) {
		return fmt.Errorf("%s.max_attempts: %d, want 2 to %d", field, m.MaxAttempts, MaxAttempts)
	}
	for _, c := range m.NonFatal {
		if c == 0 || c > 16 {
			return fmt.Errorf("%s.non_fatal: status code %d, want 1 to 16", field, c)
		}
	}
	return nil
}

// within refuses NaN too: it compares false with every bound.
func within(field string, v, lo, hi float64) error {
	if v >= lo && v <= hi && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("%s: %g, want %g to %g", field, v, lo, hi)
}
