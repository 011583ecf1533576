// Package client is hedged's library for gRPC clients and servers: it measures
// calls, reports them to the daemon, takes the policies that come back, and
// hedges by them.
//
// It does not decide when hedging pays; the daemon does, and the law of a single
// call is in package hedge. Nothing in a call waits for the daemon: a call reads
// the policy with one atomic load, counts with atomic adds, and goes on.
// Without a policy, or once the last one has outlived its valid_for, calls are
// made once and plainly.
//
// Read client.go first: New, and the options that put a Client into a
// connection or a server. A service's state, shared by both halves of the
// package, is in service.go. The control half is recorder.go (what is counted),
// reporter.go (when it is sent), controller.go (to whom), and daemon.go with
// subscriber.go, stream.go and outbox.go (the daemon's two streams). The call
// half starts at interceptor.go.
package client
