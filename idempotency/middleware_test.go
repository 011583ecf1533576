package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/idempotency"
)

// What is not a write with a key is not touched; what is a bad key is refused
// before the handler.
func TestWhoIsGuarded(t *testing.T) {
	method := func(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }
	key := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[idempotency.Header] = values }
	}
	require := idempotency.Options{Require: func(_ context.Context, operation string) bool { return operation == "POST /users" }}
	anonymous := idempotency.Options{Caller: func(context.Context) (string, error) { return "", nil }}
	unknown := idempotency.Options{Caller: func(context.Context) (string, error) { return "", errors.New("no token") }}
	tests := []struct {
		name   string
		o      idempotency.Options
		change func(*http.Request)
		status int
		runs   int // of two copies
	}{
		{"POST", idempotency.Options{}, method("POST"), 200, 1},
		{"PATCH", idempotency.Options{}, method("PATCH"), 200, 1},
		{"DELETE", idempotency.Options{}, method("DELETE"), 200, 1},
		{"GET", idempotency.Options{}, method("GET"), 200, 2},
		{"HEAD", idempotency.Options{}, method("HEAD"), 200, 2},
		{"OPTIONS", idempotency.Options{}, method("OPTIONS"), 200, 2},
		{"no key", idempotency.Options{}, key(), 200, 2},
		{"no key where it is required", require, key(), 400, 0},
		{"no key for a read", require, func(r *http.Request) { key()(r); method("GET")(r) }, 200, 2},
		{"an empty key", idempotency.Options{}, key(""), 400, 0},
		{"a key that is too long", idempotency.Options{}, key(strings.Repeat("k", 256)), 400, 0},
		{"two keys", idempotency.Options{}, key("a", "b"), 400, 0},
		{"an anonymous caller", anonymous, key("k"), 401, 0},
		{"an unknown caller", unknown, key("k"), 401, 0},
		{"a body at the limit", idempotency.Options{MaxRequest: 3}, key("k"), 200, 1},
		{"a body above the limit", idempotency.Options{MaxRequest: 2}, key("k"), 413, 0},
		{"a body of unknown length above the limit", idempotency.Options{MaxRequest: 2}, func(r *http.Request) { r.ContentLength = -1 }, 413, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			runs := 0
			h := guarded(t, idempotency.NewMemory(1), test.o, func(_ http.ResponseWriter, r *http.Request) {
				runs++
				if body, err := io.ReadAll(r.Body); string(body) != "ann" || err != nil {
					t.Errorf("the handler read %q, %v, want the body", body, err)
				}
			})
			for range 2 {
				wantStatus(t, post(h, test.change), test.status)
			}
			if runs != test.runs {
				t.Errorf("%d runs of two copies, want %d", runs, test.runs)
			}
		})
	}
}

// The method, the path with its escapes, and the query are part of what was sent.
func TestFingerprint(t *testing.T) {
	tests := map[string]func(*http.Request){
		"method": func(r *http.Request) { r.Method = http.MethodPut },
		"path":   func(r *http.Request) { r.URL.Path = "/user" },
		"escape": func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/users", "/%75sers" },
		"query":  func(r *http.Request) { r.URL.RawQuery = "a=2" },
		"body":   func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("bob")) },
	}
	for name, change := range tests {
		h := guarded(t, idempotency.NewMemory(1), idempotency.Options{}, func(http.ResponseWriter, *http.Request) {})
		wantStatus(t, post(h), http.StatusOK)
		w := post(h, change)
		if w.Code != http.StatusUnprocessableEntity {
			t.Errorf("with another %s the key got %d, want 422", name, w.Code)
		}
		var problem struct{ Title, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Title == "" {
			t.Errorf("the refusal is %q, %v, want problem details", w.Body, err)
		}
	}
	h := guarded(t, idempotency.NewMemory(1), idempotency.Options{}, func(http.ResponseWriter, *http.Request) {})
	post(h)
	wantStatus(t, post(h, func(r *http.Request) { r.Host = "replica-2:80" }), http.StatusOK)
}

// The handler finds the key, but the calls it makes do not carry it on.
func TestKeyOfTheHandler(t *testing.T) {
	h := guarded(t, idempotency.NewMemory(1), idempotency.Options{}, func(_ http.ResponseWriter, r *http.Request) {
		if key, ok := idempotency.IncomingKey(r.Context()); !ok || key != "k" {
			t.Errorf("IncomingKey = %q, %v, want k", key, ok)
		}
		if key, ok := idempotency.KeyFromContext(r.Context()); ok {
			t.Errorf("a call of the handler would carry the key %q", key)
		}
	})
	post(h)
}

// A large answer whose effect could not be committed is cut, not passed off as
// whole.
func TestLargeAnswerThatFailsIsCut(t *testing.T) {
	s := &faultyStore{Store: idempotency.NewMemory(1), finish: idempotency.ErrNotCommitted}
	server := httptest.NewServer(guarded(t, s, idempotency.Options{MaxAnswer: 10}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", 100_000))
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(idempotency.Header, `"k"`)
	r.GetBody, r.Body = nil, io.NopCloser(strings.NewReader("a")) // net/http must not repeat it by itself
	resp, err := transport.RoundTrip(r)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the client took the answer for whole")
	}
}

// Headers of 1xx go out at once and are no part of the answer.
func TestInformationalHeaders(t *testing.T) {
	h := guarded(t, idempotency.NewMemory(1), idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot) // too late
	})
	server := httptest.NewServer(h)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for n := range 2 {
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
			hints++
			return nil
		}})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(idempotency.Header, "k")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated || resp.Header.Get("Link") != "" || hints != 1-n {
			t.Errorf("copy %d got %d with Link %q after %d hints", n+1, resp.StatusCode, resp.Header.Get("Link"), hints)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	h := guarded(b, idempotency.NewMemory(1<<20), idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "saved") })
	for name, key := range map[string]func() string{
		"without": nil,
		"new":     idempotency.NewKey,
		"again":   func() string { return "k" },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/users", nil)
				if key != nil {
					r.Header.Set(idempotency.Header, key())
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
