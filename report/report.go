// Package report is one interval of measurements of one client or server as
// plain Go: counts and latency histograms by method and replica.
//
// The wire form and its bounds are in api/hedged/v1 and internal/wire; what the
// daemon concludes from reports is in control. A Report that was handed over is
// never written to again.
package report

import (
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

// Kind says which side of a call measured.
type Kind uint8

// Kinds of source.
const (
	Client Kind = iota
	Server
)

// Source is who measured: one life of one process.
type Source struct {
	ID          string // stable name of the client or server, as it calls itself
	Incarnation uint64 // differs between two lives of one ID; Unix nanoseconds at start
	Zone        string // may be empty
	Version     string // of the library
	Kind        Kind
	Replica     string // the replica this server is; empty for a client
}

// Report is what one source saw of one service in one interval.
type Report struct {
	Source     Source
	Service    policy.Key
	Sequence   uint64            // 1, 2, ... in an incarnation; a frame sent again keeps its own
	Interval   time.Duration     // covered, on the source's monotonic clock
	Generation policy.Generation // in force during the interval; zero: none
	Early      bool              // sent ahead of the cadence: eligibility ran away
	Silent     bool              // calls outlived their delays and nothing was answered since
	Dropped    uint64            // observations that the source could not keep
	Methods    map[string]*Method
}

// MaxPairs bounds the pairs of one method in one report; more tell little more.
const MaxPairs = 1024

// Method is one method's part of a report. A client fills Calls to Replicas, a
// server fills Served.
type Method struct {
	Calls           uint64 // primaries sent
	Safe            uint64 // of Calls: may run twice, so they earn budget
	Eligible        uint64 // of Safe: still pending at the delay
	Hedges          uint64 // attempts beyond the primary, decided on (a token was taken)
	CancelledUnsent uint64 // of Hedges: ended before a replica was picked
	Wins            uint64 // calls that a hedge answered first
	Failures        uint64 // calls that ended in a failure that counts (see client)
	Suppressed      [policy.NumSuppressions]uint64
	Replicas        map[string]*Replica

	// What callers waited for, from the primary's dispatch to the call's end, of
	// the eligible calls that ended in the interval: those that sent a hedge, and
	// those that did not. What the others waited for is their primary's latency.
	Hedged, Unhedged estimator.Histogram

	// Of the eligible calls that a coin kept from being hedged, of Unhedged, what
	// their callers waited for: such calls differ from those hedged by chance only.
	HeldOut estimator.Histogram
	// Hedged calls whose loser runs to its end, and what was seen of such calls
	// that ended in the interval, in no order. At most MaxPairs.
	Observed uint64
	Pairs    []estimator.Pair

	Served Served
}

// Replica is what a client saw of one replica. A sample's times run from the
// attempt's own dispatch; its censored part holds cancelled attempts.
type Replica struct {
	Primary estimator.Sample
	Hedge   estimator.Sample
	Failed  uint64 // attempts that ended in a failure, whose latency is not kept
}

// Served is what a server saw of one method.
type Served struct {
	Attempts  uint64        // headers received
	Hedges    uint64        // of Attempts: carried the metadata hedged-attempt
	Cancelled uint64        // ended by the caller's cancellation
	Wasted    time.Duration // handler time of cancelled attempts
}

// Add adds what was seen besides.
func (s *Served) Add(o Served) {
	s.Attempts += o.Attempts
	s.Hedges += o.Hedges
	s.Cancelled += o.Cancelled
	s.Wasted += o.Wasted
}
