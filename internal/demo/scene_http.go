package demo

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/client"
)

// overHTTP is the article's experiment over HTTP: the same requests plainly, to one
// replica after the other, and through the client library's transport.
func overHTTP(ctx context.Context, s stage) ([]Figure, error) {
	const calls, inFlight = 4000, 40
	w, err := s.startWeb(client.HTTPOptions{}, func(i int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			latency, _ := s.fleet.replicas[i].fate(0)
			if sleep(r.Context(), latency, func(float64) {}) == nil {
				_, _ = w.Write([]byte("ada")) // its caller may have gone
			}
		})
	})
	if err != nil {
		return nil, err
	}
	defer w.close()
	get := func(via *http.Client) func(context.Context, int64) error {
		return func(ctx context.Context, _ int64) error {
			_, err := w.do(ctx, via, http.MethodGet, "/users/7")
			return err
		}
	}
	progress := func(from float64) func(int) {
		return func(done int) { s.progress(from + .45*float64(done)/calls) }
	}
	plain := load{call: get(&http.Client{Transport: turns(w), Timeout: callTimeout}), inFlight: inFlight, calls: calls, progress: progress(0)}.run(ctx)
	if err := w.warmUp(ctx, http.MethodGet, get(w.http)); err != nil {
		return nil, err
	}
	before := w.hedging.Stats()[0].Counts
	hedged := load{call: get(w.http), inFlight: inFlight, calls: calls, progress: progress(.55)}.run(ctx)
	after := w.hedging.Stats()[0]
	return []Figure{
		{"plain_p99_ms", ms(plain.quantile(.99))},
		{"plain_p999_ms", ms(plain.quantile(.999))},
		{"plain_over_1s", float64(plain.over(time.Second))},
		{"p99_ms", ms(hedged.quantile(.99))},
		{"p999_ms", ms(hedged.quantile(.999))},
		{"over_1s", float64(hedged.over(time.Second))},
		{"extra", float64(after.Hedges-before.Hedges) / float64(after.Calls-before.Calls)},
		{"failed_calls", float64(plain.errors + hedged.errors)},
	}, nil
}

// turns sends requests to one replica after the other, as a balancer would.
func turns(w *web) http.RoundTripper {
	return &balanced{w: w}
}

type balanced struct {
	w    *web
	turn atomic.Uint64
}

func (b *balanced) RoundTrip(r *http.Request) (*http.Response, error) {
	to := *r.URL
	to.Host = b.w.addresses[b.turn.Add(1)%uint64(len(b.w.addresses))]
	out := r.WithContext(r.Context())
	out.URL = &to
	return b.w.base.RoundTrip(out)
}
