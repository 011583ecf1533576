package idempotency

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
)

// verdict is what an answer means for the reservation.
type verdict int

const (
	release verdict = iota // it is no answer: the next copy runs
	refuse                 // kept, without effect
	commit                 // kept, with its effect
)

// judgeCode is the law for gRPC.
func (r Refusals) judgeCode(code codes.Code) verdict {
	switch code {
	case codes.OK:
		return commit
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange:
		if r == KeepFinal {
			return refuse
		}
	}
	return release
}

// judgeStatus is the law for HTTP.
func (r Refusals) judgeStatus(status int) verdict {
	switch {
	case status < 400:
		return commit
	case status >= 500 || r == ReleaseAll:
		return release
	}
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return release
	}
	return refuse
}

// refusal is the guard's own answer to a copy that does not run.
type refusal struct {
	code   codes.Code
	status int
	title  string
	retry  bool // the same call may be answered later
}

func (r *refusal) Error() string { return r.title }

// "If there is an attempt to reuse an idempotency key with a different request
// payload, the resource SHOULD reply with an HTTP 422 status code"; "If the
// request is retried, while the original request is still being processed, the
// resource SHOULD reply with an HTTP 409 status code"; "If the Idempotency-Key
// request header is missing for a documented idempotent operation requiring this
// header, the resource SHOULD reply with an HTTP 400 status code"
// (draft-ietf-httpapi-idempotency-key-header, 2.7).
var (
	errBadKey      = &refusal{codes.InvalidArgument, http.StatusBadRequest, "bad idempotency key", false}
	errNoKey       = &refusal{codes.InvalidArgument, http.StatusBadRequest, "this operation requires an idempotency key", false}
	errMismatch    = &refusal{codes.InvalidArgument, http.StatusUnprocessableEntity, "the idempotency key was used for another request", false}
	errInProgress  = &refusal{codes.Aborted, http.StatusConflict, "a request with this idempotency key is in progress", true}
	errNotKept     = &refusal{codes.AlreadyExists, http.StatusGone, "the request was carried out; its answer was not kept", false}
	errUnknown     = &refusal{codes.Unauthenticated, http.StatusUnauthorized, "the caller of a request with an idempotency key is not known", false}
	errStore       = &refusal{codes.Unavailable, http.StatusServiceUnavailable, "the store of idempotency keys is not available", true}
	errTooLarge    = &refusal{codes.ResourceExhausted, http.StatusRequestEntityTooLarge, "the body is too large for a request with an idempotency key", false}
	errUnreadable  = &refusal{codes.InvalidArgument, http.StatusBadRequest, "the body could not be read", false}
	errWrongFormat = &refusal{codes.Internal, http.StatusInternalServerError, "this call cannot be guarded by an idempotency key", false}
)

// asRefusal returns the refusal in err, and what more err says.
func asRefusal(err error) (*refusal, string) {
	r := errStore
	errors.As(err, &r)
	return r, err.Error()
}
