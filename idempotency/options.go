package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of [Options].
const (
	DefaultLease      = 30 * time.Second
	DefaultTTL        = 24 * time.Hour
	DefaultWait       = 10 * time.Second
	DefaultMaxAnswer  = 1 << 20
	DefaultMaxRequest = 1 << 20
)

// Bounds of [Options].
const (
	MinLease = 10 * time.Millisecond
	MaxTTL   = 366 * 24 * time.Hour
)

// Refusals says what becomes of an answer that is an error.
type Refusals int

const (
	// KeepFinal keeps what the handler decided, so that a retry gets the same
	// refusal even if its cause has cleared: of gRPC's codes InvalidArgument,
	// NotFound, AlreadyExists, PermissionDenied, FailedPrecondition and
	// OutOfRange, of HTTP's every 4xx but 401, 407, 408, 421, 425 and 429. All
	// other errors free the key.
	KeepFinal Refusals = iota
	// ReleaseAll frees the key after every error: the next copy runs.
	ReleaseAll
)

// Options of a [Guard]. The zero value is ready, but read Caller.
type Options struct {
	// Caller tells who calls. Keys and answers belong to a caller; others neither
	// see them nor get in their way. An error, or an empty identity, refuses the
	// call: Unauthenticated, 401. For HTTP the context is the request's, with the
	// TLS state as gRPC's peer, so that PeerIdentity serves both.
	//
	// nil: all callers share one scope. That is DANGEROUS where they do not trust
	// one another: whoever sends another's key with the same request is answered
	// with the other's answer.
	Caller func(ctx context.Context) (string, error)

	// Require tells which operations are refused without a key: InvalidArgument,
	// 400. An operation is "/pkg.Service/Method", or "POST /path" as requested.
	// nil: none; without a key the handler runs as if there were no guard.
	Require func(ctx context.Context, operation string) bool

	// Refusals: which errors are kept. 0: KeepFinal.
	Refusals Refusals

	// Wait is how long a copy waits for another that runs; after it the copy is
	// told to come back: Aborted, or 409 with Retry-After. 0: DefaultWait.
	// Negative: no wait; not for hedged calls, whose hedge would be refused while
	// the primary runs.
	Wait time.Duration

	// Lease is how long a reservation holds after its process died. While the
	// handler runs it is extended three times a lease. 0: DefaultLease; at least
	// MinLease.
	Lease time.Duration

	// TTL is how long an answer is kept: longer than any client goes on
	// retrying. 0: DefaultTTL; at least Lease, at most MaxTTL.
	TTL time.Duration

	// MaxAnswer is the size of the largest answer that is kept, in bytes, with
	// header and trailer. A larger one goes to the first copy whole; later ones
	// do not run and are told that it was not kept: AlreadyExists, 410.
	// 0: DefaultMaxAnswer.
	MaxAnswer int

	// MaxRequest is the size of the largest HTTP body that comes with a key, in
	// bytes; it is read before the handler runs. Larger: 413. 0:
	// DefaultMaxRequest. gRPC has its own limit.
	MaxRequest int

	// Withhold names further headers and metadata that are not kept with an
	// answer, in any case. Always withheld: Set-Cookie, Set-Cookie2,
	// Authorization, Proxy-Authorization, Authentication-Info,
	// Proxy-Authentication-Info, WWW-Authenticate and Proxy-Authenticate.
	Withhold []string

	// Logger is told what callers are not: faults of the store. nil: slog.Default.
	Logger *slog.Logger
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = DefaultMaxRequest
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Validate names every field that is out of its bounds.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Refusals < KeepFinal || o.Refusals > ReleaseAll {
		errs = append(errs, fmt.Errorf("Refusals is %d, want KeepFinal or ReleaseAll", o.Refusals))
	}
	if o.Lease < MinLease {
		errs = append(errs, fmt.Errorf("Lease is %v, want at least %v", o.Lease, MinLease))
	}
	if o.TTL < o.Lease || o.TTL > MaxTTL {
		errs = append(errs, fmt.Errorf("TTL is %v, want from the Lease (%v) to %v", o.TTL, o.Lease, MaxTTL))
	}
	if o.MaxAnswer < 0 {
		errs = append(errs, fmt.Errorf("MaxAnswer is %d, want at least 0", o.MaxAnswer))
	}
	if o.MaxRequest < 0 {
		errs = append(errs, fmt.Errorf("MaxRequest is %d, want at least 0", o.MaxRequest))
	}
	return errors.Join(errs...)
}
