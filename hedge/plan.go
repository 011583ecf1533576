package hedge

import (
	"slices"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Verdict is what the end of one attempt means for its call.
type Verdict uint8

// Verdicts. gRFC A6 knows the first three; what reply is not acceptable only
// the caller can say.
const (
	Acceptable    Verdict = iota // the answer: it ends the call
	NonFatal                     // a failure after which another attempt may succeed
	Fatal                        // a failure that ends the call
	NotAcceptable                // a reply, but any other attempt's is preferred
)

// Judge returns the verdict on a gRPC status code under a method's policy.
func Judge(m *policy.Method, code uint32) Verdict {
	switch {
	case code == 0:
		return Acceptable
	case slices.Contains(m.NonFatal, code):
		return NonFatal
	}
	return Fatal
}

// Action is what the caller has to do next.
type Action uint8

// Actions.
const (
	// Await: wait for what comes first of the end of a running attempt, the time
	// that Next returns, and a token while Waits.
	Await Action = iota
	// AttemptNow: the next attempt is due now (Next says so too).
	AttemptNow
	// Commit: the call is over. Return the outcome of the attempt that ended
	// last and cancel the others.
	Commit
)

// Plan is the life of one call, by gRFC A6: the primary goes at 0, hedges go at
// d, 2d, ... until MaxAttempts were sent or one has succeeded. It decides when an
// attempt is due and when the call is over. Whether a due attempt may go is for
// the throttle, the budget and the choice of a replica to say; the caller tells
// the plan what came of it:
//
//	              due: Next, AttemptNow
//	                |
//	   .------------+-------------.
//	Started      Waiting       Postponed         Refused
//	(sent)    (for a token)  (nowhere to go)  (for good: no more attempts)
//	              |           due again after
//	              |           another delay
//	  Started, or Waiting again at Next (promoted in vain),
//	  or Postponed, or Refused; Waits turns false: leave the queue
//
// A Plan leaves no call without an end: when nothing runs and nothing more may
// be sent, the outcome that came last is the call's, at once.
//
// Times are durations since the call's start. The zero Plan never hedges. A Plan
// is a value that belongs to one call, whose owner serialises all use of it.
type Plan struct {
	delay   time.Duration
	max     int           // attempts in all
	sent    int           // attempts started
	running int           // of sent, those that have not ended
	due     time.Duration // when the next attempt is due, or to be promoted
	floor   time.Duration // no attempt before it: a server pushed back
	waits   bool          // for a token
	waited  int           // how many further delays it has waited for it
	stopped bool          // no more attempts
	done    bool          // Commit was returned
}

// NewPlan returns the plan of a call whose primary is about to be sent. A method
// without a delay (no estimate), with fewer than two attempts or with
// probability 0 is never hedged, not after a failure either.
func NewPlan(m *policy.Method) Plan {
	// A6: "higher values will be treated as equal to the maximum value by the
	// client implementation."
	p := Plan{delay: m.Delay, max: min(m.MaxAttempts, policy.MaxAttempts)}
	if m.Delay <= 0 || m.Probability <= 0 {
		p.max = 1
	}
	return p
}

// Next returns when the next attempt is due or, while Waits, is to be promoted
// in the budget's queue. False: time alone changes nothing any more.
func (p *Plan) Next() (at time.Duration, ok bool) {
	if p.done || p.exhausted() || p.waited == Levels {
		return 0, false
	}
	return p.due, true
}

func (p *Plan) exhausted() bool { return p.stopped || p.sent >= p.max }

// Attempts returns how many attempts were started.
func (p *Plan) Attempts() int { return p.sent }

// Running returns how many attempts have not ended.
func (p *Plan) Running() int { return p.running }

// Late reports whether the next attempt is the third or a later one, as
// Budget.Take wants to know.
func (p *Plan) Late() bool { return p.sent >= 2 }

// Waits reports whether the next attempt waits for a token. When it turns false
// and nothing was started, the caller must leave the budget's queue.
func (p *Plan) Waits() bool { return p.waits }

// Started says that an attempt was sent: the primary, or the one that was due.
func (p *Plan) Started(at time.Duration) {
	p.sent++
	p.running++
	p.waits, p.waited = false, 0
	// A6: "Subsequent hedged requests will resume at hedgingDelay". From when the
	// attempt really went: a late timer or a wait for a token must not be made up
	// for by a burst of attempts.
	p.due = max(at+p.delay, p.floor)
}

// Waiting says that the due attempt found no token and is in the budget's queue;
// or, when it waited already, that it was promoted and still has none. When
// nothing runs, a call does not wait for the budget: Commit.
func (p *Plan) Waiting(at time.Duration) Action {
	if p.running == 0 {
		return p.Refused()
	}
	if p.waits {
		p.waited++
	}
	p.waits = true
	p.due = at + p.delay
	return Await
}

// Postponed says that the due attempt, or the one that waited, has nowhere to go
// at this instant: no replica is ready that the call has not tried. One may be
// after another delay, so it is due again then. When nothing runs, a call does
// not wait for one to come: Commit.
func (p *Plan) Postponed(at time.Duration) Action {
	if p.running == 0 {
		return p.Refused()
	}
	p.waits, p.waited = false, 0
	p.due = at + p.delay
	return Await
}

// Refused says that the due attempt may not go, nor any after it: the mode, the
// coin or the throttle forbids it. It may be said at any time.
//
// A6: "The hedged request is cancelled, and if there are no other already-sent
// hedged RPCs the failure is returned to the client application."
func (p *Plan) Refused() Action {
	p.stop()
	return p.unlessOver(Await)
}

// Ended says that an attempt ended, with what verdict, and what its server
// wished. Once the call is over it only counts.
func (p *Plan) Ended(at time.Duration, v Verdict, push Pushback) Action {
	p.running--
	if p.done {
		return Await
	}
	if v == Acceptable || v == Fatal {
		// A6: "When a non-error response is received (in response to any of the
		// hedged requests), all outstanding hedged requests are canceled and the
		// response is returned [...] If any other status code is received, all
		// outstanding RPCs are canceled and the error is returned to the client
		// application layer."
		p.stop()
		p.done = true
		return Commit
	}
	switch {
	case p.exhausted():
		return p.unlessOver(Await)
	case push.stop:
		// A6: "If the pushback says not to retry, no further hedged requests will
		// be sent."
		p.stop()
		return p.unlessOver(Await)
	case push.present:
		// A6: "If the pushback says to retry after a given delay, the next hedged
		// request (if any) will be issued after the given delay has elapsed."
		p.floor = max(p.floor, at+push.delay)
		p.due = p.floor
		p.waits, p.waited = false, 0
		return Await
	case p.waits && p.running == 0:
		return p.Refused() // the budget has, and there is nothing else to wait for
	case p.waits:
		return Await // it goes as early as the budget lets it
	case at < p.floor:
		p.due = p.floor // another server's pushback holds for the call
		return Await
	}
	// A6: "If a non-fatal status code is received from a hedged request, then the
	// next hedged request in line is sent immediately, shortcutting its hedging
	// delay."
	p.due = at
	return AttemptNow
}

func (p *Plan) stop() {
	p.stopped, p.waits, p.waited = true, false, 0
}

// unlessOver returns the action, or Commit when nothing runs and nothing more
// can be sent.
func (p *Plan) unlessOver(a Action) Action {
	if p.done || p.running > 0 || !p.exhausted() {
		return a
	}
	p.done = true
	return Commit
}
