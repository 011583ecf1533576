package idempotency_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/idempotency"
)

// faultyStore is a store whose parts can be made to fail.
type faultyStore struct {
	idempotency.Store
	begin, extend, finish error

	mu       sync.Mutex
	extended int
}

type faultyReservation struct {
	idempotency.Reservation
	s *faultyStore
}

func (s *faultyStore) Begin(ctx context.Context, call idempotency.Call) (idempotency.Begun, error) {
	if s.begin != nil {
		return idempotency.Begun{}, s.begin
	}
	begun, err := s.Store.Begin(ctx, call)
	if begun.Reservation != nil {
		begun.Reservation = faultyReservation{begun.Reservation, s}
	}
	return begun, err
}

func (r faultyReservation) Extend(ctx context.Context, lease time.Duration) error {
	r.s.mu.Lock()
	r.s.extended++
	r.s.mu.Unlock()
	if r.s.extend != nil {
		return r.s.extend
	}
	return r.Reservation.Extend(ctx, lease)
}

func (r faultyReservation) Finish(ctx context.Context, answer []byte) error {
	if err := cmp.Or(r.s.finish, ctx.Err()); err != nil {
		return err
	}
	return r.Reservation.Finish(ctx, answer)
}

var quiet = slog.New(slog.DiscardHandler)

// guarded returns a handler behind a guard.
func guarded(t testing.TB, s idempotency.Store, o idempotency.Options, h http.HandlerFunc) http.Handler {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	g, err := idempotency.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return g.Handler(h)
}

// post sends a copy with key k.
func post(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/users?a=1", strings.NewReader("ann"))
	r.Header.Set(idempotency.Header, "k")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("got %d %q, want %d", w.Code, w.Body, status)
	}
}

// A copy that waited as long as it may is told to come back.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := guarded(t, idempotency.NewMemory(1), idempotency.Options{Wait: 3 * time.Second}, func(http.ResponseWriter, *http.Request) { <-end })
		var first sync.WaitGroup
		first.Go(func() { post(h) })
		synctest.Wait()
		started := time.Now()
		w := post(h)
		wantStatus(t, w, http.StatusConflict)
		if after := time.Since(started); after < 3*time.Second || after > 3100*time.Millisecond {
			t.Errorf("the copy waited %v, want 3 s", after)
		}
		if w.Header().Get("Retry-After") == "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("the refusal has the header %v", w.Header())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started = time.Now()
		wantStatus(t, post(h, func(r *http.Request) { *r = *r.WithContext(ctx) }), http.StatusConflict)
		if after := time.Since(started); after > 1100*time.Millisecond {
			t.Errorf("the copy waited %v, beyond its caller's 1 s", after)
		}
		close(end)
		first.Wait()
	})
}

// A copy that waits runs when the first one ends without an answer.
func TestWaiterRunsAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := guarded(t, idempotency.NewMemory(1), idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			if runs == 1 {
				time.Sleep(time.Second)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		var first sync.WaitGroup
		first.Go(func() { wantStatus(t, post(h), http.StatusServiceUnavailable) })
		synctest.Wait()
		wantStatus(t, post(h), http.StatusOK)
		first.Wait()
	})
}

// A handler that takes longer than the lease keeps it, for the lease is extended.
func TestLeaseIsExtendedWhileTheHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faultyStore{Store: idempotency.NewMemory(1)}
		runs := 0
		h := guarded(t, s, idempotency.Options{Lease: 3 * time.Second, Wait: time.Hour}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			time.Sleep(time.Minute)
			io.WriteString(w, "slow")
		})
		var first sync.WaitGroup
		first.Go(func() { post(h) })
		synctest.Wait()
		if w := post(h); w.Body.String() != "slow" || runs != 1 {
			t.Errorf("the copy got %q after %d runs, want slow after 1", w.Body, runs)
		}
		first.Wait()
		if n := s.extended; n < 55 || n > 60 {
			t.Errorf("the lease of 3 s was extended %d times in a minute, want about 60", n)
		}
		time.Sleep(time.Minute)
		if s.extended > 60 {
			t.Error("the lease is extended after the handler's end")
		}
	})
}

// A handler whose lease is another's is told by its context, and its caller to
// come back.
func TestLostLeaseCancelsTheHandler(t *testing.T) {
	for name, fault := range map[string]error{"lost": idempotency.ErrLost, "unreachable": errors.New("no route")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faultyStore{Store: idempotency.NewMemory(1), extend: fault}
				h := guarded(t, s, idempotency.Options{Lease: 3 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLost) {
						t.Errorf("the handler's context ended by %v, want ErrLost", cause)
					}
					w.WriteHeader(http.StatusInternalServerError)
				})
				wantStatus(t, post(h), http.StatusConflict)
			})
		})
	}
}

// A panic, or the end of the handler's goroutine, frees the key and goes on.
func TestPanicReleases(t *testing.T) {
	ends := map[string]func(){
		"panic":  func() { panic("boom") },
		"Goexit": runtime.Goexit,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			failing := true
			h := guarded(t, idempotency.NewMemory(1), idempotency.Options{Wait: -1}, func(w http.ResponseWriter, _ *http.Request) {
				if failing {
					w.Write([]byte("half"))
					end()
				}
				w.Write([]byte("whole"))
			})
			var first sync.WaitGroup
			first.Add(1)
			go func() {
				defer first.Done()
				defer func() {
					if v := recover(); name == "panic" && v != "boom" {
						t.Errorf("recovered %v, want the handler's panic", v)
					}
				}()
				post(h)
			}()
			first.Wait()
			failing = false
			if w := post(h); w.Body.String() != "whole" {
				t.Errorf("after the %s the copy got %d %q, want that it runs", name, w.Code, w.Body)
			}
		})
	}
}

// A store that does not answer fails the call: without it nobody knows whether
// the call ran. What it says goes to the log, not to the caller.
func TestStoreFailsClosed(t *testing.T) {
	var log bytes.Buffer
	s := &faultyStore{Store: idempotency.NewMemory(1), begin: errors.New("disk on fire")}
	h := guarded(t, s, idempotency.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	w := post(h)
	wantStatus(t, w, http.StatusServiceUnavailable)
	if strings.Contains(w.Body.String(), "fire") || !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("the caller is told %q, the log %q", w.Body, &log)
	}
}

// What Finish failed at decides what the caller is told.
func TestFinishFails(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status int
		runs   int // after another copy
	}{
		{"nothing committed: the copy runs", idempotency.ErrNotCommitted, http.StatusServiceUnavailable, 2},
		{"another's: come back", idempotency.ErrLost, http.StatusConflict, 1},
		{"the effect stands: its answer is true", errors.New("disk full"), http.StatusOK, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &faultyStore{Store: idempotency.NewMemory(1), finish: test.err}
			runs := 0
			h := guarded(t, s, idempotency.Options{Wait: -1}, func(http.ResponseWriter, *http.Request) { runs++ })
			wantStatus(t, post(h), test.status)
			s.finish = nil
			post(h)
			if runs != test.runs {
				t.Errorf("%d runs, want %d", runs, test.runs)
			}
		})
	}
}

// An answer is kept also when its caller has gone.
func TestAnswerOfACallerWhoLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	s := &faultyStore{Store: idempotency.NewMemory(1)}
	h := guarded(t, s, idempotency.Options{Wait: -1}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		cancel()
		w.Write([]byte("saved"))
	})
	post(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if w := post(h); w.Body.String() != "saved" || runs != 1 {
		t.Errorf("the copy got %q after %d runs, want saved after 1", w.Body, runs)
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		o    idempotency.Options
		want string
	}{
		{idempotency.Options{}, ""},
		{idempotency.Options{Refusals: 7}, "Refusals is 7, want"},
		{idempotency.Options{Lease: time.Millisecond}, "Lease is 1ms, want at least 10ms"},
		{idempotency.Options{TTL: time.Second}, "TTL is 1s, want from the Lease (30s)"},
		{idempotency.Options{TTL: 367 * 24 * time.Hour}, "TTL is 8808h0m0s, want"},
		{idempotency.Options{MaxAnswer: -1}, "MaxAnswer is -1, want at least 0"},
		{idempotency.Options{MaxRequest: -1}, "MaxRequest is -1, want at least 0"},
	}
	for _, test := range tests {
		_, err := idempotency.New(idempotency.NewMemory(1), test.o)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v) = %v, want %q", test.o, err, test.want)
		}
	}
}
