package idempotency_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/storetest"
)

func TestMemoryConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) idempotency.Store { return idempotency.NewMemory(100) })
}

// A full store refuses new keys rather than forget an answer, repeats the ones
// it has, and has room again when they expire.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := idempotency.NewMemory(10)
		for n := range byte(10) {
			begun, err := m.Begin(t.Context(), storetest.Call(n, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := begun.Reservation.Finish(t.Context(), []byte("a")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Begin(t.Context(), storetest.Call(11, 1)); !errors.Is(err, idempotency.ErrFull) {
			t.Errorf("the 11th key of 10: %v, want ErrFull", err)
		}
		if begun, err := m.Begin(t.Context(), storetest.Call(3, 1)); err != nil || begun.State != idempotency.Done {
			t.Errorf("a key that a full store has: %v, %v, want done", begun.State, err)
		}
		time.Sleep(storetest.Call(0, 0).TTL + time.Millisecond)
		if _, err := m.Begin(t.Context(), storetest.Call(11, 1)); err != nil {
			t.Errorf("after the TTL: %v", err)
		}
		if n := m.Len(); n != 7 {
			t.Errorf("the store holds %d records, want 7: 10 less the 4 that a Begin deletes, and a new one", n)
		}
	})
}

func TestMemoryGuard(t *testing.T) {
	storetest.RunGuard(t, func(*testing.T) idempotency.Store { return idempotency.NewMemory(100) })
}
