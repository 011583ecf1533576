// Package control is the law of a service: from what clients and servers
// report it concludes when to hedge, how much to spend, and which replicas to
// spare, each with a reason that an operator can read.
//
// It is pure: no clock, no I/O, no goroutine, no log. Time is an argument, and
// whoever owns a Service calls it from one goroutine at a time. It numbers no
// policies, stores nothing and sends nothing; the daemon does.
//
// Read service.go first. Below it each law has a file: delay.go says when to
// hedge, budget.go how much may be spent, failing.go when extra load would make
// things worse, probation.go which replicas get only a trickle of calls.
package control
