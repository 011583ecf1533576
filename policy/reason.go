package policy

import "fmt"

// ReasonCode is the guard that decided: a closed set, fit for a metric label.
type ReasonCode uint8

// The guards; the first that matches decides. The controller asks them in this
// order, but tracking last.
const (
	ReasonUnknown        ReasonCode = iota // no decision was made yet
	ReasonOverride                         // an operator said off, shadow or pinned a value
	ReasonNotConfigured                    // nobody configured the service: it is in shadow
	ReasonNoData                           // too few recent calls for an estimate
	ReasonTooFewReplicas                   // fewer than two serving replicas
	ReasonFailing                          // too many calls fail; extra load would make it worse
	ReasonTracking                         // normal: the delay follows the latency
	ReasonFreeze                           // nearly every call outlives the delay: no copy is quicker
	ReasonShared                           // what is slow is slow on every copy: hedges rescue nothing
	ReasonCostly                           // servers finish what was cancelled while calls queue: half the target is spent
	numReasonCodes
)

var reasonNames = [numReasonCodes]string{
	"unknown", "override", "not_configured", "no_data", "too_few_replicas", "failing", "tracking", "freeze", "shared", "costly",
}

// String returns the code in snake case.
func (c ReasonCode) String() string {
	if c < numReasonCodes {
		return reasonNames[c]
	}
	return fmt.Sprintf("reason(%d)", uint8(c))
}

// Reason is a decision's why, for operators: the guard, and a sentence with the
// numbers that made it decide.
type Reason struct {
	Code ReasonCode
	Text string
}

// Suppression is why an eligible call was not hedged: a closed set, fit for a
// metric label. Each eligible call that never sends a hedge counts exactly one.
type Suppression uint8

// Suppressions, as the client meets them.
const (
	SuppressedUnsafe      Suppression = iota // the method may not run twice
	SuppressedMode                           // policy says shadow or off
	SuppressedProbability                    // the coin, or probability 0
	SuppressedThrottle                       // too many failures (gRFC A6 throttle)
	SuppressedBudget                         // no token came before the call ended
	SuppressedReplica                        // no replica that this call has not tried
	SuppressedPushback                       // the server said: do not retry
	SuppressedSilence                        // nothing came back, from no replica
	NumSuppressions
)

var suppressionNames = [NumSuppressions]string{
	"unsafe", "mode", "probability", "throttle", "budget", "replica", "pushback", "silence",
}

// String returns the suppression in snake case.
func (s Suppression) String() string {
	if s < NumSuppressions {
		return suppressionNames[s]
	}
	return fmt.Sprintf("suppression(%d)", uint8(s))
}
