package client

import (
	"context"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Attempt is what Options.OnAttempt is told of an attempt that has ended: what a
// log line says, or a span that began at Start and took Took.
type Attempt struct {
	Service policy.Key
	Method  string
	Replica string // empty: it never got as far as one
	Index   int    // 0: the primary

	Start time.Time
	Took  time.Duration // over HTTP and on streams, to the response's header

	Err       error // nil: a reply, over HTTP whatever its status
	Answered  bool  // the method itself did, if only to say no
	Cancelled bool  // by its caller, or because its call was over
	Won       bool  // its outcome is its call's
}

// noted is an Attempt, if the application wants to be told of it.
type noted struct {
	Attempt
	told bool
}

// note writes down an attempt that ends; race.mu is held.
func (r *race) note(t *try, o outcome, took time.Duration, won bool) noted {
	if r.service.onAttempt == nil {
		return noted{}
	}
	n := noted{told: true, Attempt: Attempt{
		Service: r.service.key, Method: r.name, Index: t.index,
		Start: r.start.Add(t.after), Took: took,
		Answered: o.answered, Cancelled: o.cancelled, Won: won,
	}}
	if t.replica.liveReplica != nil {
		n.Replica = t.replica.name
	}
	return n
}

// tellOf tells the application of an attempt, without a lock held.
func (r *race) tellOf(n noted, err error) {
	if n.told {
		n.Err = err
		r.service.onAttempt(context.WithoutCancel(r.ctx), n.Attempt)
	}
}
