package boltstore

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/storetest"
)

func open(t testing.TB, path string) (*bbolt.DB, *Store) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := New(db, "idempotency")
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

func openNew(t testing.TB) (*bbolt.DB, *Store) {
	return open(t, filepath.Join(t.TempDir(), "data.db"))
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) idempotency.Store {
		_, s := openNew(t)
		return s
	})
}

func TestGuard(t *testing.T) {
	storetest.RunGuard(t, func(t *testing.T) idempotency.Store {
		_, s := openNew(t)
		return s
	})
}

var users = []byte("users")

// insert writes a user in the handler's transaction.
func insert(t *testing.T, res idempotency.Reservation, name string) {
	t.Helper()
	tx, err := Tx(res.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := tx.CreateBucketIfNotExists(users)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put([]byte(name), nil); err != nil {
		t.Fatal(err)
	}
}

// count returns the number of users.
func count(t *testing.T, db *bbolt.DB) (n int) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(users); b != nil {
			n = b.Stats().KeyN
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func begin(t testing.TB, s *Store, call idempotency.Call) idempotency.Reservation {
	t.Helper()
	begun, err := s.Begin(t.Context(), call)
	if err != nil || begun.State != idempotency.Granted {
		t.Fatalf("Begin = %v, %v, want granted", begun.State, err)
	}
	return begun.Reservation
}

// Effect and answer are one transaction: both are there after Finish, neither
// the effect of a refused call nor that of a released one.
func TestTransaction(t *testing.T) {
	db, s := openNew(t)
	res := begin(t, s, storetest.Call(1, 1))
	insert(t, res, "ann")
	// A copy learns that it runs although bbolt's one writer is the handler.
	if begun, err := s.Begin(t.Context(), storetest.Call(1, 1)); err != nil || begun.State != idempotency.Running {
		t.Fatalf("Begin of a copy = %v, %v, want running", begun.State, err)
	}
	if err := res.Extend(t.Context(), time.Minute); err != nil {
		t.Fatalf("Extend while the handler writes: %v", err)
	}
	if n := count(t, db); n != 0 {
		t.Errorf("%d users before Finish, want 0", n)
	}
	if err := res.Finish(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d users after Finish, want 1", n)
	}
	res = begin(t, s, storetest.Call(2, 1))
	insert(t, res, "bob")
	if err := res.Refuse(t.Context(), []byte("no")); err != nil {
		t.Fatal(err)
	}
	res = begin(t, s, storetest.Call(3, 1))
	insert(t, res, "cyd")
	if err := res.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d users after a refused and a released call, want 1", n)
	}
	if _, err := Tx(res.Context(t.Context())); !errors.Is(err, ErrNoReservation) {
		t.Errorf("Tx after the end: %v, want ErrNoReservation", err)
	}
	if _, err := Tx(context.Background()); !errors.Is(err, ErrNoReservation) {
		t.Errorf("Tx without a reservation: %v, want ErrNoReservation", err)
	}
}

// A handler whose lease ran out and went to another gets no transaction: it
// could only have been rolled back.
func TestTransactionOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := openNew(t)
		first := begin(t, s, storetest.Call(1, 1))
		time.Sleep(storetest.Call(1, 1).Lease + time.Millisecond)
		begin(t, s, storetest.Call(1, 1))
		if _, err := Tx(first.Context(t.Context())); !errors.Is(err, idempotency.ErrLost) {
			t.Errorf("Tx = %v, want ErrLost", err)
		}
	})
}

// Expired records go as new ones come, a few at a time, and take their entries
// in the index with them.
func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := openNew(t)
		for n := range byte(100) {
			if err := begin(t, s, storetest.Call(n, 1)).Finish(t.Context(), []byte("a")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(storetest.Call(0, 0).TTL + time.Millisecond)
		wants := []int{97, 94, 91}
		for i, want := range wants {
			begin(t, s, storetest.Call(byte(200+i), 1))
			db.View(func(tx *bbolt.Tx) error {
				records, expiry := s.table(tx).records.Stats().KeyN, s.table(tx).expiry.Stats().KeyN
				if records != want || expiry != want {
					t.Errorf("%d records and %d entries, want %d of each", records, expiry, want)
				}
				return nil
			})
		}
	})
}

// A record that was damaged is an error, not an answer.
func TestDamagedRecord(t *testing.T) {
	db, s := openNew(t)
	call := storetest.Call(1, 1)
	if err := begin(t, s, call).Finish(t.Context(), []byte("an answer")); err != nil {
		t.Fatal(err)
	}
	db.Update(func(tx *bbolt.Tx) error {
		records := s.table(tx).records
		b := append([]byte(nil), records.Get(call.ID[:])...)
		b[recordHead+3] ^= 1
		return records.Put(call.ID[:], b)
	})
	if begun, err := s.Begin(t.Context(), call); !errors.Is(err, errDamaged) {
		t.Errorf("Begin = %v, %v, want errDamaged", begun.State, err)
	}
}

// FuzzDecodeRecord: no bytes make the decoder panic, and what it takes for a
// record is the encoding of that record.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeRecord(record{}))
	f.Add(encodeRecord(record{running: true, lease: 1, expires: -1, answer: []byte("answer")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if again := encodeRecord(r); string(again) != string(b) {
			t.Errorf("%x decodes to a record that encodes to %x", b, again)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	_, s := openNew(b)
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		call := storetest.Call(0, 1)
		for i := range 8 {
			call.ID[i] = byte(n >> (8 * i))
		}
		if err := begin(b, s, call).Finish(b.Context(), []byte("answer")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRepetition(b *testing.B) {
	_, s := openNew(b)
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
