// Package policy is the vocabulary of hedged as plain Go values: what a
// service is called, what its clients are told to do, and why.
//
// It decides nothing and imports nothing outside the standard library, so every
// other package can speak it. Read policy.go first; key.go says how things are
// named, generation.go which policy supersedes which, reason.go the closed sets
// of reasons that appear in metrics, on the wire and in front of operators.
package policy
