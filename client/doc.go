// Package client is hedged's library for clients and servers of gRPC and HTTP: it
// measures calls, reports them to the daemon, takes the policies that come back, and
// hedges by them.
//
// It does not decide when hedging pays; the daemon does, and the law of a single
// call is in package hedge. Nothing in a call waits for the daemon: a call reads
// the policy with one atomic load, counts with atomic adds, and goes on.
// Without a policy, or once the last one has outlived its valid_for, calls are
// made once and plainly.
//
// Over gRPC, DialOptions hedges the unary calls and server streams of a connection;
// over HTTP, Transport hedges the requests of an http.Client. What may run twice is
// hedged and nothing else: methods that their proto declares free of side effects,
// GET, HEAD and OPTIONS, calls that carry an idempotency key, and what the
// application lists. A service may have clients of both kinds; they share one policy,
// budget and counts. ServerOption and HTTPHandler count what a replica gets. Without
// a daemon, package client/local decides inside the process. Start with
// docs/client.md.
//
// Read client.go first: New, and the options that put a Client into a
// connection or a server. A service's state, shared by both halves of the
// package, is in service.go. The control half is recorder.go (what is counted),
// reporter.go (when it is sent), controller.go (to whom), and daemon.go with
// redirect.go, subscriber.go, stream.go and outbox.go (the daemons' two streams). The
// call half is race.go, one call under the law, and what carries its attempts: gRPC
// from interceptor.go on (call.go, serverstream.go), HTTP from transport.go on.
package client
