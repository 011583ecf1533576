package goals

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hedged-project/hedged/sim"
)

// Result is a goal's outcome.
type Result struct {
	ID       string  `json:"id"`
	Measured string  `json:"measured"` // every check's, or why it could not be measured
	Goal     string  `json:"goal"`
	Pass     bool    `json:"pass"` // every check
	Seeds    int     `json:"seeds"`
	Calls    uint64  `json:"calls"` // in all its runs, after their warm-up
	SD       float64 `json:"sd"`    // of the first check's figure, over seeds
	Checks   []Check `json:"checks"`
}

// Options say how goals are measured.
type Options struct {
	Quick bool
	Base  uint64 // the first seed
	// Progress, unless nil, is told of each run that ended, from any goroutine, with
	// the share of goals that are done.
	Progress func(what string, done float64)
}

// Run measures goals, all at the same time, and returns their results in order. It
// returns an error only when ctx ends.
func Run(ctx context.Context, goals []Goal, o Options) ([]Result, error) {
	table, err := readOracles(oracleText)
	if err != nil {
		panic(err) // it is part of the program
	}
	pool := sim.NewPool()
	results := make([]Result, len(goals))
	var done atomic.Int64
	var wg sync.WaitGroup
	for i, g := range goals {
		b := &Bench{Quick: o.Quick, ctx: ctx, base: o.Base, pool: pool, table: table}
		b.ended = func() {
			if o.Progress != nil {
				o.Progress(g.ID, float64(done.Load())/float64(len(goals)))
			}
		}
		wg.Go(func() {
			results[i] = measure(&g, b)
			done.Add(1)
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

func measure(g *Goal, b *Bench) Result {
	r := Result{ID: g.ID, Goal: g.Text, Pass: true}
	var texts []string
	for _, part := range g.Parts {
		checks, err := part(b)
		r.Checks = append(r.Checks, checks...)
		if err != nil {
			r.Pass = false
			texts = append(texts, "not measured: "+err.Error())
		}
		for i := range checks {
			c := &checks[i]
			r.Pass = r.Pass && c.Pass
			texts = append(texts, c.Name+" "+c.Text())
		}
	}
	r.Measured = strings.Join(texts, ", ")
	r.Seeds, r.Calls = b.seeds, b.calls.Load()
	if len(r.Checks) > 0 {
		r.SD = r.Checks[0].SD
	} else {
		r.Pass = false
	}
	return r
}
