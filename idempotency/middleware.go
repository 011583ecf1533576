package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Handler guards next: requests that carry [Header] with a method other than
// GET, HEAD, OPTIONS and TRACE.
//
// The fingerprint is the method, the escaped path, the query as sent, and the
// body. The host is not part of it: copies come to different replicas.
//
// The answer leaves when it is recorded, all at once, so a guarded handler has
// no Flusher or Hijacker. One larger than [Options.MaxAnswer] leaves as it is
// written; if its effect then cannot be committed, the connection is cut.
// Responses of status 1xx pass by and are not kept.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			next.ServeHTTP(w, r)
			return
		}
		values := r.Header.Values(Header)
		if len(values) == 0 {
			if g.o.Require != nil && g.o.Require(r.Context(), r.Method+" "+r.URL.Path) {
				writeRefusal(w, errNoKey)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		if err := g.serveHTTP(w, r, next, values); err != nil {
			writeRefusal(w, err)
		}
	})
}

// serveHTTP answers a request with a key. It returns an error if nothing was
// written yet and a refusal is due.
func (g *Guard) serveHTTP(w http.ResponseWriter, r *http.Request, next http.Handler, values []string) error {
	if len(values) > 1 {
		return fmt.Errorf("%w: %s comes %d times, want once", errBadKey, Header, len(values))
	}
	key, err := parseHeader(values[0])
	if err != nil {
		return fmt.Errorf("%w: %w", errBadKey, err)
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	call, err := g.call(withPeer(r), key, newFingerprint(
		[]byte("http"), []byte(r.Method), []byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), body))
	if err != nil {
		return err
	}
	var rec *recorder
	kept, ran, err := g.do(r.Context(), call, func(ctx context.Context) result {
		rec = newRecorder(w, g.o.MaxAnswer)
		guarded := r.WithContext(context.WithValue(ctx, incomingContext{}, key))
		guarded.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(rec, guarded)
		return g.judgeHTTP(rec.finish())
	})
	if ran && rec.passing {
		if err != nil {
			// The status is out, but what it says is not so.
			panic(http.ErrAbortHandler)
		}
		rec.pass()
		return nil
	}
	if err != nil {
		return err
	}
	if ran {
		rec.answer.write(w)
		return nil
	}
	answer, err := decodeHTTP(kept)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if answer == nil {
		return errNotKept
	}
	w.Header().Set(Replayed, "true")
	answer.write(w)
	return nil
}

// readBody reads the request's body whole, within the limit.
func (g *Guard) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(g.o.MaxRequest)
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", errTooLarge, r.ContentLength, limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("%w: want at most %d bytes", errTooLarge, limit)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return body, nil
}

func (g *Guard) judgeHTTP(a *httpAnswer, whole bool) result {
	v := g.o.Refusals.judgeStatus(a.status)
	if v == release {
		return result{verdict: v}
	}
	if !whole {
		return result{v, notKept()}
	}
	answer := a.encode(g.withheld)
	if len(answer) > g.o.MaxAnswer {
		answer = notKept()
	}
	return result{v, answer}
}

// withPeer returns the request's context with what gRPC's peer would be.
func withPeer(r *http.Request) context.Context {
	if r.TLS == nil {
		return r.Context()
	}
	return peer.NewContext(r.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: *r.TLS}})
}

// writeRefusal writes a refusal as problem details (RFC 9457).
func writeRefusal(w http.ResponseWriter, err error) {
	r, detail := asRefusal(err)
	if r == errStore {
		// What the store says of itself is for the log.
		detail = r.title
	}
	body, _ := json.Marshal(map[string]any{"title": r.title, "status": r.status, "detail": detail}) // strings and a number
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.retry {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(r.status)
	w.Write(body)
}
