package hedge

import (
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
	NotAcceptable                // a reply, but one that the caller would rather not have
)

// Judge returns the verdict on a gRPC status code under a method's policy.
func Judge(m *policy.Method, code uint32) Verdict {
	if code == 0 {
		return Acceptable
	}
	for _, c := range m.NonFatal {
		if c == code {
			return NonFatal
		}
	}
	return Fatal
}

// Action is what the caller has to do next.
type Action uint8

// Actions.
const (
	// Await: wait for what comes first, the end of a running attempt, the time
	// that Next returns, or a token while Waits.
	Await Action = iota
	// AttemptNow: the next attempt is due now (Next says so too).
	AttemptNow
	// Commit: the call is over. Return the outcome of the attempt that ended
	// last and cancel the others.
	Commit
)

// Plan is the life of one call, as in gRFC A6: the primary goes at 0, hedges go
// at d, 2d, ... until MaxAttempts were sent. It decides when an attempt is due
// and when the call is over; whether a due attempt may go is decided by the
// throttle, the budget and the choice of a replica, and the caller tells the
// plan what came of it: Started, Waiting or Refused.
//
// A Plan never leaves a call without an end: when nothing runs and nothing more
// may be sent, the last outcome is the call's, at once.
//
// Times are durations since the call's start. The zero Plan never hedges. A
// Plan is a value of one call; its owner serialises the calls to it.
type Plan struct {
	delay   time.Duration
	max     int           // attempts in all
	sent    int           // attempts started
	running int           // attempts that have not ended
	due     time.Duration // of the next attempt
	floor   time.Duration // no attempt before it: a server pushed back
	waits   bool          // for a token
	waited  bool          // for another delay: of the late class
	stopped bool          // no more attempts
	done    bool
}

// NewPlan returns the plan of a call whose primary is about to be sent. A
// method without a delay, or with fewer than two attempts, is never hedged, not
// after a failure either.
func NewPlan(m *policy.Method) Plan {
	p := Plan{delay: m.Delay, max: min(m.MaxAttempts, policy.MaxAttempts)}
	if m.Delay <= 0 || m.MaxAttempts < 2 || m.Probability <= 0 {
		p.max = 1
	}
	return p
}

// Next returns when the next attempt is due, or, while Waits, when the hedge
// has waited for another delay and is to be promoted. False: no time matters
// any more, only the ends of the running attempts, and a token while Waits.
func (p *Plan) Next() (at time.Duration, ok bool) {
	if p.done || p.exhausted() || p.waited {
		return 0, false
	}
	return p.due, true
}

func (p *Plan) exhausted() bool { return p.stopped || p.sent >= p.max }

// Attempts returns how many attempts were started.
func (p *Plan) Attempts() int { return p.sent }

// Running returns how many attempts have not ended.
func (p *Plan) Running() int { return p.running }

// Late reports whether the next attempt is of the budget's late class.
func (p *Plan) Late() bool { return p.sent >= 2 || p.waited }

// Waits reports whether the next attempt is in the budget's queue. When it turns
// false without a Started, the caller must leave the queue.
func (p *Plan) Waits() bool { return p.waits }

// Started says that an attempt was sent: the primary, or the one that was due.
func (p *Plan) Started(at time.Duration) {
	p.sent++
	p.running++
	p.waits, p.waited = false, false
	p.due = max(at+p.delay, p.floor)
}

// Waiting says that the due attempt found no token and is in the queue; or,
// when it was there already, that it was promoted and still has none. When
// nothing runs the call does not wait for the budget: Commit.
func (p *Plan) Waiting(at time.Duration) Action {
	if p.running == 0 {
		return p.Refused()
	}
	p.waited = p.waits
	p.waits = true
	p.due = at + p.delay
	return Await
}

// Refused says that the due attempt may not go, and none after it: the mode, the
// coin, the throttle or the lack of an untried replica forbids it.
func (p *Plan) Refused() Action {
	p.stop()
	return p.outlook()
}

func (p *Plan) stop() {
	p.stopped, p.waits, p.waited = true, false, false
}

// outlook decides whether the call goes on once an attempt has ended or was
// refused.
func (p *Plan) outlook() Action {
	if p.running > 0 || !p.exhausted() {
		return Await
	}
	p.done = true
	return Commit
}

// Ended says that an attempt ended, with what verdict and pushback. After
// Commit it changes nothing.
func (p *Plan) Ended(at time.Duration, v Verdict, push Pushback) Action {
	p.running--
	if p.done {
		return Await
	}
	if v == Acceptable || v == Fatal {
		// A6: "If a non-error response is received [...] all other outstanding
		// hedged requests are canceled" and likewise for a fatal status code.
		p.stop()
		p.done = true
		return Commit
	}
	if p.exhausted() {
		return p.outlook()
	}
	switch {
	case push.stop:
		p.stop()
		return p.outlook()
	case push.present:
		p.floor = max(p.floor, at+push.delay)
		p.waits, p.waited = false, false
		p.due = p.floor
		return Await
	case p.waits:
		// It is as early as the budget allows. Without a running attempt the
		// budget has refused it.
		if p.running == 0 {
			return p.Refused()
		}
		return Await
	}
	p.due = max(at, p.floor)
	if p.due > at {
		return Await
	}
	return AttemptNow
}
