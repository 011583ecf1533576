package client

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/hedged-project/hedged/hedge"
)

// judge says what a response's header, or the lack of one, means for the call.
func (c *httpCall) judge(response *http.Response, err error) outcome {
	if err != nil {
		return outcome{verdict: hedge.NonFatal, failed: true, torn: true}
	}
	code := response.StatusCode
	o := outcome{
		succeeded: code < 400,
		answered:  code < 400 || refuses(code),
		failed:    code == http.StatusTooManyRequests || code >= 500 && code != http.StatusNotImplemented,
	}
	away := false // something in front of the service speaks for it
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		away = true
	}
	acceptable := !away
	if c.transport.options.Acceptable != nil {
		acceptable = c.transport.options.Acceptable(response)
	}
	switch {
	case acceptable:
		return o
	case away:
		o.verdict = hedge.NonFatal
	default:
		o.verdict = hedge.NotAcceptable
	}
	// What is no answer must not make its replica look quick.
	o.succeeded, o.answered = false, false
	return o
}

// refuses reports whether a status is a method's own way to say no. Others may
// come from something in front of it.
func refuses(code int) bool {
	switch code {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// retryAfter reads a Retry-After (RFC 9110, 10.2.3: seconds, or a date) as a
// server's wish about further attempts. A wait longer than the delay between
// attempts is no hedge's any more: it asks for none, and the caller need not wait
// for what it could have at once. So does what cannot be read.
func retryAfter(h http.Header, delay time.Duration) hedge.Pushback {
	values := h["Retry-After"]
	if len(values) == 0 {
		return hedge.Pushback{}
	}
	wait, ok := retryDelay(h, values[0])
	if !ok || len(values) > 1 || wait > delay {
		return hedge.PushbackStop()
	}
	return hedge.PushbackAfter(wait)
}

func retryDelay(h http.Header, value string) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date")) // by the server's own clock
	if err != nil {
		now = time.Now()
	}
	return max(until.Sub(now), 0), true
}

// deliver gives the caller what the exchange received. Only the caller's
// goroutine may call it.
func (x *exchange) deliver() (*http.Response, error) {
	if x.err != nil {
		x.release()
		return nil, x.err
	}
	r := x.response
	r.Request = x.call.request // not the copy, with its context and replica
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.StatusCode == http.StatusSwitchingProtocols:
		x.release()
	default:
		r.Body = &body{r.Body, x}
	}
	return r, nil
}

// body is a winner's body. Its exchange lives until the body has ended.
type body struct {
	io.ReadCloser
	exchange *exchange
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.exchange.release()
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.exchange.release()
	return err
}

// Bounds of what is read of a body that nobody wants, so that its connection can
// be used again. Beyond them the connection is the cheaper thing to lose.
const (
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// drain ends the exchange whose response nobody wants.
func (x *exchange) drain() {
	late := time.AfterFunc(drainTime, x.cancel)
	defer late.Stop()
	// An error means the same as the end: there is no more to read.
	_, _ = io.CopyN(io.Discard, x.response.Body, drainBytes)
	_ = x.response.Body.Close()
	x.release()
}
