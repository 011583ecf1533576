package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/sqlstore"
	"github.com/hedged-project/hedged/idempotency/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dsn is how the store wants SQLite: it waits for whoever writes, and a
// transaction is a writer's from its beginning.
func dsn(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=foreign_keys(1)&_txlock=immediate"
}

func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func openStore(t testing.TB) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	db := openDB(t, filepath.Join(t.TempDir(), "data.db"))
	s, err := sqlstore.New(db, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is there
		if err := s.CreateTable(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return db, s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) idempotency.Store {
		_, s := openStore(t)
		return s
	})
}

func TestGuard(t *testing.T) {
	storetest.RunGuard(t, func(t *testing.T) idempotency.Store {
		_, s := openStore(t)
		return s
	})
}

func begin(t testing.TB, s idempotency.Store, call idempotency.Call) idempotency.Reservation {
	t.Helper()
	begun, err := s.Begin(t.Context(), call)
	if err != nil || begun.State != idempotency.Granted {
		t.Fatalf("Begin = %v, %v, want granted", begun.State, err)
	}
	return begun.Reservation
}

func query(t testing.TB, db *sql.DB, question string) (n int) {
	t.Helper()
	if err := db.QueryRow(question).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func insert(ctx context.Context, name string) error {
	tx, err := sqlstore.Tx(ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO users (email) VALUES (?)", name)
	return err
}

// Effect and answer are one transaction: both are there after Finish, neither
// the effect of a refused call nor that of a released one.
func TestTransaction(t *testing.T) {
	db, s := openStore(t)
	execute(t, db, "CREATE TABLE users (email TEXT)")
	ends := []struct {
		name  string
		end   func(idempotency.Reservation) error
		users int
	}{
		{"Finish", func(r idempotency.Reservation) error { return r.Finish(t.Context(), []byte("yes")) }, 1},
		{"Refuse", func(r idempotency.Reservation) error { return r.Refuse(t.Context(), []byte("no")) }, 1},
		{"Release", func(r idempotency.Reservation) error { return r.Release(t.Context()) }, 1},
	}
	for n, end := range ends {
		res := begin(t, s, storetest.Call(byte(n), 1))
		ctx := res.Context(t.Context())
		if err := insert(ctx, end.name); err != nil {
			t.Fatal(err)
		}
		// A copy learns that it runs although the handler has SQLite's one writer.
		if begun, err := s.Begin(t.Context(), storetest.Call(byte(n), 1)); err != nil || begun.State != idempotency.Running {
			t.Fatalf("Begin of a copy = %v, %v, want running", begun.State, err)
		}
		if err := end.end(res); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
		if got := query(t, db, "SELECT count(*) FROM users"); got != end.users {
			t.Errorf("%d users after %s, want %d", got, end.name, end.users)
		}
		if err := insert(ctx, "late"); !errors.Is(err, sqlstore.ErrNoReservation) {
			t.Errorf("Tx after %s: %v, want ErrNoReservation", end.name, err)
		}
	}
	if err := insert(t.Context(), "nobody"); !errors.Is(err, sqlstore.ErrNoReservation) {
		t.Errorf("Tx without a reservation: %v, want ErrNoReservation", err)
	}
}

// The holder of a lost lease has written, but cannot commit: of two runs of one
// call one has an effect.
func TestLostLeaseHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := openStore(t)
		execute(t, db, "CREATE TABLE users (email TEXT)")
		call := storetest.Call(1, 1)
		first := begin(t, s, call)
		time.Sleep(call.Lease + time.Millisecond)
		second := begin(t, s, call)
		for _, res := range []idempotency.Reservation{first, second} {
			if err := insert(res.Context(t.Context()), "ann"); err != nil {
				t.Fatal(err)
			}
			err := res.Finish(t.Context(), []byte("a"))
			undone := errors.Is(err, idempotency.ErrLost) && errors.Is(err, idempotency.ErrNotCommitted)
			if res == first && !undone {
				t.Errorf("Finish of the lost lease = %v, want ErrLost and ErrNotCommitted", err)
			}
			if res == second && err != nil {
				t.Error(err)
			}
		}
		if n := query(t, db, "SELECT count(*) FROM users"); n != 1 {
			t.Errorf("%d users, want 1", n)
		}
	})
}

// A commit that fails (here by a deferred constraint) leaves neither effect nor
// answer, and Release frees the key.
func TestFailedCommit(t *testing.T) {
	db, s := openStore(t)
	execute(t, db, "CREATE TABLE parents (id INTEGER PRIMARY KEY)")
	execute(t, db, "CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
	res := begin(t, s, storetest.Call(1, 1))
	tx, err := sqlstore.Tx(res.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO children VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := res.Finish(t.Context(), []byte("a")); !errors.Is(err, idempotency.ErrNotCommitted) {
		t.Errorf("Finish = %v, want ErrNotCommitted", err)
	}
	if err := res.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if n := query(t, db, "SELECT count(*) FROM children"); n != 0 {
		t.Errorf("%d children, want 0", n)
	}
	begin(t, s, storetest.Call(1, 1))
}

// The table decides between copies that have all read the same before any wrote:
// that there is no row, or one whose lease ran out.
func TestCopiesThatReadTheSame(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		t.Run(fmt.Sprintf("abandoned=%v", abandoned), func(t *testing.T) {
			const copies = 10
			db, s := openStore(t)
			call := storetest.Call(1, 1)
			if abandoned {
				short := call
				short.Lease = time.Millisecond
				begin(t, s, short)
				time.Sleep(2 * time.Millisecond) // SQLite's locks and bubbles do not mix
			}
			// While another writes, they can read, but wait to write.
			writer, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			var (
				wg      sync.WaitGroup
				granted atomic.Int64
			)
			for range copies {
				wg.Go(func() {
					begun, err := s.Begin(t.Context(), call)
					if err != nil {
						t.Errorf("Begin: %v", err)
					}
					if begun.State == idempotency.Granted {
						granted.Add(1)
					}
				})
			}
			for db.Stats().InUse < 1+copies {
				time.Sleep(time.Millisecond) // real time: SQLite has no event for it
			}
			if err := writer.Rollback(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if n := granted.Load(); n != 1 {
				t.Errorf("%d copies were granted, want 1", n)
			}
		})
	}
}

// Expired rows go as new keys come, in batches.
func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := openStore(t)
		call := func(n int) idempotency.Call {
			c := storetest.Call(byte(n), 1)
			c.ID[1] = byte(n >> 8)
			return c
		}
		for n := range 300 {
			if err := begin(t, s, call(n)).Finish(t.Context(), []byte("a")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(call(0).TTL + time.Millisecond)
		for n := range 64 {
			begin(t, s, call(1000+n))
		}
		// 300 - 256 expired ones, and 64 new ones.
		if n := query(t, db, "SELECT count(*) FROM idempotency_keys"); n < 44 || n > 44+64 {
			t.Errorf("%d rows after 64 new keys, want 44 old ones and up to 64 new", n)
		}
	})
}

// Two processes with the same table: a second pool sees what the first wrote.
func TestTwoPools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.db")
	var stores []*sqlstore.Store
	for range 2 {
		s, err := sqlstore.New(openDB(t, path), sqlstore.Options{Table: "writes"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	res := begin(t, stores[0], storetest.Call(1, 1))
	if begun, err := stores[1].Begin(t.Context(), storetest.Call(1, 1)); err != nil || begun.State != idempotency.Running {
		t.Errorf("Begin in the other pool = %v, %v, want running", begun.State, err)
	}
	if err := res.Finish(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	if begun, err := stores[1].Begin(t.Context(), storetest.Call(1, 1)); err != nil || string(begun.Answer) != "a" {
		t.Errorf("Begin in the other pool = %v %q, %v, want the answer", begun.State, begun.Answer, err)
	}
}

func BenchmarkCall(b *testing.B) {
	_, s := openStore(b)
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		call := storetest.Call(0, 1)
		copy(call.ID[:], fmt.Sprintf("%032x", n))
		if err := begin(b, s, call).Finish(b.Context(), []byte("answer")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRepetition(b *testing.B) {
	_, s := openStore(b)
	if err := begin(b, s, storetest.Call(1, 1)).Finish(b.Context(), []byte("answer")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if begun, err := s.Begin(b.Context(), storetest.Call(1, 1)); err != nil || begun.State != idempotency.Done {
			b.Fatal(begun.State, err)
		}
	}
}
