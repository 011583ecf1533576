package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/client"
)

// killSwitch says off while 200 clients hedge, and waits until the last of them
// has stopped.
func killSwitch(ctx context.Context, s stage) ([]Figure, error) {
	const clients = 200
	stopped := make(chan time.Time, clients)
	subscribers := make([]*subscriber, clients)
	defer func() {
		var wg sync.WaitGroup
		for _, c := range subscribers {
			if c != nil {
				wg.Go(c.close)
			}
		}
		wg.Wait()
	}()
	for i := range subscribers {
		c, err := s.fleet.subscribe(ctx, s.d.ready.GRPC, fmt.Sprintf("%s-%03d", s.service, i))
		if err != nil {
			return nil, err
		}
		subscribers[i] = c
		s.progress(0.3 * float64(i) / clients)
	}
	loadCtx, stop := context.WithCancel(ctx)
	var loads sync.WaitGroup
	defer loads.Wait()
	defer stop()
	for _, c := range subscribers {
		loads.Go(func() { trickle(loadCtx, c) })
	}
	for i, c := range subscribers {
		if err := c.await(ctx, c.hedging); err != nil {
			return nil, err
		}
		s.progress(0.3 + 0.3*float64(i)/clients)
	}
	if err := sleep(ctx, 3*time.Second, func(done float64) { s.progress(0.6 + 0.4*done) }); err != nil {
		return nil, err
	}
	for _, c := range subscribers {
		go func() {
			// The hook runs after the policy has come into force.
			_ = c.await(ctx, func(client.ServiceStats) bool { return !c.moves.offSince().IsZero() })
			stopped <- c.moves.offSince()
		}()
	}
	said := time.Now()
	if err := s.d.set(ctx, s.service, hedgedv1.Mode_MODE_OFF, 0); err != nil {
		return nil, err
	}
	acknowledged := time.Since(said)
	times := make([]time.Duration, 0, clients)
	for range subscribers {
		at := <-stopped
		if at.IsZero() {
			return nil, fmt.Errorf("only %d of %d clients have stopped", len(times), clients)
		}
		times = append(times, at.Sub(said))
	}
	slices.Sort(times)

	// Whoever has stopped sends nothing more.
	before := hedges(subscribers)
	if err := sleep(ctx, time.Second, nil); err != nil {
		return nil, err
	}
	return []Figure{
		{"clients", clients},
		{"acknowledged_ms", ms(acknowledged)},
		{"median_stopped_ms", ms(times[len(times)/2])},
		{"last_stopped_ms", ms(times[len(times)-1])},
		{"hedges_before", float64(before)},
		{"hedges_after", float64(hedges(subscribers) - before)},
	}, nil
}

// trickle makes about five calls a second.
func trickle(ctx context.Context, s *subscriber) {
	for ctx.Err() == nil {
		load{conn: s.conn, inFlight: 1, calls: 1}.run(ctx)
		if sleep(ctx, 200*time.Millisecond, nil) != nil {
			return
		}
	}
}

func hedges(subscribers []*subscriber) (sum uint64) {
	for _, s := range subscribers {
		sum += s.stats().Hedges
	}
	return sum
}

// sleep waits for d, and tells how far it is.
func sleep(ctx context.Context, d time.Duration, progress func(done float64)) error {
	begun := time.Now()
	ticker := time.NewTicker(min(d, 100*time.Millisecond))
	defer ticker.Stop()
	for {
		gone := time.Since(begun)
		if gone >= d {
			return nil
		}
		if progress != nil {
			progress(float64(gone) / float64(d))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
