// Package sqlstore keeps idempotency keys in a table of an SQL database, beside
// the data of the application, so that a handler's effect and its answer can be
// one transaction: see [Tx]. Several processes may share the table.
//
// It brings no driver. SQLite (3.24 or later) is tested, in the module
// idempotency/sqlitetest; the statements are those of PostgreSQL too.
//
// Read this file first; statement.go has the SQL.
package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/idempotency"
)

// DefaultTable is the name of the table unless told otherwise.
const DefaultTable = "idempotency_keys"

// Options of New.
type Options struct {
	// Table is the table's name, with its schema if need be: letters, digits,
	// underscores and dots. "": DefaultTable.
	Table string
	// Dialect of the database. 0: SQLite.
	Dialect Dialect
}

// Store is an idempotency.Store in one table. Its methods may be called
// concurrently. The database belongs to the caller, who closes it after the last
// call.
//
// A call costs a query and two statements that write, a repetition one query.
// While a handler runs with [Tx] it holds one connection, and the store uses
// others beside it: give the pool at least two. SQLite wants a busy timeout, and
// transactions that begin as IMMEDIATE, or a handler that reads before it writes
// may fail with SQLITE_BUSY.
type Store struct {
	db      *sql.DB
	sql     statements
	granted atomic.Uint64 // reservations, to purge at each so many
}

var _ idempotency.Store = (*Store)(nil)

// New returns a store on db. The table must be there: see [Store.CreateTable].
func New(db *sql.DB, o Options) (*Store, error) {
	if o.Table == "" {
		o.Table = DefaultTable
	}
	s, err := newStatements(o)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	return &Store{db: db, sql: s}, nil
}

// CreateTable creates the table and its index unless they are there. The
// statements are those of [Store.Schema].
func (s *Store) CreateTable(ctx context.Context) error {
	for _, statement := range s.sql.schema {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return s.wrap("create table", err)
		}
	}
	return nil
}

// Schema returns the statements that create the table, for those who keep theirs
// elsewhere.
func (s *Store) Schema() []string { return append([]string(nil), s.sql.schema...) }

func (s *Store) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in table %s: %w", op, s.sql.table, err)
}

// row is what the table says of a key.
type row struct {
	fingerprint string
	owner       string
	running     bool
	lease       int64 // Unix ms
	expires     int64 // Unix ms
	answer      []byte
}

// Begin implements idempotency.Store.
func (s *Store) Begin(ctx context.Context, call idempotency.Call) (idempotency.Begun, error) {
	begun, err := s.begin(ctx, call)
	return begun, s.wrap("begin", err)
}

func (s *Store) begin(ctx context.Context, call idempotency.Call) (idempotency.Begun, error) {
	var owner [16]byte
	rand.Read(owner[:])
	res := &reservation{
		store: s, ttl: call.TTL,
		id: hex.EncodeToString(call.ID[:]), owner: hex.EncodeToString(owner[:]),
	}
	fingerprint := hex.EncodeToString(call.Fingerprint[:])
	// Each turn but the last found that another copy was faster since it read;
	// what that did lasts at least for a lease.
	const turns = 4
	for range turns {
		now := time.Now()
		lease, expires := now.Add(call.Lease).UnixMilli(), now.Add(call.TTL).UnixMilli()
		found, ok, err := s.read(ctx, res.id)
		if err != nil {
			return idempotency.Begun{}, err
		}
		if state := found.state(fingerprint, now.UnixMilli()); ok && state != idempotency.Granted {
			begun := idempotency.Begun{State: state}
			if state == idempotency.Done {
				begun.Answer = found.answer
			}
			return begun, nil
		}
		var won bool
		if ok {
			won, err = s.one(s.db.ExecContext(ctx, s.sql.take, fingerprint, res.owner, lease, expires, res.id, found.owner, found.lease))
		} else {
			won, err = s.one(s.db.ExecContext(ctx, s.sql.insert, res.id, fingerprint, res.owner, lease, expires))
		}
		if err != nil {
			return idempotency.Begun{}, err
		}
		if won {
			s.purge(ctx, now)
			return idempotency.Begun{State: idempotency.Granted, Reservation: res}, nil
		}
	}
	return idempotency.Begun{}, fmt.Errorf("overtaken by other copies %d times", turns)
}

func (s *Store) read(ctx context.Context, id string) (row, bool, error) {
	var (
		r       row
		running int
	)
	err := s.db.QueryRowContext(ctx, s.sql.read, id).Scan(&r.fingerprint, &r.owner, &running, &r.lease, &r.expires, &r.answer)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false, nil
	}
	r.running = running == 1
	return r, err == nil, err
}

// state says what a row means for a call.
func (r row) state(fingerprint string, now int64) idempotency.State {
	switch {
	case now >= r.expires:
		return idempotency.Granted
	case r.fingerprint != fingerprint:
		return idempotency.Mismatch
	case !r.running:
		return idempotency.Done
	case now < r.lease:
		return idempotency.Running
	}
	return idempotency.Granted
}

// one reports whether a statement changed one row.
func (s *Store) one(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// purge deletes some expired rows at every so many reservations, more than these
// can have added. Its failure is no concern of the call; the next one tries
// again.
func (s *Store) purge(ctx context.Context, now time.Time) {
	if s.granted.Add(1)%purgeEvery == 0 {
		s.db.ExecContext(ctx, s.sql.purge, now.UnixMilli(), now.UnixMilli()) //nolint:errcheck // see above
	}
}

type txContext struct{}

// ErrNoReservation says that the context is not that of a handler which runs under a
// reservation of this package, or the reservation has ended.
var ErrNoReservation = errors.New("no reservation of sqlstore in the context")

// Tx returns the transaction that is committed together with the answer of the
// handler whose context this is; the first use begins it, with the isolation
// that is the database's default. It is rolled back when the answer is an error,
// the handler panics, or its context ends. The handler must not end it or use it
// after its return.
func Tx(ctx context.Context) (*sql.Tx, error) {
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
		tx, err := r.store.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		r.tx = tx
	}
	return r.tx, nil
}

// reservation implements idempotency.Reservation.
type reservation struct {
	store     *Store
	id, owner string
	ttl       time.Duration

	mu    sync.Mutex
	tx    *sql.Tx // the handler's; nil: not begun
	ended bool
}

func (r *reservation) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, txContext{}, r)
}

// own wants a statement on the reservation's row to have found it.
func (r *reservation) own(op string, result sql.Result, err error) error {
	found, err := r.store.one(result, err)
	if err == nil && !found {
		err = idempotency.ErrLost
	}
	return r.store.wrap(op, err)
}

func (r *reservation) Extend(ctx context.Context, lease time.Duration) error {
	until := time.Now().Add(lease).UnixMilli()
	result, err := r.store.db.ExecContext(ctx, r.store.sql.extend, until, until, until, r.id, r.owner)
	return r.own("extend", result, err)
}

// end marks the reservation as ended and takes the transaction out of it.
func (r *reservation) end() *sql.Tx {
	r.mu.Lock()
	defer r.mu.Unlock()
	tx := r.tx
	r.tx, r.ended = nil, true
	return tx
}

// rollback ends the reservation without its transaction's effect.
func (r *reservation) rollback() error {
	tx := r.end()
	if tx == nil {
		return nil
	}
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

func (r *reservation) Finish(ctx context.Context, answer []byte) error {
	tx := r.end()
	if tx == nil {
		return r.answer(ctx, "finish", r.store.db, answer)
	}
	err := r.answer(ctx, "finish", tx, answer)
	if err != nil {
		return fmt.Errorf("%w: %w", idempotency.ErrNotCommitted, errors.Join(err, tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", idempotency.ErrNotCommitted, r.store.wrap("commit", err))
	}
	return nil
}

func (r *reservation) Refuse(ctx context.Context, answer []byte) error {
	if err := r.rollback(); err != nil {
		return r.store.wrap("refuse", err)
	}
	return r.answer(ctx, "refuse", r.store.db, answer)
}

func (r *reservation) Release(ctx context.Context) error {
	if err := r.rollback(); err != nil {
		return r.store.wrap("release", err)
	}
	result, err := r.store.db.ExecContext(ctx, r.store.sql.release, r.id, r.owner)
	return r.own("release", result, err)
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (r *reservation) answer(ctx context.Context, op string, db execer, answer []byte) error {
	if answer == nil {
		answer = []byte{}
	}
	result, err := db.ExecContext(ctx, r.store.sql.finish, answer, time.Now().Add(r.ttl).UnixMilli(), r.id, r.owner)
	return r.own(op, result, err)
}
