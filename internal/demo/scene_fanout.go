package demo

import (
	"context"
	"sync"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	demov1 "github.com/hedged-project/hedged/internal/demo/proto/hedged/demo/v1"
)

const (
	fanoutCalls = 100
	fanoutSlow  = stall / 2 // requests that take longer met a stall
)

// fanout makes requests that wait for a hundred calls each: two in three meet a stall
// where one call in a hundred does. First they are plain, then hedged.
func fanout(ctx context.Context, s stage) ([]Figure, error) {
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	l.end()
	var figures []Figure
	for i, p := range []struct {
		name     string
		mode     hedgedv1.Mode
		requests int
	}{{"plain", hedgedv1.Mode_MODE_SHADOW, 60}, {"hedged", hedgedv1.Mode_MODE_ACTIVE, 300}} {
		if err := s.d.set(ctx, s.service, p.mode, s.o.Target); err != nil {
			return nil, err
		}
		first := c.stats()
		slow, failed, err := c.fanOut(ctx, p.requests, func(done float64) { s.progress((float64(i) + done) / 2) })
		if err != nil {
			return nil, err
		}
		last := c.stats()
		figures = append(figures,
			Figure{p.name + "_requests", float64(p.requests)},
			Figure{p.name + "_slow_ratio", float64(slow) / float64(p.requests)},
			Figure{p.name + "_extra_ratio", ratio(last.Hedges-first.Hedges, last.Calls-first.Calls)},
			Figure{p.name + "_failed_calls", float64(failed)})
	}
	return figures, nil
}

// fanOut makes requests, a few at a time, and counts the slow ones and the calls
// that failed.
func (s *subscriber) fanOut(ctx context.Context, requests int, progress func(done float64)) (slow, failed int, err error) {
	const atATime = 2
	users := demov1.NewUserServiceClient(s.conn)
	var mu sync.Mutex
	started := 0
	var all sync.WaitGroup
	for range atATime {
		all.Go(func() {
			for {
				mu.Lock()
				n := started
				started++
				mu.Unlock()
				if n >= requests || ctx.Err() != nil {
					return
				}
				progress(float64(n) / float64(requests))
				begun := time.Now()
				var calls sync.WaitGroup
				for i := range fanoutCalls {
					calls.Go(func() {
						callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
						defer cancel()
						if _, err := users.GetUser(callCtx, &demov1.GetUserRequest{Id: uint64(n*fanoutCalls + i)}); err != nil {
							mu.Lock()
							failed++
							mu.Unlock()
						}
					})
				}
				calls.Wait()
				if time.Since(begun) > fanoutSlow {
					mu.Lock()
					slow++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return slow, failed, ctx.Err()
}
