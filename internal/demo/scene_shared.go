package demo

import (
	"context"
	"fmt"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// shared lets the same calls stall on every replica for a while: hedging has to fall
// away, and to return.
func shared(ctx context.Context, s stage) ([]Figure, error) {
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	extra := func(d time.Duration, from, to float64) (float64, error) {
		first := c.stats()
		err := sleep(ctx, d, func(done float64) { s.progress(from + (to-from)*done) })
		last := c.stats()
		return ratio(last.Hedges-first.Hedges, last.Calls-first.Calls), err
	}
	before, err := extra(5*time.Second, 0, .2)
	if err != nil {
		return nil, err
	}
	s.fleet.share(true)
	found, err := s.decides(ctx, hedgedv1.ReasonCode_REASON_CODE_SHARED)
	if err != nil {
		return nil, err
	}
	during, err := extra(8*time.Second, .3, .7)
	if err != nil {
		return nil, err
	}
	s.fleet.share(false)
	back, err := s.decides(ctx, hedgedv1.ReasonCode_REASON_CODE_TRACKING)
	if err != nil {
		return nil, err
	}
	after, err := extra(5*time.Second, .8, 1)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{"before_extra_ratio", before},
		{"found_after_s", found.Seconds()},
		{"shared_extra_ratio", during},
		{"back_after_s", back.Seconds()},
		{"after_extra_ratio", after},
		{"failed_calls", float64(l.end().errors)},
	}, nil
}

// decides waits until a guard decides about the method, and says how long it took.
func (s stage) decides(ctx context.Context, code hedgedv1.ReasonCode) (time.Duration, error) {
	const limit = 30 * time.Second
	begun := time.Now()
	var last *hedgedv1.Reason
	for time.Since(begun) < limit {
		st, err := s.d.status(ctx, s.service)
		if err != nil {
			return 0, err
		}
		for _, m := range st.GetMethods() {
			if last = m.GetPolicy().GetReason(); m.GetMethod() == getUser && last.GetCode() == code {
				return time.Since(begun), nil
			}
		}
		if err := sleep(ctx, 50*time.Millisecond, nil); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%v does not decide after %v: %s", code, limit, last.GetText())
}
