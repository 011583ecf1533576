package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sendFunc is what a stub's replica does with an attempt; index 0 is the primary.
type sendFunc func(r *http.Request, index int) (*http.Response, error)

// httpStub is a network without sockets under a transport.
type httpStub struct {
	*transport
	send sendFunc

	mu   sync.Mutex
	sent []string // hosts that saw an attempt, in order
}

func newHTTPStub(s *service, o HTTPOptions, send sendFunc) *httpStub {
	n := &httpStub{send: send}
	n.transport = newTransport(s, stubNetwork{n}, o)
	return n
}

// addresses makes a resolver function of fixed replicas.
func addresses(names ...string) HTTPOptions {
	return HTTPOptions{Replicas: func() []string { return names }}
}

type stubNetwork struct{ n *httpStub }

func (s stubNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	s.n.mu.Lock()
	s.n.sent = append(s.n.sent, r.URL.Host)
	s.n.mu.Unlock()
	index, _ := strconv.Atoi(r.Header.Get("hedged-attempt")) // absent: 0
	if r.Body != nil {
		defer r.Body.Close()
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && r.Context().Err() == nil {
		trace.WroteHeaderField("Host", nil)
	}
	return s.n.send(r, index)
}

func (n *httpStub) visits() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// get makes one call and reads its answer.
func (n *httpStub) get(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://store/key/1", nil)
	if err != nil {
		return "", err
	}
	response, err := n.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return string(data), err
}

func (n *httpStub) counts() Counts {
	var all Counts
	for _, m := range *n.service.methods.Load() {
		all = all.plus(m.counts())
	}
	return all
}

func (n *httpStub) outstanding() (all int64) {
	if r := n.host.Load(); r != nil {
		all += r.outstanding.Load()
	}
	if set := n.current.Load(); set != nil {
		for _, r := range set.replicas {
			all += r.outstanding.Load()
		}
	}
	return all
}

// watchedBody notes that it was closed.
type watchedBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *watchedBody) Close() error { b.closed.Store(true); return nil }

// reply is a response of a replica after d; d < 0: whether it was cancelled or not.
func reply(r *http.Request, d time.Duration, code int, body string) (*http.Response, error) {
	if err := sleep(r.Context(), d); err != nil && d >= 0 {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{}, Request: r, ContentLength: int64(len(body)),
		Body: &watchedBody{Reader: strings.NewReader(body)},
	}, nil
}

func stall(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
