package control

import (
	"iter"
	"slices"

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

// same reports whether clients would do the same under a and b. Wording and
// generation do not count.
func same(a, b *policy.Policy) bool {
	if a.Mode != b.Mode || a.Budget != b.Budget || a.Throttle != b.Throttle ||
		a.ValidFor != b.ValidFor || a.Reason.Code != b.Reason.Code || len(a.Replicas) != len(b.Replicas) {
		return false
	}
	if !sameMethod(a.Default, b.Default) {
		return false
	}
	for name := range methodsOf(a, b) {
		ma, _ := a.Method(name)
		mb, _ := b.Method(name)
		if !sameMethod(ma, mb) {
			return false
		}
	}
	for name, ra := range a.Replicas {
		rb, ok := b.Replicas[name]
		if !ok || ra.State != rb.State || ra.Share != rb.Share {
			return false
		}
	}
	return true
}

func sameMethod(a, b policy.Method) bool {
	return a.Delay == b.Delay && a.Probability == b.Probability && a.MaxAttempts == b.MaxAttempts &&
		a.Observe == b.Observe && a.Holdout == b.Holdout && a.Reason.Code == b.Reason.Code && slices.Equal(a.NonFatal, b.NonFatal)
}

// tightens reports whether some client hedges less under b than under a.
func tightens(a, b *policy.Policy) bool {
	if b.Mode < a.Mode || b.Budget.Ratio < a.Budget.Ratio || b.Budget.Burst < a.Budget.Burst || b.Budget.Start < a.Budget.Start {
		return true
	}
	if tightensMethod(a.Default, b.Default) {
		return true
	}
	for name := range methodsOf(a, b) {
		ma, _ := a.Method(name)
		mb, _ := b.Method(name)
		if tightensMethod(ma, mb) {
			return true
		}
	}
	return false
}

func tightensMethod(a, b policy.Method) bool {
	if a.Delay == 0 || a.Probability == 0 {
		return false // it hedges nothing already
	}
	return b.Delay == 0 || b.Delay > a.Delay || b.Probability < a.Probability || b.Holdout > a.Holdout || b.MaxAttempts < a.MaxAttempts
}

// methodsOf yields each method that a or b names.
func methodsOf(a, b *policy.Policy) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range a.Methods {
			if !yield(name) {
				return
			}
		}
		for name := range b.Methods {
			if _, both := a.Methods[name]; !both && !yield(name) {
				return
			}
		}
	}
}
