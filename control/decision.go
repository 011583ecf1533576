package control

import (
	"github.com/hedged-project/hedged/policy"
)

// Decision is what a Service concludes at one moment.
type Decision struct {
	// Policy is complete and validates; its Generation is zero. It is never
	// written to again.
	Policy *policy.Policy
	// Publish is true when clients must get Policy. It is false while all that
	// differs from what they have is noise or wording.
	Publish bool
	// Tightens is true when Policy makes some client hedge less than what is in
	// force allows. Such a policy goes out even when it cannot be saved.
	Tightens bool
	// Guards are all that were asked, in their order: those of the service
	// first, then of each method by name.
	Guards []Guard
}

// Guard is one question that the controller asked, with its numbers.
type Guard struct {
	Code    policy.ReasonCode
	Method  string // empty: it concerns the service
	Decided bool   // it was the first that matched
	Text    string
}
