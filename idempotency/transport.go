package idempotency

import (
	"net/http"
)

// Transport is an http.RoundTripper that sends the key of the request's context
// as [Header]. A header that is there already stays.
type Transport struct {
	base    http.RoundTripper
	guarded func(*http.Request) bool
}

// NewTransport returns a transport on base; nil is http.DefaultTransport.
//
// A request for which guarded returns true gets a new key if it has none: say so
// only of what its servers guard, on one store for all of them, since a hedging
// or retrying transport takes a key for the promise that the request may be sent
// twice. nil: only keys of [WithKey] are sent. Each RoundTrip is one logical call, so whatever sends it
// again stands behind, in base; for retries in front of it use WithKey.
func NewTransport(base http.RoundTripper, guarded func(*http.Request) bool) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, guarded: guarded}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, ok := KeyFromContext(r.Context())
	if len(r.Header.Values(Header)) > 0 || !ok && (t.guarded == nil || !t.guarded(r)) {
		return t.base.RoundTrip(r)
	}
	if !ok {
		key = NewKey()
	} else if err := ValidateKey(key); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	// "RoundTrip should not modify the request" (net/http.RoundTripper).
	r = r.Clone(WithKey(r.Context(), key))
	r.Header.Set(Header, formatHeader(key))
	return t.base.RoundTrip(r)
}
