package daemon

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// request asks the daemon's HTTP handler as a browser would.
func (w *world) request(method, url, body string, header http.Header) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	for name, values := range header {
		r.Header[name] = values
	}
	rec := httptest.NewRecorder()
	w.d.handler().ServeHTTP(rec, r)
	return rec
}

// The JSON is AdminService's, errors included.
func TestAPI(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.mustOverride("orders", active)
		const base = "http://localhost"
		for _, c := range []struct {
			method, path, body string
			code               int
			want               string
		}{
			{"GET", "/api/v1/status", "", 200, `"services":1`},
			{"GET", "/api/v1/services", "", 200, `"name":"default/orders"`},
			{"GET", "/api/v1/services?service=orders", "", 200, `"mode":"MODE_ACTIVE"`},
			{"GET", "/api/v1/services?service=nobody", "", 404, `{"error": "service: \"default/nobody\" is unknown; known: default/orders"}`},
			{"GET", "/api/v1/services?service=%07", "", 400, `unprintable`},
			{"GET", "/api/v1/clients", "", 200, `"clients":`},
			{"GET", "/api/v1/explain?service=orders", "", 200, `"guards":`},
			{"GET", "/api/v1/explain", "", 400, `service: is empty`},
			{"GET", "/api/v1/history?limit=1", "", 200, `"entries":`},
			{"GET", "/api/v1/history?limit=many", "", 400, `limit: \"many\", want 1 to 1000`},
			{"GET", "/api/v1/history?limit=1001", "", 400, `limit: 1001, want at most 1000`},
			{"GET", "/api/v1/series?service=orders", "", 200, `"at_unix":`},
			{"POST", "/api/v1/override", `{"service":"orders","override":{"mode":"MODE_OFF","reason":"x"}}`, 200, `"durable":true`},
			{"POST", "/api/v1/override", `{"service":"orders","override":{"target":7}}`, 400, `target: 7, want 0.001 to 0.5`},
			{"POST", "/api/v1/override", `{"colour":"red"}`, 400, `unknown field`},
			{"POST", "/api/v1/override", strings.Repeat(" ", maxBody+1), 400, `too large`},
			{"GET", "/api/v1/override", "", 405, ""},
			{"POST", "/api/v1/services", "", 405, ""},
			{"GET", "/api/v1/nothing", "", 404, ""},
			{"GET", "/", "", 200, "<title>hedged</title>"},
			{"GET", "/app.js", "", 200, "overview"},
			{"GET", "/../daemon.go", "", 307, ""},
			{"GET", "/nothing.js", "", 404, ""},
		} {
			r := w.request(c.method, base+c.path, c.body, nil)
			if got := r.Body.String(); r.Code != c.code || !strings.Contains(strings.ReplaceAll(got, `": `, `":`), strings.ReplaceAll(c.want, `": `, `":`)) {
				t.Errorf("%s %s: %d %.200s, want %d with %s", c.method, c.path, r.Code, got, c.code, c.want)
			}
		}
		if got := w.service("orders").Policy.Mode; got != off {
			t.Errorf("mode %v after an override by HTTP, want off", got)
		}
	})
}

// Pages of other sites can neither read nor change anything: not by a name of
// their own that resolves to loopback, and not by posting across sites.
func TestAPIKeepsOtherSitesOut(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		for _, host := range []string{"evil.example", "evil.example:7947", "localhost.evil.example", "192.0.2.1", "", "[2001:db8::1]:80"} {
			r := w.request("GET", "http://localhost/api/v1/services", "", nil)
			if r.Code != 200 {
				t.Fatalf("localhost: %d", r.Code)
			}
			req := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/api/v1/services", nil)
			req.Host = host
			rec := httptest.NewRecorder()
			w.d.handler().ServeHTTP(rec, req)
			if rec.Code != http.StatusMisdirectedRequest {
				t.Errorf("host %q: %d, want 421", host, rec.Code)
			}
		}
		const body = `{"all":true,"override":{"mode":"MODE_OFF"}}`
		for name, header := range map[string]http.Header{
			"another origin": {"Origin": {"http://evil.example"}},
			"another site":   {"Sec-Fetch-Site": {"cross-site"}},
		} {
			if r := w.request("POST", "http://localhost/api/v1/override", body, header); r.Code != http.StatusForbidden {
				t.Errorf("%s: %d, want 403", name, r.Code)
			}
		}
		if got := w.service("orders").Policy.Mode; got == off {
			t.Error("another site stopped hedging")
		}
		r := w.request("GET", "http://localhost/", "", nil)
		for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
			if r.Header().Get(name) == "" {
				t.Errorf("the page has no %s", name)
			}
		}
		if csp := r.Header().Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") {
			t.Errorf("policy %q allows what is unsafe", csp)
		}
	}, func(c *Config) {
		c.Services.Rules = []ServiceRule{{Pattern: orders.String(), Config: c.Services.Rules[0].Config}}
	})
}

// Events come at once and then every second, until the reader goes.
func TestWatchEvents(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		read, write := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			req := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/api/v1/watch", nil)
			w.d.handler().ServeHTTP(&eventWriter{header: http.Header{}, w: write}, req)
			write.Close()
		}()
		buf := make([]byte, 1<<20)
		begun := time.Now()
		for i := range 3 {
			n := 0
			for !strings.Contains(string(buf[:n]), "event: services") || !strings.HasSuffix(string(buf[:n]), "\n\n") {
				m, err := read.Read(buf[n:])
				if err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
				n += m
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("three events took %v, want 2s", took)
		}
		cancel()
		_, _ = io.Copy(io.Discard, read)
		<-done
	})
}

// eventWriter is the other end of a stream of events.
type eventWriter struct {
	header http.Header
	w      io.Writer
}

func (w *eventWriter) Header() http.Header              { return w.header }
func (w *eventWriter) WriteHeader(int)                  {}
func (w *eventWriter) Write(b []byte) (int, error)      { return w.w.Write(b) }
func (w *eventWriter) Flush()                           {}
func (w *eventWriter) SetWriteDeadline(time.Time) error { return nil }
