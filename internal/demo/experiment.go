package demo

import (
	"context"
	"fmt"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/estimator"
)

// experiment repeats the article's: plain calls while the daemon learns in
// shadow, then as many hedged ones by clients that are new.
func experiment(ctx context.Context, o Options, d *daemonProcess, r *Result) error {
	plain := map[int]*estimator.Histogram{} // by calls in flight, over all runs
	for n := 1; n <= o.Runs; n++ {
		for _, k := range o.InFlight {
			service := fmt.Sprintf("users-%d", k)
			if o.Cold {
				service = fmt.Sprintf("users-%d-run-%d", k, n) // unknown to the daemon
			} else {
				run, out, err := measure(ctx, o, d, service, "plain", n, k)
				if err != nil {
					return err
				}
				if plain[k] == nil {
					plain[k] = &estimator.Histogram{}
				}
				for _, l := range out.latencies {
					plain[k].Record(l)
				}
				r.Runs = append(r.Runs, run)
			}
			run, _, err := measure(ctx, o, d, service, "hedged", n, k)
			if err != nil {
				return err
			}
			r.Runs = append(r.Runs, run)
		}
	}
	for i := range r.Runs {
		h := plain[r.Runs[i].InFlight]
		if h == nil || h.Count() < 4000 {
			continue // the tail is not known well enough
		}
		if best, ok := optimum(h, o.Target, 0.999); ok {
			r.Runs[i].Optimum = new(ms(best))
		}
	}
	return nil
}

// measure makes one run: new replicas, a new client, o.Calls calls.
func measure(ctx context.Context, o Options, d *daemonProcess, service, how string, n, k int) (Run, outcome, error) {
	run := Run{Run: n, InFlight: k, Policy: how, Target: o.Target}
	mode := hedgedv1.Mode_MODE_SHADOW
	if how == "hedged" {
		mode = hedgedv1.Mode_MODE_ACTIVE
	}
	if err := d.set(ctx, service, mode, o.Target); err != nil {
		return run, outcome{}, err
	}
	f, err := startFleet(d.ready.GRPC, service, o.Seed+uint64(n)*1000+uint64(k))
	if err != nil {
		return run, outcome{}, err
	}
	defer f.counter.Close()
	s, err := f.subscribe(ctx, d.ready.GRPC, fmt.Sprintf("%s-%s-%d", service, how, n))
	if err != nil {
		f.drain()
		return run, outcome{}, err
	}
	wanted := func(st client.ServiceStats) bool { return !st.Generation.IsZero() }
	if how == "hedged" && !o.Cold {
		wanted = s.hedging
	}
	var out outcome
	if err = s.await(ctx, wanted); err == nil {
		what := fmt.Sprintf("run %d of %d, %d in flight, %s", n, o.Runs, k, how)
		first := s.firstHedge()
		out = load{conn: s.conn, inFlight: k, calls: o.Calls, progress: func(done int) {
			o.Progress(what, float64(done)/float64(o.Calls))
		}}.run(ctx)
		run.FirstHedge = first()
		err = s.await(ctx, func(st client.ServiceStats) bool { return st.Observing == 0 }) // a hedge may be about to be sent
	}
	stats := s.stats()
	s.close()
	f.drain()
	if err != nil {
		return run, out, fmt.Errorf("%s, %s: %w", service, how, err)
	}
	run.fill(out, stats, f)
	run.Moves = s.moves.list()
	if d := s.moves.last(); d > 0 {
		run.Delay = new(ms(d))
	}
	return run, out, nil
}

func (r *Run) fill(out outcome, st client.ServiceStats, f *fleet) {
	served := f.served()
	r.Calls, r.Errors = out.calls(), out.errors
	r.P50, r.P99, r.P999 = ms(out.quantile(.5)), ms(out.quantile(.99)), ms(out.quantile(.999))
	r.Over1s = out.over(stall)
	r.HedgesClient, r.HedgesServer = st.Hedges, served.Hedges
	r.CancelledUnsent = st.CancelledUnsent
	r.CancelledServer = served.Cancelled
	if r.Calls > 0 {
		r.ExtraClient = float64(st.Hedges) / float64(r.Calls)
		r.ExtraServer = float64(served.Hedges) / float64(r.Calls)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
