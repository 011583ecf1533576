package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// A hedge that is due goes to another replica under the same Host, and its
// answer is the call's, measured to the header.
func TestHTTPHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHTTPStub(testService(t, testPolicy()), addresses("a:80", "b:80"), func(r *http.Request, index int) (*http.Response, error) {
			if r.Host != "store" {
				t.Errorf("attempt %d has host %q, want store", index, r.Host)
			}
			if index == 0 {
				return stall(r)
			}
			return reply(r, 3*ms, 200, r.URL.Host)
		})
		start := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/key/1", nil)
		r.Host = "" // "the client uses URL.Host"
		response, err := n.RoundTrip(r)
		if err != nil || response.Request != r {
			t.Fatalf("got %v, %v, want a response to the caller's request", response, err)
		}
		if took := time.Since(start); took != 13*ms {
			t.Errorf("took %v, want 13ms: the hedge's 3ms after the delay of 10ms", took)
		}
		time.Sleep(time.Second) // the body's time is not the method's
		data, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil || string(data) != n.visits()[1] || n.visits()[0] == n.visits()[1] {
			t.Errorf("got %q, %v from attempts at %v; want the answer of a hedge to the other replica", data, err, n.visits())
		}
		synctest.Wait()
		want := Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1, Wins: 1}
		if c := n.counts(); c != want {
			t.Errorf("counts %+v, want %+v", c, want)
		}
		m := n.service.method("GET")
		wantOne(t, "primary censored", &m.replica(n.visits()[0]).primary.censored, 13*ms)
		wantOne(t, "hedge completed", &m.replica(n.visits()[1]).hedge.completed, 3*ms)
		if n.outstanding() != 0 {
			t.Errorf("%d attempts outstanding, want 0", n.outstanding())
		}
	})
}

// Behind one address a hedge goes to the same host, whose name is the replica's.
func TestHTTPHedgeBehindOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHTTPStub(testService(t, testPolicy()), HTTPOptions{}, func(r *http.Request, index int) (*http.Response, error) {
			if index == 0 {
				return stall(r)
			}
			return reply(r, 3*ms, 200, "yes")
		})
		if got, err := n.get(t.Context()); err != nil || got != "yes" || !slices.Equal(n.visits(), []string{"store", "store"}) {
			t.Errorf("got %q, %v from %v, want a hedge at the same host", got, err, n.visits())
		}
		synctest.Wait()
		wantOne(t, "hedge completed", &n.service.method("GET").replica("store").hedge.completed, 3*ms)
		if n.outstanding() != 0 {
			t.Errorf("%d attempts outstanding, want 0", n.outstanding())
		}
	})
}

// One replica fails, or gives a reply that is not acceptable, in 1 ms; the other
// gives a good reply in 30 ms, and that is the answer. When none is acceptable,
// the last such reply is.
func TestHTTPFastBadReplyLoses(t *testing.T) {
	notEmpty := func(r *http.Response) bool { return r.StatusCode == 200 && r.ContentLength > 0 }
	bad := map[string]struct {
		acceptable func(*http.Response) bool
		fast, last func(*http.Request) (*http.Response, error)
		want       string // when all are bad
	}{
		"unavailable": {
			nil, func(r *http.Request) (*http.Response, error) { return reply(r, ms, 503, "busy") },
			func(r *http.Request) (*http.Response, error) { return reply(r, 30*ms, 502, "gone") }, "gone",
		},
		"error": {
			nil, func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") },
			func(r *http.Request) (*http.Response, error) { return reply(r, 30*ms, 504, "late") }, "late",
		},
		"empty": {
			notEmpty, func(r *http.Request) (*http.Response, error) { return reply(r, ms, 200, "") },
			func(r *http.Request) (*http.Response, error) { return reply(r, 30*ms, 404, "nothing") }, "nothing",
		},
	}
	for name, tt := range bad {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, all), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := addresses("a:80", "b:80")
					o.Acceptable = tt.acceptable
					var first *watchedBody
					want := "good"
					if all {
						want = tt.want
					}
					n := newHTTPStub(testService(t, testPolicy()), o, func(r *http.Request, index int) (response *http.Response, err error) {
						switch {
						case index == 0:
							if response, err = tt.fast(r); err == nil {
								first = response.Body.(*watchedBody)
							}
							return response, err
						case all:
							return tt.last(r)
						}
						return reply(r, 30*ms, 200, "good")
					})
					if got, err := n.get(t.Context()); err != nil || got != want {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
					synctest.Wait()
					if first != nil {
						if rest, _ := io.ReadAll(first.Reader); !first.closed.Load() || len(rest) > 0 {
							t.Errorf("the bad reply's body: %d bytes unread, closed %v; want none, and closed", len(rest), first.closed.Load())
						}
					}
					if c := n.service.method("GET").replica(n.visits()[0]); drained(&c.primary.completed) != 0 {
						t.Error("the bad reply was measured as an answer")
					}
					if n.outstanding() != 0 {
						t.Errorf("%d attempts outstanding, want 0", n.outstanding())
					}
				})
			})
		}
	}
}

// A body that nobody wants and that does not end is given up after a second.
func TestHTTPEndlessBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Int64
		start := time.Now()
		n := newHTTPStub(testService(t, testPolicy()), addresses("a:80", "b:80"), func(r *http.Request, index int) (*http.Response, error) {
			if index > 0 {
				return reply(r, ms, 200, "good")
			}
			response, err := reply(r, ms, 503, "")
			response.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
				<-r.Context().Done()
				cut.Store(int64(time.Since(start)))
				return 0, r.Context().Err()
			}))
			return response, err
		})
		if got, err := n.get(t.Context()); err != nil || got != "good" {
			t.Errorf("got %q, %v, want the hedge's answer", got, err)
		}
		time.Sleep(2 * time.Second)
		if cut := time.Duration(cut.Load()); cut != drainTime+2*ms || n.outstanding() != 0 {
			t.Errorf("given up after %v with %d outstanding, want %v and none", cut, n.outstanding(), drainTime+2*ms)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A request that may not run twice, or cannot, is sent once and as it is.
func TestHTTPSafety(t *testing.T) {
	once := func() io.Reader { return io.MultiReader(strings.NewReader("one shot")) }
	tests := map[string]struct {
		method string
		body   io.Reader
		header http.Header
		change func(*http.Request)
		safe   bool
	}{
		"get":               {method: "GET", safe: true},
		"head":              {method: "HEAD", safe: true},
		"options":           {method: "OPTIONS", safe: true},
		"no method":         {method: "GET", change: func(r *http.Request) { r.Method = "" }, safe: true},
		"trace":             {method: "TRACE"},
		"put":               {method: "PUT", body: strings.NewReader("x")},
		"delete":            {method: "DELETE"},
		"post":              {method: "POST", body: strings.NewReader("x")},
		"post with key":     {method: "POST", body: strings.NewReader("x"), header: http.Header{"Idempotency-Key": {`"k"`}}, safe: true},
		"post with two":     {method: "POST", body: strings.NewReader("x"), header: http.Header{"Idempotency-Key": {`"k"`, `"l"`}}},
		"post, empty key":   {method: "POST", body: strings.NewReader("x"), header: http.Header{"Idempotency-Key": {""}}},
		"listed":            {method: "REPORT", body: strings.NewReader("x"), safe: true},
		"get with body":     {method: "GET", body: strings.NewReader("x"), safe: true},
		"one shot":          {method: "GET", body: once()},
		"one shot, length":  {method: "GET", body: once(), change: func(r *http.Request) { r.ContentLength = 8 }},
		"one shot, key":     {method: "POST", body: once(), header: http.Header{"Idempotency-Key": {`"k"`}}},
		"1 MiB":             {method: "GET", body: bytes.NewReader(make([]byte, 1<<20)), safe: true},
		"over 1 MiB":        {method: "GET", body: bytes.NewReader(make([]byte, 1<<20+1))},
		"no length":         {method: "GET", body: strings.NewReader("x"), change: func(r *http.Request) { r.ContentLength = 0 }},
		"trailer":           {method: "GET", body: strings.NewReader("x"), change: func(r *http.Request) { r.Trailer = http.Header{"Sum": nil} }},
		"websocket upgrade": {method: "GET", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var same atomic.Bool
				var r *http.Request
				n := newHTTPStub(testService(t, testPolicy()), HTTPOptions{
					Hedgeable: func(r *http.Request) bool { return r.Method == "REPORT" },
				}, func(got *http.Request, index int) (*http.Response, error) {
					if index == 0 {
						same.Store(got == r)
					}
					return reply(got, 15*ms, 200, "")
				})
				r, _ = http.NewRequestWithContext(t.Context(), tt.method, "http://store/", tt.body)
				if tt.header != nil {
					r.Header = tt.header
				}
				if tt.change != nil {
					tt.change(r)
				}
				response, err := n.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				want := Counts{Calls: 1}
				want.Suppressed[policy.SuppressedUnsafe] = 1
				if tt.safe {
					want = Counts{Calls: 1, Safe: 1, Eligible: 1, Hedges: 1}
				}
				synctest.Wait()
				if c := n.counts(); c != want {
					t.Errorf("counts %+v, want %+v", c, want)
				}
				if !tt.safe && !same.Load() {
					t.Error("base got a copy of the request, want the caller's own")
				}
			})
		})
	}
}

// A Retry-After is waited for up to the delay; a longer or odd one asks for no
// more attempts, and the reply comes back at once.
func TestHTTPRetryAfter(t *testing.T) {
	date := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return date.Add(d).Format(http.TimeFormat) }
	tests := map[string]struct {
		code  int
		after []string
		wait  time.Duration // -1: no second attempt
	}{
		"none":         {503, nil, 0},
		"now":          {503, []string{"0"}, 0},
		"1 s":          {503, []string{"1"}, time.Second},
		"the delay":    {503, []string{"2"}, 2 * time.Second},
		"too long":     {503, []string{"3"}, -1},
		"date":         {503, []string{at(time.Second)}, time.Second},
		"passed":       {503, []string{at(-time.Hour)}, 0},
		"far":          {503, []string{at(time.Hour)}, -1},
		"odd":          {503, []string{"soon"}, -1},
		"negative":     {503, []string{"-1"}, -1},
		"two":          {503, []string{"0", "0"}, -1},
		"acceptable":   {429, []string{"1"}, -1},
		"not possible": {503, []string{"99999999999999999999"}, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPolicy(func(p *policy.Policy) { p.Default.Delay = 2 * time.Second })
				n := newHTTPStub(testService(t, p), addresses("a:80", "b:80"), func(r *http.Request, index int) (*http.Response, error) {
					if index > 0 {
						return reply(r, 0, 200, "good")
					}
					response, err := reply(r, 0, tt.code, "bad")
					response.Header["Retry-After"] = tt.after
					if tt.after == nil {
						delete(response.Header, "Retry-After")
					}
					response.Header.Set("Date", at(0))
					return response, err
				})
				start := time.Now()
				got, err := n.get(t.Context())
				want, took := "good", tt.wait
				if tt.wait < 0 {
					want, took = "bad", 0
				}
				if d := time.Since(start); err != nil || got != want || d != took {
					t.Errorf("got %q, %v after %v, want %q after %v", got, err, d, want, took)
				}
			})
		})
	}
}

// Replicas come and go between attempts: a hedge goes to those of its own time,
// and a request without any goes where its URL says.
func TestHTTPReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[[]string]
		set := func(names ...string) { now.Store(&names) }
		n := newHTTPStub(testService(t, testPolicy()), HTTPOptions{Replicas: func() []string { return *now.Load() }},
			func(r *http.Request, index int) (*http.Response, error) {
				if index == 0 {
					set("b:80")
					return stall(r)
				}
				return reply(r, 0, 200, r.URL.Host)
			})
		set("a:80")
		if got, err := n.get(t.Context()); err != nil || got != "b:80" {
			t.Errorf("got %q, %v, want the answer of the replica that came", got, err)
		}
		n.send = func(r *http.Request, _ int) (*http.Response, error) { return reply(r, 15*ms, 200, r.URL.Host) }
		if got, err := n.get(t.Context()); err != nil || got != "b:80" || n.counts().Suppressed[policy.SuppressedReplica] != 1 {
			t.Errorf("got %q, %v and %+v, want no hedge with one replica", got, err, n.counts())
		}
		set()
		if got, err := n.get(t.Context()); err != nil || got != "store" {
			t.Errorf("got %q, %v, want the URL's host", got, err)
		}
	})
}

// A proxy that passes on a hedge's request makes a call of its own of it.
func TestHTTPForwardedHedgeIsAPrimary(t *testing.T) {
	for _, p := range []*policy.Policy{nil, testPolicy()} {
		n := newHTTPStub(testService(t, p), HTTPOptions{}, func(r *http.Request, index int) (*http.Response, error) {
			if index != 0 {
				t.Errorf("the primary is marked as attempt %d", index)
			}
			return reply(r, 0, 200, "")
		})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/", nil)
		r.Header.Set("hedged-attempt", "2")
		response, err := n.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if r.Header.Get("hedged-attempt") != "2" {
			t.Error("the caller's header was changed")
		}
	}
}

// The daemon sees an HTTP service as it sees a gRPC one: its clients' attempts by
// method and replica, and its servers' counts; and the other way, its policy is
// the requests' law.
func TestHTTPServiceIsLikeAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		c := newClient(t, d.options())
		served := c.HTTPHandler("orders", "b:80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		rt := c.Transport("orders", roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if !isHedgeRequest(r) {
				return stall(r)
			}
			w := httptest.NewRecorder()
			served.ServeHTTP(w, r)
			return w.Result(), nil
		}), HTTPOptions{
			Method:   func(r *http.Request) string { return r.Method + " /orders/{id}" },
			Replicas: func() []string { return []string{"a:80", "b:80"} },
		})
		synctest.Wait()
		p := activePolicy(1)
		p.Replicas = map[string]policy.Replica{"b:80": {State: policy.ReplicaProbation}}
		d.pushPolicy(p)
		synctest.Wait()
		response, err := (&http.Client{Transport: rt}).Get("http://orders/orders/17")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		seen := map[string]bool{}
		for _, f := range d.reported() {
			for name, m := range f.GetMethods() {
				seen[fmt.Sprintf("%s calls %d hedges %d wins %d, %d replicas; served %d",
					name, m.GetCalls(), m.GetHedges(), m.GetWins(), len(m.GetReplicas()), m.GetServer().GetHedges())] = true
			}
		}
		for _, want := range []string{
			"GET /orders/{id} calls 1 hedges 1 wins 1, 2 replicas; served 0",
			"GET calls 0 hedges 0 wins 0, 0 replicas; served 1",
		} {
			if !seen[want] {
				t.Errorf("reported %v, want %q", slices.Collect(maps.Keys(seen)), want)
			}
		}
	})
}

// Raw paths are never names. An application that makes names of ids, and 100,000
// replicas that come and go, find bounds: memory stays flat.
func TestHTTPNamesAreBounded(t *testing.T) {
	const many = 100_000
	address := atomic.Pointer[[]string]{}
	address.Store(&[]string{"first:80"})
	var raw atomic.Bool
	n := newHTTPStub(testService(t, testPolicy()), HTTPOptions{
		Method: func(r *http.Request) string {
			if raw.Load() {
				return "GET " + r.URL.Path
			}
			return "GET /key/{id}"
		},
		Replicas: func() []string { return *address.Load() },
	}, nil)
	quick := &http.Response{StatusCode: 200, Body: http.NoBody}
	n.base = roundTripFunc(func(*http.Request) (*http.Response, error) { return quick, nil })
	send := func(path string) {
		r := &http.Request{Method: http.MethodGet, URL: mustURL("http://store" + path), Header: http.Header{}}
		if _, err := n.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 {
		send(fmt.Sprint("/key/", i))
	}
	if m := *n.service.methods.Load(); len(m) != 1 || m["GET /key/{id}"] == nil {
		t.Errorf("%d methods, want the one template", len(m))
	}
	raw.Store(true)
	for i := range 2000 {
		send(fmt.Sprint("/key/", i))
	}
	if m := *n.service.methods.Load(); len(m) != maxMethods || n.service.rest.counts().Calls == 0 {
		t.Errorf("%d methods and %d calls of other, want %d and the rest", len(m), n.service.rest.counts().Calls, maxMethods)
	}
	raw.Store(false)
	churn := func() {
		for i := range many / 2 {
			address.Store(&[]string{fmt.Sprint("10.", i>>16, ".", i>>8&255, ".", i&255, ":80")})
			send("/key/1")
		}
		n.service.drain(time.Now())
	}
	churn()
	before := heap()
	churn()
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("heap grew by %d bytes with replicas that come and go, want it flat", grown)
	}
	if n.service.series.Load() > maxSeries || len(n.current.Load().replicas) != 1 {
		t.Errorf("%d series and %d replicas, want at most %d and 1", n.service.series.Load(), len(n.current.Load().replicas), maxSeries)
	}
}

// What is no request at all is answered as net/http answers it.
func TestHTTPBrokenRequest(t *testing.T) {
	rt := newTransport(testService(t, testPolicy()), nil, HTTPOptions{})
	for _, r := range []*http.Request{
		{Method: http.MethodGet, Header: http.Header{}},
		{Method: http.MethodGet, URL: mustURL("http://store/")},
	} {
		_, want := http.DefaultTransport.RoundTrip(r)
		_, err := rt.RoundTrip(r)
		if err == nil || err.Error() != want.Error() {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestTransportRefusesBadName(t *testing.T) {
	c := newClient(t, startFake(t).options())
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "client: transport: ") {
			t.Errorf("panic %q, want one that says why", got)
		}
	}()
	c.Transport("", nil, HTTPOptions{})
}
