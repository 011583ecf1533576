package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/client"
)

// result is what callers waited for in one run, and what it cost.
type result struct {
	World    string  `json:"world"`
	InFlight int     `json:"in_flight"`
	Carrier  string  `json:"carrier"`
	Library  string  `json:"library"`
	DelayMS  float64 `json:"delay_ms,omitempty"` // a peer's
	Calls    int     `json:"calls"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	Stalled  int     `json:"over_500_ms"`
	Extra    float64 `json:"extra_load"` // as the servers saw it
	Ratio    float64 `json:"p999_ratio,omitempty"`
}

// worlds are how replicas behave as a run goes on, from 0 to 1. In each of them a
// hundredth of the attempts take a second.
var worlds = []struct {
	name string
	took func(progress float64) time.Duration
}{
	{"stationary", func(float64) time.Duration { return base() }},
	{"step", func(p float64) time.Duration {
		if p > 1./3 {
			return 2 * base()
		}
		return base()
	}},
	{"drift", func(p float64) time.Duration { return time.Duration(float64(base()) * (1 + 2*p)) }},
	{"shared", func(p float64) time.Duration { // every replica is slow for a while
		if p > .4 && p < .6 {
			return base() + 50*time.Millisecond
		}
		return base()
	}},
}

func base() time.Duration { return 5*time.Millisecond + rand.N(10*time.Millisecond) }

// lab is three replicas in one of the worlds.
type lab struct {
	*servers
	took     func(float64) time.Duration
	progress atomic.Int64 // of a run, in millionths
}

func newLab() *lab {
	l := &lab{took: worlds[0].took}
	l.servers = startServers(3, l.serve)
	return l
}

func (l *lab) serve(ctx context.Context, _ bool) error {
	d := l.took(float64(l.progress.Load()) / 1e6)
	if rand.IntN(100) == 0 {
		d = time.Second
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// side is one library over one carrier, ready to call.
type side struct {
	carrier, library string
	tuned            bool // by its delay
	open             func(l *lab, delay time.Duration) (call func() error, stop func())
}

var sides = []side{
	{"grpc", "plain", false, func(l *lab, _ time.Duration) (func() error, func()) {
		conn := l.dialGRPC(roundRobin)
		return func() error { return invoke(context.Background(), conn) }, func() { _ = conn.Close() }
	}},
	{"grpc", "hedged", false, func(l *lab, _ time.Duration) (func() error, func()) {
		c := ours()
		conn := l.dialGRPC(c.DialOptions("store")...)
		return func() error { return invoke(context.Background(), conn) }, func() { _ = conn.Close(); _ = c.Close() }
	}},
	{"grpc", "failsafe-go", true, func(l *lab, delay time.Duration) (func() error, func()) {
		conn := l.dialGRPC(failsafeGRPC(delay), roundRobin)
		return func() error { return invoke(context.Background(), conn) }, func() { _ = conn.Close() }
	}},
	{"http", "plain", false, overHTTP(func(l *lab, _ time.Duration, base http.RoundTripper) (http.RoundTripper, func()) {
		return &spread{base: base, addresses: l.http}, func() {}
	})},
	{"http", "hedged", false, overHTTP(func(l *lab, _ time.Duration, base http.RoundTripper) (http.RoundTripper, func()) {
		c := ours()
		o := client.HTTPOptions{Replicas: func() []string { return l.http }}
		return c.Transport("store", base, o), func() { _ = c.Close() }
	})},
	{"http", "failsafe-go", true, overHTTP(func(l *lab, delay time.Duration, base http.RoundTripper) (http.RoundTripper, func()) {
		return failsafeHTTP(delay, &spread{base: base, addresses: l.http}), func() {}
	})},
	{"http", "hedgedhttp", true, overHTTP(func(l *lab, delay time.Duration, base http.RoundTripper) (http.RoundTripper, func()) {
		return hedgedHTTP(delay, &spread{base: base, addresses: l.http}), func() {}
	})},
}

func overHTTP(wrap func(*lab, time.Duration, http.RoundTripper) (http.RoundTripper, func())) func(*lab, time.Duration) (func() error, func()) {
	return func(l *lab, delay time.Duration) (func() error, func()) {
		base := newTransport()
		rt, stop := wrap(l, delay, base)
		web := &http.Client{Transport: rt}
		return func() error {
				response, err := web.Get("http://store/1")
				if err != nil {
					return err
				}
				return response.Body.Close()
			}, func() {
				stop()
				base.CloseIdleConnections()
			}
	}
}

// experiment runs every side in every world. A peer has the delay with which its
// extra load in the stationary world is that of ours; ours learns.
func experiment(inFlights []int, quick bool) []result {
	var out []result
	for _, inFlight := range inFlights {
		calls := min(4_000*(1+inFlight/10), 40_000)
		if quick {
			calls /= 20
		}
		delays := map[string]time.Duration{}
		for _, w := range worlds {
			results := make([]result, len(sides))
			one := func(i int) {
				results[i] = run(sides[i], w.took, delays[sides[i].carrier+sides[i].library], inFlight, calls)
				results[i].World = w.name
			}
			if w.name == "stationary" {
				for i, s := range sides {
					if !s.tuned {
						one(i)
						continue
					}
					want := results[i-1].Extra // ours, over the same carrier
					if s.library == "hedgedhttp" {
						want = results[i-2].Extra
					}
					delays[s.carrier+s.library] = tune(s, want, inFlight, calls)
					one(i)
				}
			} else if inFlight == 4 { // there is room for all at once
				var running sync.WaitGroup
				for i := range sides {
					running.Go(func() { one(i) })
				}
				running.Wait()
			} else {
				for i := range sides {
					one(i)
				}
			}
			for i := range results {
				for _, r := range results {
					if r.Carrier == results[i].Carrier && r.Library == "hedged" && results[i].Library != "hedged" {
						results[i].Ratio = r.P999 / results[i].P999 // ours to this one's
					}
				}
				fmt.Fprintf(os.Stderr, "%+v\n", results[i])
			}
			out = append(out, results...)
		}
	}
	return out
}

// tune returns the delay with which a peer's extra load is as wanted, by secants
// from what the distribution says: one in a hundred, and the rest evenly.
func tune(s side, want float64, inFlight, calls int) time.Duration {
	at := func(extra float64) time.Duration {
		return 15*time.Millisecond - time.Duration((extra-.01)/.99*float64(10*time.Millisecond))
	}
	aim := want
	for range 3 {
		got := run(s, worlds[0].took, at(aim), inFlight, calls/2).Extra
		if diff := got - want; diff < .002 && diff > -.002 {
			break
		}
		aim -= got - want
	}
	return at(aim)
}

func run(s side, took func(float64) time.Duration, delay time.Duration, inFlight, calls int) result {
	l := newLab()
	defer l.stop()
	call, stop := s.open(l, delay)
	defer stop()
	l.load(call, inFlight, calls/4) // connects, and lets ours learn
	l.took = took
	before := l.seen.Load()
	waits := l.load(call, inFlight, calls)
	seen := l.seen.Load() - before
	slices.Sort(waits)
	at := func(q float64) float64 {
		return float64(waits[int(q*float64(len(waits)-1))]) / float64(time.Millisecond)
	}
	r := result{
		InFlight: inFlight, Carrier: s.carrier, Library: s.library, Calls: calls,
		P50: at(.5), P99: at(.99), P999: at(.999), Extra: float64(seen)/float64(calls) - 1,
	}
	if s.tuned {
		r.DelayMS = float64(delay) / float64(time.Millisecond)
	}
	for _, w := range waits {
		if w > time.Second/2 {
			r.Stalled++
		}
	}
	return r
}

// load makes calls, so many at a time, each caller's next one after its last.
func (l *lab) load(call func() error, inFlight, calls int) []time.Duration {
	waits := make([]time.Duration, calls)
	var next atomic.Int64
	var running sync.WaitGroup
	l.progress.Store(0)
	for range inFlight {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(calls); i = next.Add(1) - 1 {
				l.progress.Store(i * 1_000_000 / int64(calls))
				start := time.Now()
				if err := call(); err != nil {
					fail(err)
				}
				waits[i] = time.Since(start)
			}
		})
	}
	running.Wait()
	return waits
}
