package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// An override with a lifetime ends by itself, at its time, also where the daemon
// was restarted meanwhile.
func TestOverrideEndsByItself(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, err := w.admin.SetOverride(t.Context(), &hedgedv1.SetOverrideRequest{
			Scope:    &hedgedv1.SetOverrideRequest_Service{Service: "orders"},
			Override: &hedgedv1.Override{Mode: off, Lifetime: durationpb.New(30 * time.Minute), Author: "ann", Reason: "deploy"},
		})
		if err != nil {
			t.Fatal(err)
		}
		holds := func(when string) {
			t.Helper()
			if s := w.service("orders"); s.Policy.Mode != off || s.Override.GetExpiresAt() == nil {
				t.Errorf("%s: %v with %v, want off with an end", when, s.Policy.Mode, s.Override)
			}
		}
		holds("at once")
		time.Sleep(20 * time.Minute)
		holds("after 20 min")
		w.end()
		w.start()
		holds("after a restart")
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		holds("a second before its end")
		time.Sleep(time.Second)
		synctest.Wait()
		if s := w.service("orders"); s.Policy.Mode != active || s.Override != nil {
			t.Errorf("after its end: %v with %v, want active without", s.Policy.Mode, s.Override)
		}
	})
}

// What was commanded and decided is told newest first, and survives a restart.
func TestHistory(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		for _, mode := range []hedgedv1.Mode{off, active} {
			time.Sleep(time.Second)
			w.mustOverride("orders", mode)
		}
		get := func(service string) []*hedgedv1.HistoryEntry {
			t.Helper()
			r, err := w.admin.GetHistory(t.Context(), &hedgedv1.GetHistoryRequest{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetEntries()
		}
		before := get("orders")
		commands, changes := 0, 0
		for i, e := range before {
			if i > 0 && e.GetAt().AsTime().After(before[i-1].GetAt().AsTime()) {
				t.Errorf("entry %d is newer than the one before it", i)
			}
			if e.GetOverride() != nil {
				commands++
			}
			if e.GetChange() != nil {
				changes++
			}
		}
		if commands != 2 || changes < 2 {
			t.Errorf("%d commands and %d changes, want 2 and at least 2, in %v", commands, changes, before)
		}
		w.end()
		w.start()
		after := get("")
		if len(after) < len(before) {
			t.Errorf("%d entries after a restart, want the %d from before", len(after), len(before))
		}
		if _, err := w.admin.GetHistory(t.Context(), &hedgedv1.GetHistoryRequest{Limit: 1001}); err == nil {
			t.Error("a limit of 1001 is accepted, want at most 1000")
		}
		if got := get("orders"); len(got) == 0 {
			t.Error("no entries of the service after a restart")
		}
	})
}
