package client

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hedged-project/hedged/policy"
)

// HTTPOptions say what a Client must know of an HTTP service. The zero value is
// a service behind one address whose methods are told apart as GET, HEAD, and
// so on. The functions may be called from any goroutine, and must not block.
type HTTPOptions struct {
	// Method names the method that a request is counted and hedged under, such as
	// "GET /orders/{id}". It must be one of few: a route's template, never a path
	// with ids in it; beyond 999 names all further ones count as "other". Nil:
	// the request's method alone.
	Method func(*http.Request) string

	// Replicas returns the addresses "host:port" of the service's replicas, which
	// are also their names in policies and reports. Each attempt of a request goes
	// to another one; the request keeps its Host. It is asked for each attempt,
	// and must not write to a slice that it has returned. Nil, or an answer
	// without addresses: the request goes where its URL says, and so do its
	// hedges; there has to be a balancer that spreads requests, and the replica
	// is the URL's host.
	Replicas func() []string

	// Hedgeable says that a request may run twice, beside GET, HEAD and OPTIONS
	// and requests that carry an Idempotency-Key. Nil: those alone.
	Hedgeable func(*http.Request) bool

	// Acceptable says whether a response is the answer. When it is not, any other
	// attempt's is preferred, and the next attempt is due at once; if none is
	// acceptable, the last one is the answer. It may look at the status and the
	// header, and must not read the body. Nil: everything but 502, 503 and 504.
	Acceptable func(*http.Response) bool
}

// Transport returns an http.RoundTripper that sends the requests of one service
// through base, measures them, and hedges those that may run twice; nil is
// http.DefaultTransport. It is meant to stand in an http.Client:
//
//	client := &http.Client{Transport: hedging.Transport("orders", nil, client.HTTPOptions{})}
//
// The service is named as for DialOptions. Like http.ServeMux.Handle, Transport
// panics on a name that is not valid.
//
// A request is hedged only when its body, if any, can be sent again: it has
// GetBody, as http.NewRequest sets it for buffers and strings, and is at most
// 1 MiB long. Of the others there is one attempt, and its error is the caller's.
// Requests that upgrade the connection are never hedged.
//
// A request commits to the first attempt whose response header has come and is
// acceptable, and cancels the others at once; latency is measured up to that
// header. The winner goes on until its body has been read or closed. A failed
// attempt, one without a response, is followed by the next at once. A Retry-After
// in a response that is not acceptable is waited for if it is no longer than the
// delay between attempts; a longer one asks for no further attempts. The policy's
// non-fatal codes are gRPC's and do not matter here.
//
// With Replicas and https, the base transport must accept the service's
// certificate for an address: set TLSClientConfig.ServerName. Without Replicas
// a hedge over HTTP/1 takes another connection; over HTTP/2 it shares the
// primary's, and so needs a balancer that spreads requests, not connections.
func (c *Client) Transport(service string, base http.RoundTripper, o HTTPOptions) http.RoundTripper {
	key, err := policy.ParseKey(service)
	if err != nil {
		panic(fmt.Sprintf("client: transport: %v", err))
	}
	return newTransport(c.service(key), base, o)
}

func newTransport(s *service, base http.RoundTripper, o HTTPOptions) *transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base: base, service: s, options: o}
}

// transport is what all requests through one RoundTripper share.
type transport struct {
	base    http.RoundTripper
	service *service
	options HTTPOptions
	alarms  alarms

	host atomic.Pointer[liveReplica] // that the last request without Replicas went to

	current atomic.Pointer[addressSet] // by the last answer of Replicas
	change  sync.Mutex                 // held to replace it
}

// addressSet is an answer of Replicas.
type addressSet struct {
	addresses []string
	replicaSet
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil || r.Header == nil { // an error, which is for base to say
		return t.base.RoundTrip(r)
	}
	c := &httpCall{
		race: race{
			ctx:     r.Context(),
			service: t.service,
			alarms:  &t.alarms,
			safe:    t.safe(r),
		},
		transport: t,
		request:   r,
	}
	c.carrier, c.primary.call = c, c
	hedgeable := c.begin(t.method(r))
	c.place()
	if !hedgeable {
		return c.plain()
	}
	return c.hedged()
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// method returns the name of a request's method.
func (t *transport) method(r *http.Request) string {
	if t.options.Method != nil {
		return t.options.Method(r)
	}
	if r.Method == "" { // "For client requests, an empty string means GET."
		return http.MethodGet
	}
	return r.Method
}

// safe reports whether a request may run twice, and can.
func (t *transport) safe(r *http.Request) bool {
	if len(r.Header["Upgrade"]) > 0 || !replayable(r) {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	keys := r.Header[keyHeader]
	if len(keys) == 1 && keys[0] != "" { // two keys are no key: a server must refuse them
		return true
	}
	return t.options.Hedgeable != nil && t.options.Hedgeable(r)
}

// keyHeader is what keyMetadata is over HTTP.
const keyHeader = "Idempotency-Key"

// maxReplay is the longest body that is sent more than once. gRFC A6 has each
// client bound what it replays, and gRPC's implementations do at about as much.
const maxReplay = 1 << 20

// replayable reports whether a request's body can be sent again. A trailer cannot:
// the caller sets it while the first body is being read.
func replayable(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	// "For client requests, a value of 0 with a non-nil Body is also treated as
	// unknown" (net/http.Request).
	return r.GetBody != nil && r.ContentLength > 0 && r.ContentLength <= maxReplay && len(r.Trailer) == 0
}

// replicas returns what Replicas answers now; nil when it names none.
func (t *transport) replicas() *replicaSet {
	if t.options.Replicas == nil {
		return nil
	}
	addresses := t.options.Replicas()
	if len(addresses) == 0 {
		return nil
	}
	set := t.current.Load()
	if set == nil || !slices.Equal(set.addresses, addresses) {
		set = t.replace(addresses)
	}
	return &set.replicaSet
}

// replace makes addresses the current set. Replicas that stay keep their count
// of outstanding attempts.
func (t *transport) replace(addresses []string) *addressSet {
	t.change.Lock()
	defer t.change.Unlock()
	known := map[string]*liveReplica{}
	if old := t.current.Load(); old != nil {
		for _, r := range old.replicas {
			known[r.name] = r
		}
	}
	set := &addressSet{addresses: slices.Clone(addresses)}
	for _, address := range addresses {
		r := known[address]
		if r == nil {
			r = &liveReplica{name: address}
			known[address] = r
		}
		set.replicas = append(set.replicas, r)
	}
	t.current.Store(set)
	return set
}

// hostOf returns the one replica that stands for all behind a request's own
// address.
func (t *transport) hostOf(r *http.Request) *liveReplica {
	host := t.host.Load()
	if host == nil || host.name != r.URL.Host {
		host = &liveReplica{name: strings.Clone(r.URL.Host)}
		t.host.Store(host)
	}
	return host
}
