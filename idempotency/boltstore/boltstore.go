// Package boltstore keeps idempotency keys in a bbolt database, beside the data
// of the application, so that a handler's effect and its answer can be one
// transaction: see [Tx].
//
// It is not a store for several processes: bbolt gives its file to one. Replicas
// with a file each would each run a copy that comes to them.
//
// Read this file first; record.go has the encoding.
package boltstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/idempotency"
)

// Store is an idempotency.Store in one bucket. Its methods may be called
// concurrently. The database belongs to the caller, who closes it after the
// last call.
//
// A call costs two bbolt transactions that write, each synced; a repetition
// costs one that reads. bbolt writes one transaction at a time: while a handler
// holds one of [Tx], new keys wait for it, whatever their context says.
type Store struct {
	db     *bbolt.DB
	bucket []byte
}

var _ idempotency.Store = (*Store)(nil)

// The buckets in the store's own: records by ID, and for each record the key
// (time of expiry, ID) without a value.
var (
	recordsBucket = []byte("records")
	expiryBucket  = []byte("expiry")
)

// New returns a store in the named top-level bucket of db, which it creates
// unless it is there.
func New(db *bbolt.DB, bucket string) (*Store, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		root, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		for _, name := range [][]byte{recordsBucket, expiryBucket} {
			if _, err := root.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency bucket %q in %s: %w", bucket, db.Path(), err)
	}
	return &Store{db: db, bucket: []byte(bucket)}, nil
}

// Begin implements idempotency.Store.
func (s *Store) Begin(ctx context.Context, call idempotency.Call) (idempotency.Begun, error) {
	begun, err := s.begin(ctx, call)
	if err != nil {
		return idempotency.Begun{}, fmt.Errorf("begin in bucket %q: %w", s.bucket, err)
	}
	return begun, nil
}

func (s *Store) begin(ctx context.Context, call idempotency.Call) (begun idempotency.Begun, err error) {
	// A repetition is answered without waiting for whoever writes.
	err = s.db.View(func(tx *bbolt.Tx) error {
		rec, _, err := s.table(tx).get(call.ID)
		begun = rec.state(call, time.Now())
		return err
	})
	if err != nil || begun.State != idempotency.Granted {
		return begun, err
	}
	if err := ctx.Err(); err != nil {
		return begun, err
	}
	res := &reservation{store: s, call: call}
	rand.Read(res.owner[:])
	err = s.db.Update(func(tx *bbolt.Tx) error {
		now, t := time.Now(), s.table(tx)
		rec, _, err := t.get(call.ID)
		if err != nil {
			return err
		}
		if begun = rec.state(call, now); begun.State != idempotency.Granted {
			return nil
		}
		if err := t.purge(now); err != nil {
			return err
		}
		return t.put(call.ID, record{
			fingerprint: call.Fingerprint,
			owner:       res.owner,
			running:     true,
			lease:       now.Add(call.Lease).UnixMilli(),
			expires:     now.Add(call.TTL).UnixMilli(),
		})
	})
	if begun.State == idempotency.Granted {
		begun.Reservation = res
	}
	return begun, err
}

// state says what the record means for a call.
func (r record) state(call idempotency.Call, now time.Time) idempotency.Begun {
	at := now.UnixMilli()
	switch {
	case at >= r.expires: // or there is none
		return idempotency.Begun{State: idempotency.Granted}
	case r.fingerprint != call.Fingerprint:
		return idempotency.Begun{State: idempotency.Mismatch}
	case !r.running:
		return idempotency.Begun{State: idempotency.Done, Answer: r.answer}
	case at < r.lease:
		return idempotency.Begun{State: idempotency.Running}
	}
	return idempotency.Begun{State: idempotency.Granted}
}

type txContext struct{}

// ErrNoReservation says that the context is not that of a handler which runs under a
// reservation of this package, or the reservation has ended.
var ErrNoReservation = errors.New("no reservation of boltstore in the context")

// Tx returns the transaction that is committed together with the answer of the
// handler whose context this is; the first use begins it. It is rolled back when
// the answer is an error or the handler panics. The handler must not end it, use
// it after its return or from two goroutines, or open another transaction that
// writes: bbolt has one at a time.
func Tx(ctx context.Context) (*bbolt.Tx, error) {
	r, ok := ctx.Value(txContext{}).(*reservation)
	if !ok {
		return nil, ErrNoReservation
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, ErrNoReservation
	}
	if r.tx == nil {
		tx, err := r.store.db.Begin(true)
		if err != nil {
			return nil, err
		}
		// Whoever holds bbolt's one transaction cannot be overtaken any more, but
		// may have been before.
		if err := r.own(r.store.table(tx), func(*record) {}); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		r.tx = tx
	}
	return r.tx, nil
}

// reservation implements idempotency.Reservation.
type reservation struct {
	store *Store
	call  idempotency.Call
	owner [16]byte

	mu    sync.Mutex // held over a transaction, so that Extend never waits for the handler's
	tx    *bbolt.Tx  // the handler's; nil: not begun
	ended bool
}

func (r *reservation) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, txContext{}, r)
}

func (r *reservation) Extend(_ context.Context, lease time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tx != nil {
		return nil // nobody else can write
	}
	return r.update("extend", func(t table) error {
		return r.own(t, func(rec *record) {
			rec.lease = time.Now().Add(lease).UnixMilli()
			rec.expires = max(rec.expires, rec.lease)
		})
	})
}

func (r *reservation) Finish(_ context.Context, answer []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	finish := func(t table) error { return r.own(t, r.answered(answer)) }
	if r.tx == nil {
		return r.update("finish", finish)
	}
	if err := finish(r.store.table(r.tx)); err != nil {
		return fmt.Errorf("finish: %w: %w", idempotency.ErrNotCommitted, errors.Join(err, r.rollback()))
	}
	err := r.tx.Commit()
	r.tx = nil
	if err != nil {
		return fmt.Errorf("finish: %w: %w", idempotency.ErrNotCommitted, err)
	}
	return nil
}

func (r *reservation) Refuse(_ context.Context, answer []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if err := r.rollback(); err != nil {
		return fmt.Errorf("refuse: %w", err)
	}
	return r.update("refuse", func(t table) error { return r.own(t, r.answered(answer)) })
}

func (r *reservation) Release(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if err := r.rollback(); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return r.update("release", func(t table) error {
		if err := r.own(t, func(*record) {}); err != nil {
			return err
		}
		return t.delete(r.call.ID)
	})
}

// answered makes a record an answer.
func (r *reservation) answered(answer []byte) func(*record) {
	return func(rec *record) {
		rec.running, rec.answer = false, answer
		rec.expires = time.Now().Add(r.call.TTL).UnixMilli()
	}
}

// own changes the record, if it is still the reservation's.
func (r *reservation) own(t table, change func(*record)) error {
	rec, ok, err := t.get(r.call.ID)
	if err != nil {
		return err
	}
	if !ok || !rec.running || rec.owner != r.owner {
		return idempotency.ErrLost
	}
	before := rec
	if change(&rec); rec.equal(before) {
		return nil
	}
	return t.put(r.call.ID, rec)
}

// update runs f in a transaction of its own.
func (r *reservation) update(op string, f func(table) error) error {
	err := r.store.db.Update(func(tx *bbolt.Tx) error { return f(r.store.table(tx)) })
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// rollback ends the handler's transaction, if it has one.
func (r *reservation) rollback() error {
	if r.tx == nil {
		return nil
	}
	err := r.tx.Rollback()
	r.tx = nil
	return err
}
