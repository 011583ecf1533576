// Package wire turns the messages of api/hedged/v1 into policy and report
// values and back. It is the only place that knows both forms, and every bound
// that the protos state is enforced here, once, where a message comes in.
//
// It neither sends nor stores, and it keeps nothing: all functions are pure and
// safe for concurrent use. What they return shares no memory with what they got.
//
// Errors of a FromProto function name the field by its path in the message, its
// value and the bound, such as
//
//	methods["/a.B/C"].replicas["r1"].failed: 2000000000, want at most 1000000000
//
// Read policy.go first; frame.go and source.go are the same for what clients
// and servers report, enum.go holds the closed sets, field.go the checks.
package wire
