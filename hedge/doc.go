// Package hedge is the law of one call: which attempt goes when, to whom, and
// why not; and the budget that all calls of one client to one service share.
//
// It holds no clock, no goroutine and no connection. A time is the duration
// since the call (or the client) started, given by the caller, and randomness is
// given too, so the same code runs in a client and in a simulation. How the
// delay and the budget are chosen is the controller's matter (package control);
// sending attempts is the client's.
//
// Read plan.go first: it is the life of a call. The other laws are asked at its
// hedge point, in this order:
//
//	Throttle.Allow   gRFC A6: is the service failing?
//	Choose, Untried  is there a replica that this call has not tried?
//	Budget.Take      a token, or a place in the queue for one
//
// EarlyRule stands apart: it tells a client to report ahead of its cadence.
package hedge
