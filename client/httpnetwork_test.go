package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

// site is real HTTP servers on loopback, one for each replica, that count.
type site struct {
	*Client   // of the servers' counters
	base      *http.Transport
	scheme    string
	addresses []string
}

// bothProtocols runs f over HTTP/1 and HTTP/2.
func bothProtocols(t *testing.T, f func(t *testing.T, start func(replicas int, handle http.HandlerFunc) *site)) {
	for name, two := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			f(t, func(replicas int, handle http.HandlerFunc) *site { return newSite(t, replicas, two, handle) })
		})
	}
}

func newSite(t testing.TB, replicas int, two bool, handle http.HandlerFunc) *site {
	counter, err := New(Options{Controller: idleController{}})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Client: counter, scheme: "http", base: &http.Transport{MaxIdleConnsPerHost: 100}}
	var servers []*httptest.Server
	for range replicas {
		server := httptest.NewUnstartedServer(nil)
		name := server.Listener.Addr().String()
		server.Config.Handler = counter.HTTPHandler("store", name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if (r.ProtoMajor == 2) != two {
				t.Errorf("served over %s", r.Proto)
			}
			handle(w, r)
		}))
		if two {
			server.EnableHTTP2 = true
			server.StartTLS()
			s.scheme = "https"
			s.base = server.Client().Transport.(*http.Transport) // all test servers have one certificate
		} else {
			server.Start()
		}
		servers = append(servers, server)
		s.addresses = append(s.addresses, name)
	}
	t.Cleanup(func() {
		s.base.CloseIdleConnections()
		for _, server := range servers {
			server.Close()
		}
		if err := counter.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// idleController decides nothing.
type idleController struct{}

func (idleController) Run(ctx context.Context, _ Listener)    { <-ctx.Done() }
func (idleController) Subscribe(policy.Key)                   {}
func (idleController) Report(*report.Report) (dropped uint64) { return 0 }
func (idleController) Flush(context.Context) error            { return nil }

// seen returns what the servers counted.
func (s *site) seen() (attempts, hedges, cancelled uint64) {
	for _, r := range s.ServerStats() {
		attempts += r.Attempts
		hedges += r.Hedges
		cancelled += r.Cancelled
	}
	return attempts, hedges, cancelled
}

func (s *site) transport(service *service, o HTTPOptions) *transport {
	if o.Replicas == nil {
		o.Replicas = func() []string { return s.addresses }
	}
	return newTransport(service, s.base, o)
}

func isHedgeRequest(r *http.Request) bool { return r.Header.Get("Hedged-Attempt") != "" }

// The hedge wins; its 512 KiB come slowly, in pieces that wait for the reader,
// long after the header. Every byte is readable, the loser is cancelled at once,
// and the winner's context ends when its body is closed, not before.
func TestHTTPWinnersBodyIsWhole(t *testing.T) {
	bothProtocols(t, func(t *testing.T, start func(int, http.HandlerFunc) *site) {
		const pieces, size = 16, 32 << 10
		data := make([]byte, pieces*size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		next := make(chan struct{})
		arrived, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
		s := start(2, func(w http.ResponseWriter, r *http.Request) {
			if !isHedgeRequest(r) {
				arrived <- struct{}{}
				<-r.Context().Done()
				cancelled <- struct{}{}
				return
			}
			<-arrived // or it may be cancelled before a server has seen it
			flush := http.NewResponseController(w)
			for i := range pieces {
				if err := flush.Flush(); err != nil {
					t.Error(err)
				}
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
				w.Write(data[i*size : (i+1)*size])
			}
		})
		tr := s.transport(testService(t, testPolicy()), HTTPOptions{})
		var winner context.Context
		tr.base = roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if isHedgeRequest(r) {
				winner = r.Context()
			}
			return s.base.RoundTrip(r)
		})
		client := &http.Client{Transport: tr}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for range 5 {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.scheme+"://store.test/data", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			select { // before a byte of the body was sent
			case <-cancelled:
			case <-time.After(5 * time.Second):
				t.Fatal("the loser was not cancelled")
			}
			got := make([]byte, len(data))
			for i := range pieces {
				select {
				case next <- struct{}{}:
				case <-time.After(5 * time.Second):
					t.Fatalf("piece %d of %d: the winner was cancelled", i, pieces)
				}
				if _, err := io.ReadFull(response.Body, got[i*size:(i+1)*size]); err != nil {
					t.Fatalf("piece %d of %d: %v", i, pieces, err)
				}
			}
			if !bytes.Equal(got, data) {
				t.Error("the body is not as sent")
			}
			if winner.Err() != nil {
				t.Error("the winner's context ended before its body was closed")
			}
			response.Body.Close()
			if winner.Err() == nil {
				t.Error("the winner's context lives on after its body was closed")
			}
		}
	})
}

// The first target cannot be reached. A body that GetBody gives again reaches the
// second one, byte for byte; a one-shot body is sent no second time, and the
// error is the first one's. The caller's body is closed in both.
func TestHTTPUnreachableTarget(t *testing.T) {
	bothProtocols(t, func(t *testing.T, start func(int, http.HandlerFunc) *site) {
		data := strings.Repeat("0123456789abcdef", 4<<10)
		var served atomic.Int64
		s := start(1, func(_ http.ResponseWriter, r *http.Request) {
			served.Add(1)
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != data {
				t.Errorf("got %d bytes, %v, want the %d sent", len(got), err, len(data))
			}
		})
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		dead := closed.Addr().String()
		p := testPolicy(func(p *policy.Policy) { // so that primaries go to the dead one
			p.Replicas = map[string]policy.Replica{s.addresses[0]: {State: policy.ReplicaProbation}}
		})
		for _, oneShot := range []bool{false, true} {
			tr := s.transport(testService(t, p), HTTPOptions{
				Replicas:  func() []string { return []string{dead, s.addresses[0]} },
				Hedgeable: func(*http.Request) bool { return true },
			})
			body := &watchedBody{Reader: strings.NewReader(data)}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.scheme+"://store.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = int64(len(data))
			if !oneShot {
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(data)), nil }
			}
			before := served.Load()
			response, err := (&http.Client{Transport: tr}).Do(r)
			if err == nil {
				response.Body.Close()
			}
			var refused *net.OpError
			switch got := served.Load() - before; {
			case oneShot && (got != 0 || !errors.As(err, &refused) || refused.Addr.String() != dead):
				t.Errorf("one-shot body: %v after %d second attempts, want the first error and none", err, got)
			case !oneShot && (got != 1 || err != nil):
				t.Errorf("body with GetBody: %v after %d second attempts, want one that succeeds", err, got)
			}
			if !body.closed.Load() {
				t.Errorf("one shot %v: the caller's body was not closed", oneShot)
			}
		}
	})
}

// Every hedge that was decided on is seen by a server, exactly, when it is not
// cancelled before it is sent: here two for each call, of which the first is
// cancelled once its server has it.
func TestHTTPHedgesAreCountedExactly(t *testing.T) {
	bothProtocols(t, func(t *testing.T, start func(int, http.HandlerFunc) *site) {
		const calls = 100
		arrived := make(chan struct{}, 1)
		s := start(3, func(_ http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Hedged-Attempt") {
			case "1":
				arrived <- struct{}{}
				<-r.Context().Done()
			case "2":
				<-arrived
			default:
				<-r.Context().Done()
			}
		})
		service := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
		client := &http.Client{Transport: s.transport(service, HTTPOptions{})}
		for range calls {
			response, err := client.Get(s.scheme + "://store.test/")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
		want := Counts{Calls: calls, Safe: calls, Eligible: calls, Hedges: 2 * calls, Wins: calls}
		eventually(t, func() (string, bool) {
			got := service.method("GET").counts()
			seen, hedges, cancelled := s.seen()
			return fmt.Sprintf("counts %+v, want %+v; servers saw %d with %d hedges, %d cancelled", got, want, seen, hedges, cancelled),
				// A primary that was slow to get a connection need not be seen.
				got == want && hedges == 2*calls && cancelled == seen-calls
		})
	})
}

// Hedges that race the primary's answer and their caller's cancellation: servers
// never see more of them than the client counts as sent, every response is the
// call's own, and nothing is left behind.
func TestHTTPCancellationsAtRandom(t *testing.T) {
	bothProtocols(t, func(t *testing.T, start func(int, http.HandlerFunc) *site) {
		const calls, workers = 1_000, 20
		s := start(3, func(w http.ResponseWriter, r *http.Request) {
			_ = sleep(r.Context(), rand.N(2*ms)) // cancelled: nobody to answer
			_, _ = io.WriteString(w, r.URL.Path)
		})
		service := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
		tr := s.transport(service, HTTPOptions{})
		client := &http.Client{Transport: tr}

		var left atomic.Int64
		left.Store(calls)
		var running sync.WaitGroup
		for range workers {
			running.Go(func() {
				for i := left.Add(-1); i >= 0; i = left.Add(-1) {
					ctx, cancel := context.WithCancel(context.Background())
					stop := func() bool { return false }
					if i%8 == 0 {
						stop = time.AfterFunc(ms+rand.N(ms/2), cancel).Stop
					}
					path := fmt.Sprint("/", i)
					got, err := read(ctx, client, s.scheme+"://store.test"+path)
					if ctx.Err() == nil && (err != nil || got != path) {
						t.Errorf("got %q, %v, want %q", got, err, path)
					}
					stop()
					cancel()
				}
			})
		}
		running.Wait()
		eventually(t, func() (string, bool) {
			var outstanding int64
			for _, r := range tr.current.Load().replicas {
				outstanding += r.outstanding.Load()
			}
			return fmt.Sprintf("%d attempts outstanding, want none", outstanding), outstanding == 0
		})
		got := service.method("GET").counts()
		if _, hedges, _ := s.seen(); got.Calls != calls || got.Hedges == 0 || hedges > got.Hedges-got.CancelledUnsent {
			t.Errorf("servers saw %d hedges, want no more than were sent: %+v", hedges, got)
		}
	})
}

func read(ctx context.Context, client *http.Client, from string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return string(data), err
}

// eventually waits until what a server notices in its own time is so.
func eventually(t *testing.T, so func() (string, bool)) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(ms) {
		what, ok := so()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// The server counts a hedge as one, and what its caller cancelled with the time
// that was spent on it.
func TestHTTPHandlerCounts(t *testing.T) {
	bothProtocols(t, func(t *testing.T, start func(int, http.HandlerFunc) *site) {
		arrived := make(chan struct{})
		s := start(1, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stall" {
				close(arrived)
				<-r.Context().Done()
				panic(http.ErrAbortHandler) // as a proxy does
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request := func(path string) (*http.Response, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.scheme+"://"+s.addresses[0]+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Hedged-Attempt", "1")
			return s.base.RoundTrip(r)
		}
		response, err := request("/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		go func() {
			<-arrived
			cancel()
		}()
		if response, err := request("/stall"); err == nil {
			response.Body.Close()
			t.Error("want an error")
		}
		eventually(t, func() (string, bool) {
			got := s.ServerStats()[0]
			return fmt.Sprintf("served %+v, want 2 hedges of which 1 was cancelled", got),
				got.Attempts == 2 && got.Hedges == 2 && got.Cancelled == 1 && got.Wasted > 0
		})
	})
}

// http.Client's own timeout looks as it does without hedging.
func TestHTTPClientTimeout(t *testing.T) {
	s := newSite(t, 2, false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	client := &http.Client{Transport: s.transport(testService(t, testPolicy()), HTTPOptions{}), Timeout: 30 * ms}
	response, err := client.Get("http://store.test/")
	if err == nil {
		response.Body.Close()
	}
	var failed *url.Error
	if !errors.As(err, &failed) || !failed.Timeout() || failed.URL != "http://store.test/" {
		t.Errorf("got %v, want a timeout of the caller's URL", err)
	}
}

// The price of a request, over a base that does nothing.
func BenchmarkHTTPUnhedged(b *testing.B) {
	response := &http.Response{StatusCode: 200, Body: http.NoBody}
	instant := roundTripFunc(func(*http.Request) (*http.Response, error) { return response, nil })
	run := func(b *testing.B, ctx context.Context, o HTTPOptions, change func(*policy.Policy)) {
		p := testPolicy(func(p *policy.Policy) { p.Default.Delay = time.Second }, change)
		tr := newTransport(testService(b, p), instant, o)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://store/", nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tr.RoundTrip(r); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("host", func(b *testing.B) { run(b, context.Background(), HTTPOptions{}, noPolicyChange) })
	b.Run("replicas", func(b *testing.B) { run(b, context.Background(), addresses("a:80", "b:80", "c:80"), noPolicyChange) })
	b.Run("deadline", func(b *testing.B) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		run(b, ctx, HTTPOptions{}, noPolicyChange)
	})
	b.Run("off", func(b *testing.B) {
		run(b, context.Background(), HTTPOptions{}, func(p *policy.Policy) { p.Mode = policy.ModeOff })
	})
}

// A request of which every attempt but the hedge stalls: the alarm's delay of
// 1 ms is in it.
func BenchmarkHTTPHedged(b *testing.B) {
	response := &http.Response{StatusCode: 200, Body: http.NoBody}
	tr := newTransport(testService(b, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms })),
		roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if !isHedgeRequest(r) {
				return stall(r)
			}
			return response, nil
		}), addresses("a:80", "b:80", "c:80"))
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://store/", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.RoundTrip(r); err != nil {
			b.Fatal(err)
		}
	}
}
