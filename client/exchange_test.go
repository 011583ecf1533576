package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// The caller's end is the call's, at once and with the context's own error:
// while the primary is pending, and while the only attempt left is a hedge that
// does not listen.
func TestHTTPCallersEnd(t *testing.T) {
	gone := errors.New("the user has left")
	for _, pending := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 })
			n := newHTTPStub(testService(t, p), addresses("a:80", "b:80"), func(r *http.Request, index int) (*http.Response, error) {
				switch {
				case index > 0:
					time.Sleep(time.Minute)
					return reply(r, -1, 200, "too late")
				case pending:
					<-r.Context().Done()
					return nil, context.Cause(r.Context())
				}
				return reply(r, 15*ms, 503, "busy")
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*ms, gone)
			defer cancel()
			start := time.Now()
			_, err := n.get(ctx)
			if took := time.Since(start); took != 50*ms || !errors.Is(err, gone) {
				t.Errorf("pending %v: got %v after %v, want the context's end after 50ms", pending, err, took)
			}
			time.Sleep(2 * time.Minute)
			if c, want := n.counts(), (Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1}); c != want {
				t.Errorf("pending %v: counts %+v, want %+v", pending, c, want)
			}
			if n.outstanding() != 0 {
				t.Errorf("pending %v: %d attempts outstanding, want 0", pending, n.outstanding())
			}
		})
	}
}

// A request body is sent again from GetBody; a hedge whose GetBody fails is no
// attempt, and the primary goes on.
func TestHTTPHedgesSendTheBodyAgain(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newHTTPStub(testService(t, testPolicy()), addresses("a:80", "b:80"), func(r *http.Request, index int) (*http.Response, error) {
				data, err := io.ReadAll(r.Body)
				if err != nil || string(data) != "order" {
					t.Errorf("attempt %d got %q, %v, want the body", index, data, err)
				}
				return reply(r, 30*ms, 200, fmt.Sprint(index))
			})
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://store/", strings.NewReader("order"))
			r.Header.Set("Idempotency-Key", `"k"`)
			want := Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1}
			if fails {
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("file is gone") }
				want.CancelledUnsent = 1
			}
			response, err := n.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			synctest.Wait()
			if c := n.counts(); c != want {
				t.Errorf("GetBody fails %v: counts %+v, want %+v", fails, c, want)
			}
		})
	}
}

// A hedge that ends before it has a connection is counted as unsent.
func TestHTTPUnsentHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHTTPStub(testService(t, testPolicy()), addresses("a:80", "b:80"), nil)
		n.base = roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if isHedgeRequest(r) {
				return stall(r)
			}
			return reply(r, 30*ms, 200, "good")
		})
		if got, err := n.get(t.Context()); err != nil || got != "good" {
			t.Errorf("got %q, %v, want the primary's answer", got, err)
		}
		synctest.Wait()
		if c, want := n.counts(), (Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, CancelledUnsent: 1}); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
	})
}

// An attempt that ends as cancelled, though nobody has cancelled it, lost its
// connection to the cancellation of another request. It goes once more, if the
// request may run twice.
func TestHTTPCutByAnother(t *testing.T) {
	for _, p := range []*policy.Policy{nil, testPolicy(func(p *policy.Policy) { p.Budget = policy.Budget{} })} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			var bodies []string
			n := newHTTPStub(testService(t, p), HTTPOptions{}, func(r *http.Request, _ int) (*http.Response, error) {
				data, _ := io.ReadAll(r.Body)
				bodies = append(bodies, string(data))
				if len(bodies) == 1 {
					return nil, fmt.Errorf("roundtrip: %w", context.Canceled)
				}
				return reply(r, 0, 200, "")
			})
			r, _ := http.NewRequestWithContext(t.Context(), method, "http://store/", strings.NewReader("data"))
			response, err := n.RoundTrip(r)
			if err == nil {
				response.Body.Close()
			}
			want := []string{"data", "data"}
			if method == http.MethodPost {
				want = want[:1]
			}
			if !slices.Equal(bodies, want) || (err == nil) != (method == http.MethodGet) {
				t.Errorf("%s: sent %q, %v, want %q", method, bodies, err, want)
			}
		}
	}
}

// A hedge that cannot be made, because its body is gone, leaves the call with what
// the primary brought.
func TestHTTPFirstFailureSurvivesAHedgeThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHTTPStub(testService(t, testPolicy()), addresses("a:80", "b:80"), func(r *http.Request, _ int) (*http.Response, error) {
			return reply(r, ms, 503, "busy")
		})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/", strings.NewReader("query"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("file is gone") }
		response, err := n.RoundTrip(r)
		if err != nil || response.StatusCode != 503 {
			t.Fatalf("got %v, %v, want the primary's 503", response, err)
		}
		if data, err := io.ReadAll(response.Body); err != nil || string(data) != "busy" {
			t.Errorf("got %q, %v, want the primary's body", data, err)
		}
		response.Body.Close()
	})
}
