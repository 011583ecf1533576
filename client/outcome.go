package client

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
)

// outcome is what became of an attempt, whatever carried it.
type outcome struct {
	verdict   hedge.Verdict
	succeeded bool
	// answered: the method itself answered, if only to say no. Other failures may
	// come from something in front of it, and a replica that fails fast must not
	// look quick.
	answered  bool
	failed    bool // it speaks against the service, unless it was cancelled
	torn      bool // it ended as a cancelled one ends
	cancelled bool // it was: by its caller, or because its call was over
}

// counts reports whether the outcome speaks against the service: the controller
// stops hedging a service where many calls end so, and the throttle takes a
// token.
func (o outcome) counts() bool { return o.failed && !o.cancelled }

// outcomeOf judges the error of an attempt over gRPC. Canceled and
// DeadlineExceeded count only when they are the server's own.
func outcomeOf(law *policy.Method, err error) outcome {
	code := codeOf(err)
	o := outcome{verdict: hedge.Judge(law, uint32(code)), succeeded: code == codes.OK}
	switch code {
	case codes.OK, codes.NotFound, codes.AlreadyExists, codes.InvalidArgument,
		codes.FailedPrecondition, codes.OutOfRange:
		o.answered = true
	case codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown,
		codes.DataLoss, codes.Aborted:
		o.failed = true
	case codes.DeadlineExceeded, codes.Canceled:
		o.failed, o.torn = true, true
	}
	return o
}

// judge is the outcome of an attempt that ended with err and, without one, with
// reply.
func (c *call) judge(reply any, err error) outcome {
	o := outcomeOf(c.law, err)
	if err == nil && c.acceptable != nil && !c.acceptable(c.fullMethod, reply) {
		// What is no answer must not make its replica look quick.
		o = outcome{verdict: hedge.NotAcceptable}
	}
	return o
}

// record adds an attempt that ended to its replica's measurements: its latency
// when it was answered, a lower bound of it when it was cancelled, a count when
// it failed. race.mu is held.
func (r *race) record(t *try, o outcome, took time.Duration) {
	if t.replica.liveReplica == nil {
		return // it never got as far as a replica
	}
	if !o.cancelled {
		r.service.silence.Answered()
	}
	at := r.method.replica(t.replica.name)
	seen := &at.primary
	if t.index > 0 {
		seen = &at.hedge
	}
	switch {
	case o.cancelled:
		seen.censored.Record(took)
	case o.answered:
		seen.completed.Record(took)
	default:
		at.failed.Add(1)
	}
}

// tell tells the throttle how an attempt ended. gRFC A6: a failure is "a
// non-fatal status code" or a pushback that says "do not retry"; here it is also
// what counts against the service, so that a policy without non-fatal codes
// throttles too.
func (t *try) tell(throttle *hedge.Throttle, o outcome) {
	switch {
	case o.cancelled:
	case o.succeeded:
		throttle.Success()
	case o.verdict == hedge.NonFatal, o.failed, t.pushback.Stops():
		throttle.Failure()
	}
}

// codeOf returns the status code of err, the bare errors of contexts included.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
