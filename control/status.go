package control

import (
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Load is what was measured over Window, all clients together.
type Load struct {
	Window          time.Duration
	Calls           uint64 // primaries sent
	Safe            uint64 // of Calls: of methods that may be hedged
	Eligible        uint64 // of Safe: still pending at the delay
	Hedges          uint64
	CancelledUnsent uint64 // of Hedges: no server saw them
	Wins            uint64
	Failures        uint64
	Suppressed      [policy.NumSuppressions]uint64
	Server          report.Served // as servers counted; zero where none report
}

// ExtraLoad is hedges per call of methods that may be hedged; false: no calls.
func (l Load) ExtraLoad() (float64, bool) {
	if l.Safe == 0 {
		return 0, false
	}
	return float64(l.Hedges) / float64(l.Safe), true
}

// EligibleRate is the share of calls still pending at the delay; false: no calls.
func (l Load) EligibleRate() (float64, bool) {
	if l.Safe == 0 {
		return 0, false
	}
	return float64(l.Eligible) / float64(l.Safe), true
}

// Quantile is an estimate of latency. OK is false where it is not identified;
// Value is 0 then.
type Quantile struct {
	Value time.Duration
	OK    bool
}

// Status is a service as its owner sees it at one moment.
type Status struct {
	Key        policy.Key
	Configured bool
	Target     float64 // in force, an override included
	Load       Load
	Clients    int             // clients that reported in the last window
	Methods    []MethodStatus  // by name
	Replicas   []ReplicaStatus // by name
}

// MethodStatus is one method's part of a Status.
type MethodStatus struct {
	Name                string
	Policy              policy.Method
	Load                Load
	P50, P95, P99, P999 Quantile // of unhedged primaries
	Counterfactual      Counterfactual
}

// Counterfactual is what hedging buys, of calls counted while it was in force
// and latencies stayed what they are.
type Counterfactual struct {
	Span     time.Duration // since the first of them
	Calls    uint64        // that might be hedged
	Observed uint64        // hedged calls whose loser ran to its end
	HeldOut  uint64        // calls that a coin kept from being hedged

	P99, P999             Interval // what callers would wait without hedging
	HedgedP99, HedgedP999 Quantile // what they do wait
	Efficacy              Efficacy
}

// Interval is a quantile with the bounds between which it lies with 95%
// confidence; they are 0 where it is not identified.
type Interval struct {
	Quantile
	Low, High time.Duration
}

// Efficacy is the share of the calls which would take longer than Beyond without
// a hedge that take less with one, and Off how far off that may be with 95%
// confidence. About 0: what is slow is slow on every copy. OK is false where it is
// not identified.
type Efficacy struct {
	Share, Off float64
	Beyond     time.Duration
	OK         bool
}

// ReplicaStatus is one replica's part of a Status, in normal service or not.
type ReplicaStatus struct {
	Name     string
	Policy   policy.Replica
	Samples  uint64   // primaries that ended in the last window
	P50, P95 Quantile // of its primaries
}
