package idempotency

import (
	"context"
	"errors"
	"time"
)

// ID names a call in a store: a hash of the caller's identity and the key, so
// that neither is kept in clear.
type ID [32]byte

// Fingerprint is a hash of the data of a call.
type Fingerprint [32]byte

// Errors of a [Reservation] that callers branch on.
var (
	// ErrLost: the lease ran out and another copy has taken the call over, or the
	// reservation has ended already. Nothing was changed.
	ErrLost = errors.New("the reservation belongs to another copy")
	// ErrNotCommitted: the handler's transaction did not commit, or it is not
	// known whether it did.
	ErrNotCommitted = errors.New("the transaction was not committed")
)

// ErrFull says that the store can take no further key before old ones expire.
var ErrFull = errors.New("the store is full")

// Store keeps, by ID, who runs a call and what its answer was. Its methods may
// be called concurrently; package storetest is its suite.
//
// Time is the wall clock of the process. Where several processes share a store,
// their clocks must agree to much better than the lease.
type Store interface {
	// Begin asks to run a call, and decides in one atomic step:
	//
	//	no record, or one past its TTL      Granted: the caller now holds a reservation
	//	a record with another fingerprint   Mismatch
	//	a reservation within its lease      Running
	//	a reservation past its lease        Granted: its holder has lost it
	//	an answer                           Done
	//
	// It may delete a bounded number of records that are past their TTL. An
	// error means that no reservation is known to be held; one that is held all
	// the same ends with its lease.
	Begin(ctx context.Context, call Call) (Begun, error)
}

// Call is what Begin is asked about.
type Call struct {
	ID          ID
	Fingerprint Fingerprint
	// Lease is how long a reservation holds unless it is extended; at least 1 ms.
	Lease time.Duration
	// TTL is how long the record is kept, from Begin and again from its answer;
	// at least Lease.
	TTL time.Duration
}

// State is what Begin found.
type State int

// What Begin may find.
const (
	Granted  State = iota + 1 // run it: the reservation is yours
	Running                   // another copy runs
	Done                      // there is an answer
	Mismatch                  // the key was used for other data
)

func (s State) String() string {
	switch s {
	case Granted:
		return "granted"
	case Running:
		return "running"
	case Done:
		return "done"
	case Mismatch:
		return "mismatch"
	}
	return "unknown"
}

// Begun is Begin's answer.
type Begun struct {
	State       State
	Reservation Reservation // Granted only
	Answer      []byte      // Done only; the caller's own
}

// Reservation is the right to run a call, until it ends by Finish, Refuse or
// Release, or its lease runs out. It belongs to one caller; only Extend may be
// called beside the handler.
type Reservation interface {
	// Context returns the context for the handler. By it the handler may open a
	// transaction of the store, if the store has such, which ends with the
	// reservation.
	Context(ctx context.Context) context.Context
	// Extend makes the lease end that long from now. ErrLost: it is another's.
	Extend(ctx context.Context, lease time.Duration) error
	// Finish records the answer and commits the handler's transaction, both or
	// neither. ErrLost: the reservation is another's and the transaction was
	// rolled back. ErrNotCommitted: the transaction did not commit, so neither
	// effect nor answer is there, as far as is known. Any other error: there was
	// no transaction and the answer is not recorded. The answer is not kept by
	// reference.
	Finish(ctx context.Context, answer []byte) error
	// Refuse rolls the handler's transaction back and records the answer.
	Refuse(ctx context.Context, answer []byte) error
	// Release rolls the handler's transaction back and forgets the call, so that
	// the next copy runs. It never removes an answer; what another holds it
	// leaves alone and returns ErrLost.
	Release(ctx context.Context) error
}
