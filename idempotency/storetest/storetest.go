// Package storetest is the suite that every idempotency.Store has to pass.
package storetest

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/idempotency"
)

// The suite's times pass in a bubble of synctest.
const (
	lease = time.Minute
	ttl   = time.Hour
)

// Run runs the suite. Each test opens an empty store, inside a bubble of
// synctest: what it starts must end by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) idempotency.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, s idempotency.Store)
	}{
		{"a finished call is answered with the same bytes", finished},
		{"a refused call is answered with the same bytes", refused},
		{"a released call runs again", released},
		{"other data is a mismatch while it runs and after", mismatch},
		{"other IDs are other calls", separate},
		{"one of many that come at once is granted", race},
		{"a lease that ran out goes to the next", takeover},
		{"one of many takes over", takeoverRace},
		{"who lost the lease changes nothing", lost},
		{"an ended reservation changes nothing", ended},
		{"an extended lease holds", extended},
		{"a reservation that outlives the TTL holds", outlives},
		{"an answer is forgotten after its TTL, not before", expiry},
		{"a crashed call keeps its fingerprint", crashedMismatch},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.test(t, open(t)) })
		})
	}
}

// Call returns the call of the suite with number n: its ID, data and times.
func Call(n, data byte) idempotency.Call {
	return idempotency.Call{ID: idempotency.ID{n}, Fingerprint: idempotency.Fingerprint{data}, Lease: lease, TTL: ttl}
}

func want(t *testing.T, s idempotency.Store, call idempotency.Call, state idempotency.State) idempotency.Begun {
	t.Helper()
	begun, err := s.Begin(t.Context(), call)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if begun.State != state {
		t.Fatalf("Begin found %v, want %v", begun.State, state)
	}
	if (begun.Reservation != nil) != (state == idempotency.Granted) {
		t.Fatalf("Begin found %v with reservation %v", state, begun.Reservation)
	}
	return begun
}

func grant(t *testing.T, s idempotency.Store, call idempotency.Call) idempotency.Reservation {
	t.Helper()
	return want(t, s, call, idempotency.Granted).Reservation
}

func wantAnswer(t *testing.T, s idempotency.Store, call idempotency.Call, answer []byte) {
	t.Helper()
	if got := want(t, s, call, idempotency.Done).Answer; !bytes.Equal(got, answer) {
		t.Fatalf("the answer has %d bytes and is not the one of %d bytes that was recorded", len(got), len(answer))
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLost(t *testing.T, op string, err error) {
	t.Helper()
	if !errors.Is(err, idempotency.ErrLost) {
		t.Errorf("%s returned %v, want ErrLost", op, err)
	}
}

func finished(t *testing.T, s idempotency.Store) {
	large := bytes.Repeat([]byte("\x00\xff, \r\n\""), 1<<17)
	for i, answer := range [][]byte{nil, {0}, []byte("a\x00b"), large} {
		call := Call(byte(i), 1)
		res := grant(t, s, call)
		want(t, s, call, idempotency.Running)
		given := bytes.Clone(answer)
		ok(t, res.Finish(t.Context(), given))
		clear(given) // it is the caller's again
		wantAnswer(t, s, call, answer)
		clear(want(t, s, call, idempotency.Done).Answer)
		wantAnswer(t, s, call, answer)
	}
}

func refused(t *testing.T, s idempotency.Store) {
	ok(t, grant(t, s, Call(1, 1)).Refuse(t.Context(), []byte("no")))
	wantAnswer(t, s, Call(1, 1), []byte("no"))
}

func released(t *testing.T, s idempotency.Store) {
	ok(t, grant(t, s, Call(1, 1)).Release(t.Context()))
	// And with other data: nothing is known of it.
	ok(t, grant(t, s, Call(1, 2)).Finish(t.Context(), []byte("a")))
	wantAnswer(t, s, Call(1, 2), []byte("a"))
}

func mismatch(t *testing.T, s idempotency.Store) {
	res := grant(t, s, Call(1, 1))
	want(t, s, Call(1, 2), idempotency.Mismatch)
	ok(t, res.Finish(t.Context(), []byte("a")))
	want(t, s, Call(1, 2), idempotency.Mismatch)
	wantAnswer(t, s, Call(1, 1), []byte("a"))
}

func separate(t *testing.T, s idempotency.Store) {
	first, second := grant(t, s, Call(1, 1)), grant(t, s, Call(2, 1))
	ok(t, first.Finish(t.Context(), []byte("one")))
	ok(t, second.Finish(t.Context(), []byte("two")))
	wantAnswer(t, s, Call(1, 1), []byte("one"))
	wantAnswer(t, s, Call(2, 1), []byte("two"))
}

// grants begins a call many times at once and counts.
func grants(t *testing.T, s idempotency.Store, call idempotency.Call) (granted, running int) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for range 50 {
		wg.Go(func() {
			begun, err := s.Begin(t.Context(), call)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("Begin: %v", err)
			case begun.State == idempotency.Granted:
				granted++
			case begun.State == idempotency.Running:
				running++
			}
		})
	}
	wg.Wait()
	return granted, running
}

func race(t *testing.T, s idempotency.Store) {
	if granted, running := grants(t, s, Call(1, 1)); granted != 1 || running != 49 {
		t.Errorf("of 50 copies %d were granted and %d found it running, want 1 and 49", granted, running)
	}
}

func takeover(t *testing.T, s idempotency.Store) {
	grant(t, s, Call(1, 1))
	time.Sleep(lease - time.Millisecond)
	want(t, s, Call(1, 1), idempotency.Running)
	time.Sleep(2 * time.Millisecond)
	res := grant(t, s, Call(1, 1))
	want(t, s, Call(1, 1), idempotency.Running)
	ok(t, res.Finish(t.Context(), []byte("second")))
	wantAnswer(t, s, Call(1, 1), []byte("second"))
}

func takeoverRace(t *testing.T, s idempotency.Store) {
	grant(t, s, Call(1, 1))
	time.Sleep(lease + time.Millisecond)
	if granted, running := grants(t, s, Call(1, 1)); granted != 1 || running != 49 {
		t.Errorf("of 50 copies %d took over and %d found it running, want 1 and 49", granted, running)
	}
}

func lost(t *testing.T, s idempotency.Store) {
	first := grant(t, s, Call(1, 1))
	time.Sleep(lease + time.Millisecond)
	second := grant(t, s, Call(1, 1))
	wantLost(t, "Extend", first.Extend(t.Context(), time.Hour))
	wantLost(t, "Finish", first.Finish(t.Context(), []byte("first")))
	wantLost(t, "Refuse", first.Refuse(t.Context(), []byte("first")))
	wantLost(t, "Release", first.Release(t.Context()))
	want(t, s, Call(1, 1), idempotency.Running)
	ok(t, second.Finish(t.Context(), []byte("second")))
	wantAnswer(t, s, Call(1, 1), []byte("second"))
}

func ended(t *testing.T, s idempotency.Store) {
	res := grant(t, s, Call(1, 1))
	ok(t, res.Finish(t.Context(), []byte("a")))
	wantLost(t, "Release", res.Release(t.Context()))
	wantLost(t, "Extend", res.Extend(t.Context(), time.Hour))
	wantLost(t, "Finish", res.Finish(t.Context(), []byte("b")))
	wantAnswer(t, s, Call(1, 1), []byte("a"))
}

func extended(t *testing.T, s idempotency.Store) {
	res := grant(t, s, Call(1, 1))
	for range 5 {
		time.Sleep(lease / 2)
		ok(t, res.Extend(t.Context(), lease))
		want(t, s, Call(1, 1), idempotency.Running)
	}
	ok(t, res.Finish(t.Context(), []byte("a")))
	wantAnswer(t, s, Call(1, 1), []byte("a"))
}

func outlives(t *testing.T, s idempotency.Store) {
	res := grant(t, s, Call(1, 1))
	for range 10 {
		time.Sleep(ttl / 4)
		if err := res.Extend(t.Context(), ttl/2); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s, Call(1, 1), idempotency.Running)
	ok(t, res.Finish(t.Context(), []byte("a")))
	wantAnswer(t, s, Call(1, 1), []byte("a"))
}

func expiry(t *testing.T, s idempotency.Store) {
	res := grant(t, s, Call(1, 1))
	time.Sleep(lease / 2)
	ok(t, res.Finish(t.Context(), []byte("a")))
	time.Sleep(ttl - time.Millisecond)
	wantAnswer(t, s, Call(1, 1), []byte("a"))
	want(t, s, Call(1, 2), idempotency.Mismatch)
	time.Sleep(2 * time.Millisecond)
	ok(t, grant(t, s, Call(1, 2)).Finish(t.Context(), []byte("b")))
	wantAnswer(t, s, Call(1, 2), []byte("b"))
}

func crashedMismatch(t *testing.T, s idempotency.Store) {
	grant(t, s, Call(1, 1)) // whoever has it dies
	time.Sleep(lease + time.Millisecond)
	want(t, s, Call(1, 2), idempotency.Mismatch)
	grant(t, s, Call(1, 1))
}
