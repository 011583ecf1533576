package demo

import (
	"context"
	"fmt"
	"time"
)

// daemonRestart kills the daemon under load and starts it again a second later.
func daemonRestart(ctx context.Context, s stage) ([]Figure, error) {
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	if err := sleep(ctx, 3*time.Second, func(done float64) { s.progress(0.4 * done) }); err != nil {
		return nil, err
	}
	before := c.stats()

	s.d.kill()
	killed := time.Now()
	if err := sleep(ctx, time.Second, nil); err != nil {
		return nil, err
	}
	alone := c.stats()
	if err := s.d.restart(ctx); err != nil {
		return nil, err
	}
	// The daemon's own word: the client's streams are back.
	back, err := s.streaming(ctx, killed)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, 4*time.Second, func(done float64) { s.progress(0.6 + 0.4*done) }); err != nil {
		return nil, err
	}
	after := c.stats()
	out := l.end()
	return []Figure{
		{"calls", float64(out.calls())},
		{"failed_calls", float64(out.errors)},
		{"hedges_while_down", float64(alone.Hedges - before.Hedges)},
		{"without_updates_ms", ms(back.Sub(killed))},
		{"generation_before", float64(before.Generation.Number)},
		{"generation_after", float64(after.Generation.Number)},
		{"epoch_changed", float64(after.Generation.Epoch - before.Generation.Epoch)},
		{"extra_ratio", ratio(after.Hedges, after.Calls)},
	}, nil
}

// streaming waits until the daemon has the client's report of now, and returns
// when that was.
func (s stage) streaming(ctx context.Context, since time.Time) (time.Time, error) {
	for {
		st, err := s.d.status(ctx, s.service)
		if err != nil {
			return time.Time{}, err
		}
		if st.GetLoad().GetCalls() > 0 {
			return time.Now(), nil
		}
		if time.Since(since) > 15*time.Second {
			return time.Time{}, fmt.Errorf("no report has reached the daemon %v after its restart", time.Since(since).Round(time.Second))
		}
		if err := sleep(ctx, 20*time.Millisecond, nil); err != nil {
			return time.Time{}, err
		}
	}
}

func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
