package client

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/hedge"
)

// outcome is what became of an attempt.
type outcome struct {
	code      codes.Code
	cancelled bool // by its caller, or because its call was over
}

// outcomeOf judges an attempt's error; ctx is what the attempt ran under.
func outcomeOf(ctx context.Context, err error) outcome {
	o := outcome{code: codeOf(err)}
	switch o.code {
	case codes.Canceled, codes.DeadlineExceeded:
		o.cancelled = ctx.Err() != nil
	}
	return o
}

// counts reports whether the outcome speaks against the service: the controller
// stops hedging a service where many calls end so, and the throttle takes a
// token. Canceled and DeadlineExceeded count only when they are the server's own.
func (o outcome) counts() bool {
	switch o.code {
	case codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown,
		codes.DataLoss, codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
		return !o.cancelled
	}
	return false
}

// answered reports whether the method itself answered, if only to say no. Other
// codes may come from something in front of it, and a replica that fails fast
// must not look quick.
func (o outcome) answered() bool {
	switch o.code {
	case codes.OK, codes.NotFound, codes.AlreadyExists, codes.InvalidArgument,
		codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// record adds an attempt that ended to its replica's measurements: its latency
// when it was answered, a lower bound of it when it was cancelled, a count when
// it failed. call.mu is held.
func (a *attempt) record(o outcome, took time.Duration) {
	if a.replica.liveReplica == nil {
		return // it never got as far as a replica
	}
	r := a.call.method.replica(a.replica.name)
	seen := &r.primary
	if a.index > 0 {
		seen = &r.hedge
	}
	switch {
	case o.cancelled:
		seen.censored.Record(took)
	case o.answered():
		seen.completed.Record(took)
	default:
		r.failed.Add(1)
	}
}

// tell tells the throttle how an attempt ended. gRFC A6: a failure is "a
// non-fatal status code" or a pushback that says "do not retry"; here it is also
// what counts against the service, so that a policy without non-fatal codes
// throttles too.
func (a *attempt) tell(t *hedge.Throttle, o outcome, v hedge.Verdict) {
	switch {
	case o.cancelled:
	case o.code == codes.OK:
		t.Success()
	case v == hedge.NonFatal, o.counts(), a.pushback.Stops():
		t.Failure()
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
