package goals

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hedged-project/hedged/sim"
)

// Bench is what a goal measures with. It belongs to the goal's goroutine.
type Bench struct {
	Quick bool // fewer seeds and shorter worlds

	ctx   context.Context
	base  uint64
	pool  *sim.Pool
	table oracles
	ended func()

	seeds int
	calls atomic.Uint64
}

// Pick returns what the form asks for.
func Pick[T any](b *Bench, full, quick T) T {
	if b.Quick {
		return quick
	}
	return full
}

// Hedged is this project's controller and client.
func Hedged() sim.Policy { return named("hedged") }

// None is the baseline without hedging.
func None() sim.Policy { return named("none") }

// Windowed is the windowed percentile of each client.
func Windowed() sim.Policy { return named("windowed") }

func named(name string) sim.Policy {
	p, err := sim.FindPolicy(name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return p
}

// World reads a goal's own scenario, in the format of sim.Format.
func World(name, format string, args ...any) *sim.Scenario {
	s, err := sim.Parse(name, fmt.Sprintf(format, args...), nil)
	if err != nil {
		panic(err) // it is part of the program
	}
	return s
}

// Run runs a world under a policy with n seeds. probe, unless nil, gives the probe of
// the i-th; it is called in the goroutine of that run.
func (b *Bench) Run(s *sim.Scenario, p sim.Policy, n int, probe func(i int) sim.Probe) (sim.Row, error) {
	b.seeds = max(b.seeds, n)
	row := sim.Row{Policy: p, Results: make([]*sim.Result, n)}
	err := b.pool.Each(n, func(i int) error {
		var see sim.Probe
		if probe != nil {
			see = probe(i)
		}
		r, err := sim.Observe(b.ctx, s, p, b.base+uint64(i), see)
		if err == nil {
			b.calls.Add(r.Calls)
			b.ended()
		}
		row.Results[i] = r
		return err
	})
	return row, err
}
