package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// failing lets a third of all attempts fail: the client's throttle, which gRFC A6
// specifies, stops hedges at once, and the daemon after it.
func failing(ctx context.Context, s stage) ([]Figure, error) {
	const share = 1. / 3
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	if err := sleep(ctx, 5*time.Second, func(done float64) { s.progress(.3 * done) }); err != nil {
		return nil, err
	}
	first := c.stats()
	s.fleet.fail(share)
	if err := sleep(ctx, time.Second, nil); err != nil {
		return nil, err
	}
	second := c.stats()
	if err := sleep(ctx, 5*time.Second, func(done float64) { s.progress(.4 + .4*done) }); err != nil {
		return nil, err
	}
	last := c.stats()
	s.fleet.fail(0)
	mended := time.Now()
	for c.stats().Hedges == last.Hedges {
		if time.Since(mended) > 30*time.Second {
			return nil, fmt.Errorf("no hedge %v after the last failure", time.Since(mended))
		}
		if err := sleep(ctx, 10*time.Millisecond, nil); err != nil {
			return nil, err
		}
	}
	return []Figure{
		{"before_extra_ratio", ratio(first.Hedges, first.Calls)},
		{"first_second_extra_ratio", ratio(second.Hedges-first.Hedges, second.Calls-first.Calls)},
		{"failing_extra_ratio", ratio(last.Hedges-second.Hedges, last.Calls-second.Calls)},
		{"throttled_calls", float64(last.Suppressed[policy.SuppressedThrottle] - first.Suppressed[policy.SuppressedThrottle])},
		{"hedging_again_after_s", time.Since(mended).Seconds()},
		{"failed_calls", float64(l.end().errors)},
	}, nil
}
