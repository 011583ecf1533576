package demo

import (
	"context"
	"math"
	"time"
)

// step makes all latencies three times longer, and normal again.
func step(ctx context.Context, s stage) ([]Figure, error) {
	const part = 12 * time.Second
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	var figures []Figure
	for i, p := range []struct {
		name   string
		factor float64
	}{{"before", 1}, {"up", 3}, {"down", 1}} {
		s.fleet.slowDown(p.factor)
		from, first := c.moves.now(), c.stats()
		if err := sleep(ctx, part, func(done float64) { s.progress((float64(i) + done) / 3) }); err != nil {
			return nil, err
		}
		last := c.stats()
		figures = append(figures,
			Figure{p.name + "_delay_ms", ms(c.moves.last())},
			Figure{p.name + "_extra_ratio", ratio(last.Hedges-first.Hedges, last.Calls-first.Calls)})
		if i > 0 {
			figures = append(figures, Figure{p.name + "_followed_after_s", c.moves.followed(from)})
		}
	}
	return append(figures, Figure{"failed_calls", float64(l.end().errors)}), nil
}

// now is the time on the moves' clock, in ms.
func (m *moves) now() float64 { return ms(time.Since(m.begun)) }

// followed returns how many seconds after from the delay came within a fifth of
// what it is now for good; 0 where it was all the while.
func (m *moves) followed(from float64) float64 {
	all := m.list()
	after := 0.0
	for i := len(all) - 1; i >= 0 && all[i].At >= from; i-- {
		if i > 0 && math.Abs(all[i-1].Delay-all[len(all)-1].Delay) > .2*all[len(all)-1].Delay {
			after = (all[i].At - from) / 1000
			break
		}
	}
	return after
}
