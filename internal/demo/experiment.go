package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
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
		wanted = func(st client.ServiceStats) bool { return st.Mode == policy.ModeActive && s.moves.last() > 0 }
	}
	var out outcome
	if err = s.await(ctx, wanted); err == nil {
		what := fmt.Sprintf("run %d of %d, %d in flight, %s", n, o.Runs, k, how)
		first := s.firstHedge()
		out = load{conn: s.conn, inFlight: k, calls: o.Calls, progress: func(done int) {
			o.Progress(what, float64(done)/float64(o.Calls))
		}}.run(ctx)
		run.FirstHedge = first()
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

// subscriber is a client of one fleet, which knows of the daemon only its address.
type subscriber struct {
	client *client.Client
	conn   *grpc.ClientConn
	moves  *moves
}

// subscribe makes a client of the fleet.
func (f *fleet) subscribe(ctx context.Context, daemonAddr, id string) (*subscriber, error) {
	s := &subscriber{moves: newMoves()}
	var err error
	s.client, err = client.New(client.Options{Daemon: daemonAddr, ID: id, OnPolicy: s.moves.note})
	if err != nil {
		return nil, err
	}
	s.conn, err = f.dial(ctx, s.client)
	if err != nil {
		s.client.Close()
		return nil, err
	}
	return s, nil
}

func (s *subscriber) close() {
	s.conn.Close()
	s.client.Close()
}

func (s *subscriber) stats() client.ServiceStats { return s.client.Stats()[0] }

// await waits until what the client knows is as wanted, for up to 10 s.
func (s *subscriber) await(ctx context.Context, wanted func(client.ServiceStats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if wanted(s.stats()) {
			return nil
		}
		select {
		case <-s.moves.changed:
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			st := s.stats()
			return fmt.Errorf("the client has no such policy: mode %v, generation %v, delay %v: %w",
				st.Mode, st.Generation, s.moves.last(), ctx.Err())
		}
	}
}

// firstHedge watches for the first hedge from now on; the function that it
// returns ends the watch and says when it was.
func (s *subscriber) firstHedge() func() *float64 {
	stop := make(chan struct{})
	found := make(chan *float64, 1)
	begun := time.Now()
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			if s.stats().Hedges > 0 {
				found <- new(ms(time.Since(begun)))
				return
			}
			select {
			case <-stop:
				found <- nil
				return
			case <-ticker.C:
			}
		}
	}()
	return func() *float64 {
		close(stop)
		return <-found
	}
}

// moves are the delays that came into force at a client.
type moves struct {
	begun   time.Time
	changed chan struct{} // of size 1

	mu  sync.Mutex
	all []Move
	at  time.Duration
	off time.Time // when the mode became off; zero: it is not
}

func newMoves() *moves {
	return &moves{begun: time.Now(), changed: make(chan struct{}, 1)}
}

// note is an OnPolicy hook.
func (m *moves) note(p policy.Policy) {
	law, _ := p.Method(getUser)
	m.mu.Lock()
	if law.Delay != m.at {
		m.at = law.Delay
		m.all = append(m.all, Move{At: ms(time.Since(m.begun)), Delay: ms(law.Delay)})
	}
	switch {
	case p.Mode != policy.ModeOff:
		m.off = time.Time{}
	case m.off.IsZero():
		m.off = time.Now()
	}
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *moves) last() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// offSince returns when the mode became off.
func (m *moves) offSince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
}

func (m *moves) list() []Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Move{}, m.all...)
}
