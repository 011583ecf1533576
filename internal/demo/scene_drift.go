package demo

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// drift changes the world twice under 40 calls in flight: at 10 s all latencies
// grow by half, at 20 s another process starts to keep every core busy.
func drift(ctx context.Context, s stage) ([]Figure, error) {
	const part = 10 * time.Second
	c, l, err := s.hedging(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer l.end()
	burning, stop := context.WithCancel(ctx)
	defer stop()
	burner := exec.CommandContext(burning, s.o.Burner[0], s.o.Burner[1:]...)
	if _, err := burner.StdinPipe(); err != nil { // it ends with us
		return nil, fmt.Errorf("CPU burner: %w", err)
	}
	first := c.stats()
	last := first
	var figures []Figure
	for i, change := range []func() error{
		func() error { return nil },
		func() error { s.fleet.slowDown(1.5); return nil },
		burner.Start,
	} {
		if err := change(); err != nil {
			return nil, fmt.Errorf("start CPU burner: %w", err)
		}
		if err := sleep(ctx, part, func(done float64) { s.progress((float64(i) + done) / 3) }); err != nil {
			return nil, err
		}
		now := c.stats()
		figures = append(figures,
			Figure{fmt.Sprintf("extra_%d_to_%ds_ratio", i*10, (i+1)*10), ratio(now.Hedges-last.Hedges, now.Calls-last.Calls)},
			Figure{fmt.Sprintf("delay_at_%ds_ms", (i+1)*10), ms(c.moves.last())})
		last = now
	}
	stop()
	_ = burner.Wait() // it was killed
	out := l.end()
	return append(figures,
		Figure{"delay_changes", float64(last.Delays - first.Delays)},
		Figure{"calls", float64(out.calls())},
		Figure{"failed_calls", float64(out.errors)},
		Figure{"over_1s", float64(out.over(stall))},
	), nil
}

// Burn keeps every core busy until ctx ends: it is what the burner's process does.
func Burn(ctx context.Context) {
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for ctx.Err() == nil {
				for range 1 << 20 {
				}
			}
		})
	}
	wg.Wait()
}
