package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// HTTPHandler returns a handler that counts the requests which a replica of a
// service gets, and has next serve them: attempts, hedges among them, those that
// their callers cancelled, and the time that handlers spent on these. The names
// are those of ServerOption, and so are the panics; a replica that serves both
// gRPC and HTTP has one count.
//
// Requests are counted under their HTTP method. One counts as cancelled when its
// context has ended by the time that next returns; a server cannot tell a caller
// whose time was up from one that cancelled.
//
// It stands in front of a router and of what writes responses in another's
// stead, and gives the ResponseWriter on as it is.
func (c *Client) HTTPHandler(service, replica string, next http.Handler) http.Handler {
	key, err := policy.ParseKey(service)
	if err == nil {
		err = policy.ValidateName("replica", replica)
	}
	if err != nil {
		panic(fmt.Sprintf("client: HTTP handler: %v", err))
	}
	s := c.server(serverKey{key, replica})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		m := s.httpMethod(r.Method)
		m.attempts.Add(1)
		if len(r.Header[hedgedAttemptHeader]) > 0 {
			m.hedges.Add(1)
		}
		defer func() { // a proxy panics when its caller has gone
			if r.Context().Err() == context.Canceled {
				m.cancelled.Add(1)
				m.wasted.Add(int64(time.Since(start)))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// httpMethod returns the counters of an HTTP method. Any caller can make up
// methods: those that HTTP does not have are other.
func (s *server) httpMethod(name string) *served {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return s.method(name)
	}
	return &s.rest
}
