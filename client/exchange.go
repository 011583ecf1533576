package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// hedgedAttemptHeader is hedgedAttemptKey over HTTP, in canonical form.
const hedgedAttemptHeader = "Hedged-Attempt"

// httpCall is one request over HTTP, the carrier of its own race.
type httpCall struct {
	race
	transport *transport
	request   *http.Request // the caller's
	primary   exchange
	set       *replicaSet // at the last choice, guarded by race.mu; nil: the request's own host
}

// exchange is one attempt of a request. The primary runs on the caller's
// goroutine and sends the caller's body; a hedge has a goroutine, a context and
// a body of its own.
type exchange struct {
	try
	call     *httpCall
	ctx      context.Context
	cancel   context.CancelFunc // of ctx; nil when the caller's context is enough
	header   atomic.Uint32      // headerUnknown and so on, of a hedge
	released atomic.Bool

	response *http.Response // written at its end, read once it has ended
	err      error          // likewise
}

// What is known of a hedge's header.
const (
	headerUnknown uint32 = iota
	headerBegun          // it is being written, and out a moment later
	headerUnsent         // its attempt has ended without: counted as unsent
)

// begins is called by net/http when it begins to write the hedge's header. Over
// HTTP/2 that may be after the attempt was cancelled and has ended.
func (x *exchange) begins(string, []string) {
	if !x.header.CompareAndSwap(headerUnknown, headerBegun) && x.header.CompareAndSwap(headerUnsent, headerBegun) {
		x.call.method.cancelledUnsent.Add(^uint64(0))
	}
}

// place chooses the primary's replica.
func (c *httpCall) place() {
	if c.set = c.transport.replicas(); c.set == nil {
		c.primary.replica = candidate{liveReplica: c.transport.hostOf(c.request)}
	} else {
		c.primary.replica, _ = hedge.Choose(c.set.candidates(c.policy), nil, rand.Uint64)
	}
	c.primary.replica.outstanding.Add(1)
}

// plain makes the call as if there were no hedging, and measures it.
func (c *httpCall) plain() (*http.Response, error) {
	x := &c.primary
	x.ctx = c.ctx
	x.response, x.err = x.send(x.outgoing())
	c.measured(&x.try, c.judge(x.response, x.err), x.err)
	if c.set == nil { // nobody compares a single replica's load
		x.release()
		return x.response, x.err
	}
	return x.deliver()
}

// hedged makes the call, with hedges when they are due and may go.
func (c *httpCall) hedged() (*http.Response, error) {
	x := &c.primary
	x.ctx, x.cancel = context.WithCancel(c.ctx)
	r := x.outgoing()
	c.run()
	x.run(r)
	if winner, ok := c.await().(*exchange); ok {
		return winner.deliver()
	}
	return nil, context.Cause(c.ctx)
}

// first is part of carrier.
func (c *httpCall) first() runner { return &c.primary }

// ready is part of carrier. Behind one address every attempt is another
// replica's, for all that is known here.
func (c *httpCall) ready() (policy.Suppression, bool) {
	if c.set == nil {
		return 0, true
	}
	set := c.transport.replicas()
	if set == nil || !hedge.Untried(set.candidates(c.policy), c.tried()) {
		return policy.SuppressedReplica, false
	}
	c.set = set
	return 0, true
}

func (c *httpCall) tried() []candidate {
	return c.appendTried(make([]candidate, 0, policy.MaxAttempts), nil)
}

// launch is part of carrier.
func (c *httpCall) launch(t try) runner {
	h := &struct {
		exchange
		trace httptrace.ClientTrace
	}{exchange: exchange{try: t, call: c}}
	x := &h.exchange
	x.replica = c.primary.replica
	if c.set != nil {
		x.replica, _ = hedge.Choose(c.set.candidates(c.policy), c.tried(), rand.Uint64)
	}
	x.replica.outstanding.Add(1)
	// The header is out a moment later, if the attempt is not cancelled first, which
	// net/http does not tell: so a hedge may count as sent that was not, but none
	// that was sent as unsent.
	h.trace.WroteHeaderField = x.begins
	x.ctx, x.cancel = context.WithCancel(httptrace.WithClientTrace(c.ctx, &h.trace))
	// Taken now, while the caller may not write to its request: a loser may be
	// reading its own when the caller's is in other use.
	go x.runHedge(x.outgoing())
	return x
}

// runHedge is a hedge's goroutine.
func (x *exchange) runHedge(r *http.Request) {
	if x.err = x.freshBody(r); x.err != nil {
		x.stranded = true
		x.call.ended(x, x.call.judge(nil, x.err), x.err)
		return
	}
	x.run(r)
}

// run makes the exchange, to its end in the race: the header, or its failure.
func (x *exchange) run(r *http.Request) {
	x.response, x.err = x.send(r) //nolint:bodyclose // its caller closes the winner's, discard the others'
	x.sent = x.index == 0 || x.response != nil || !x.header.CompareAndSwap(headerUnknown, headerUnsent)
	o := x.call.judge(x.response, x.err)
	if x.response != nil && o.verdict != hedge.Acceptable {
		x.pushback = retryAfter(x.response.Header, x.call.law.Delay)
	}
	x.call.ended(x, o, x.err)
}

// send sends r, which is the caller's or its copy for this attempt.
//
// net/http puts the connection of a response without a body back into its pool
// before it hands the response over. If that request is cancelled in between, as
// a loser is, it cuts the connection under the one that has taken it meanwhile,
// whose error then is context.Canceled though nobody has cancelled it. That is
// no end of the attempt: it goes once more.
func (x *exchange) send(r *http.Request) (*http.Response, error) {
	base := x.call.transport.base
	response, err := base.RoundTrip(r)
	if err == nil || !x.call.safe || !errors.Is(err, context.Canceled) || x.ctx.Err() != nil {
		return response, err
	}
	r = r.Clone(x.ctx)
	if x.freshBody(r) != nil {
		return nil, err
	}
	return base.RoundTrip(r)
}

// freshBody gives r, which belongs to the attempt, a body that nobody has read.
func (x *exchange) freshBody(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, err := x.call.request.GetBody()
	if err != nil {
		return err
	}
	r.Body = body
	return nil
}

// outgoing returns the request as this attempt sends it: the caller's own where
// nothing has to differ.
func (x *exchange) outgoing() *http.Request {
	c := x.call
	in := c.request
	stray := in.Header[hedgedAttemptHeader] != nil // a proxy forwards what is a hedge to it
	switch {
	case x.index > 0:
		// As in.Clone does of what net/http reads: the caller's may change meanwhile.
		out := in.WithContext(x.ctx)
		out.Header = withHeader(in.Header, hedgedAttemptHeader, strconv.Itoa(x.index))
		out.TransferEncoding = slices.Clone(in.TransferEncoding)
		return x.address(out)
	case x.cancel == nil && c.set == nil && !stray:
		return in
	}
	// "RoundTrip should not modify the request" (net/http.RoundTripper).
	out := in.WithContext(x.ctx)
	if stray {
		out.Header = in.Header.Clone()
		out.Header.Del(hedgedAttemptHeader)
	}
	return x.address(out)
}

// address sends out, which belongs to the attempt, to the attempt's replica.
func (x *exchange) address(out *http.Request) *http.Request {
	if x.call.set == nil && x.index == 0 {
		return out // who waits for the primary writes to nothing meanwhile
	}
	to := *out.URL
	out.URL = &to
	if x.call.set == nil {
		return out
	}
	if out.Host == "" {
		out.Host = to.Host
	}
	to.Host = x.replica.name
	return out
}

// withHeader returns a copy of h in which name has the one value, as h.Clone and
// Set make it with more allocations.
func withHeader(h http.Header, name, value string) http.Header {
	n := 1
	for _, values := range h {
		n += len(values)
	}
	all := append(make([]string, 0, n), value)
	out := make(http.Header, len(h)+1)
	for key, values := range h {
		from := len(all)
		all = append(all, values...)
		out[key] = all[from:len(all):len(all)]
	}
	out[name] = all[:1:1]
	return out
}

// settle is part of carrier. The response of one that has ended goes on.
func (c *httpCall) settle() {
	if !c.primary.ended {
		c.primary.cancel()
	}
	for _, h := range c.hedges {
		if x := h.(*exchange); !x.ended {
			x.cancel()
		}
	}
}

// discard is part of carrier.
func (c *httpCall) discard(a runner) {
	x := a.(*exchange)
	if x.response == nil || x.response.Body == http.NoBody {
		x.release()
		return
	}
	go x.drain()
}

// release frees what the exchange holds: its context, and its replica.
func (x *exchange) release() {
	if x.released.Swap(true) {
		return
	}
	if x.cancel != nil {
		x.cancel()
	}
	x.replica.outstanding.Add(-1)
}
