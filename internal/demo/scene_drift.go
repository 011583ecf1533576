package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/policy"
)

// drift changes the world twice under 40 calls in flight: at 10 s all latencies
// grow by half, at 20 s something else takes the CPU.
func drift(ctx context.Context, s stage) ([]Figure, error) {
	const part = 10 * time.Second
	c, err := s.fleet.subscribe(ctx, s.d.ready.GRPC, s.service)
	if err != nil {
		return nil, err
	}
	defer c.close()
	l := begin(ctx, load{conn: c.conn, inFlight: 40})
	defer l.end()
	if err := c.await(ctx, func(st client.ServiceStats) bool { return st.Mode == policy.ModeActive && c.moves.last() > 0 }); err != nil {
		return nil, err
	}
	burning, stop := context.WithCancel(ctx)
	defer stop()
	first := c.stats()
	last := first
	var figures []Figure
	for i, change := range []func(){
		func() {},
		func() { s.fleet.slowDown(1.5) },
		func() { go burn(burning) },
	} {
		change()
		if err := sleep(ctx, part, func(done float64) { s.progress((float64(i) + done) / 3) }); err != nil {
			return nil, err
		}
		now := c.stats()
		figures = append(figures,
			Figure{fmt.Sprintf("extra_%d_to_%ds", i*10, (i+1)*10), ratio(now.Hedges-last.Hedges, now.Calls-last.Calls)},
			Figure{fmt.Sprintf("delay_at_%ds_ms", (i+1)*10), ms(c.moves.last())})
		last = now
	}
	stop()
	out := l.end()
	return append(figures,
		Figure{"delay_changes", float64(last.Delays - first.Delays)},
		Figure{"calls", float64(out.calls())},
		Figure{"failed_calls", float64(out.errors)},
		Figure{"over_1s", float64(out.over(stall))},
	), nil
}

// burn keeps one core busy.
func burn(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 << 20 {
		}
	}
}
