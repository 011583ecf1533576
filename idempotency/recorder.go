package idempotency

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// httpAnswer is what a handler answered: what it did to the header, as net/http
// was given it, so that names keep their letters and values their bytes and
// order. A name without values is one that the handler took away.
type httpAnswer struct {
	status  int
	header  map[string][]string
	trailer map[string][]string
	body    []byte
}

// write writes an answer, the first time and each time again.
func (a *httpAnswer) write(w http.ResponseWriter) {
	a.writeHead(w)
	if len(a.body) > 0 {
		w.Write(a.body)
	}
	maps.Copy(w.Header(), a.trailer)
}

func (a *httpAnswer) writeHead(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
}

func (a *httpAnswer) encode(withheld map[string]bool) []byte {
	b := binary.AppendUvarint([]byte{formHTTP}, uint64(a.status))
	b = appendFields(b, a.header, withheld)
	b = appendFields(b, a.trailer, withheld)
	return appendPart(b, a.body)
}

// decodeHTTP reads an answer; nil if it was not kept.
func decodeHTTP(kept []byte) (*httpAnswer, error) {
	switch {
	case bytes.Equal(kept, notKept()):
		return nil, nil
	case len(kept) == 0 || kept[0] != formHTTP:
		return nil, fmt.Errorf("%w: it is not one of HTTP", errDamaged)
	}
	r := reader{rest: kept[1:]}
	a := &httpAnswer{status: r.number(999), header: r.fields(), trailer: r.fields(), body: r.part()}
	if a.status < 200 {
		r.fail("the status is below 200")
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return a, nil
}

// recorder is the ResponseWriter of a guarded handler. It holds the answer back,
// up to the limit; beyond that it passes it on as it comes. It belongs to the
// handler's goroutine.
type recorder struct {
	w      http.ResponseWriter
	limit  int
	before http.Header // what those outside the guard had set
	header http.Header // the handler's
	answer httpAnswer  // status 0 until the header is written

	passing bool // the answer is too large to be kept
}

func newRecorder(w http.ResponseWriter, limit int) *recorder {
	before := w.Header().Clone()
	if before == nil {
		before = make(http.Header)
	}
	return &recorder{w: w, limit: limit, before: before, header: before.Clone()}
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	switch {
	case r.answer.status != 0:
		return
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		outer := r.w.Header()
		maps.Copy(outer, r.header)
		r.w.WriteHeader(status)
		clear(outer)
		maps.Copy(outer, r.before)
		return
	case status < 200 || status > 999:
		panic(fmt.Sprintf("idempotency: WriteHeader with status %d, want 200 to 999", status))
	}
	r.answer.status = status
	r.answer.header = changes(r.before, r.header)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if !r.passing && len(r.answer.body)+len(p) > r.limit {
		r.passing = true
		r.answer.writeHead(r.w)
		if _, err := r.w.Write(r.answer.body); err != nil {
			return 0, err
		}
		r.answer.body = nil
	}
	if r.passing {
		return r.w.Write(p)
	}
	r.answer.body = append(r.answer.body, p...)
	return len(p), nil
}

// finish returns the answer, and whether it was held back whole.
func (r *recorder) finish() (*httpAnswer, bool) {
	r.WriteHeader(http.StatusOK)
	r.answer.trailer = make(map[string][]string)
	for name, values := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			r.answer.trailer[name] = slices.Clone(values)
		}
	}
	for _, list := range r.answer.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := r.header[name]; ok {
				r.answer.trailer[name] = slices.Clone(values)
			}
		}
	}
	return &r.answer, !r.passing
}

// pass ends an answer that was passed on.
func (r *recorder) pass() { maps.Copy(r.w.Header(), r.answer.trailer) }

// changes returns what is in after otherwise than in before.
func changes(before, after http.Header) map[string][]string {
	changed := make(map[string][]string)
	for name, values := range after {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if had, ok := before[name]; !ok || !slices.Equal(had, values) {
			changed[name] = slices.Clone(values)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed[name] = nil
		}
	}
	return changed
}
