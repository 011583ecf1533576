package goals

import (
	"math"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/sim"
)

// The article's stalls: each call's own until articleShared, then those of all its
// copies, until articleOwnAt.
const (
	articleShared = 40 * time.Second
	articleOwnAt  = 100 * time.Second
	articleEnd    = 120 * time.Second
	articleFound  = 2100 // calls until which hedges may be wasted
)

// sharedCalls is one run of them.
type sharedCalls struct {
	calls, after, hedges int           // since articleShared; after articleFound of them, and hedges since then
	back                 time.Duration // after articleOwnAt; 0: never
}

func (s *sharedCalls) probe() sim.Probe {
	return sim.Probe{
		Sent: func(at time.Duration, _ int) {
			if at < articleShared || at >= articleOwnAt {
				return
			}
			if s.calls++; s.calls > articleFound {
				s.after++
			}
		},
		Hedge: func(at, _ time.Duration) {
			if s.after > 0 && at < articleOwnAt {
				s.hedges++
			}
		},
		Decided: func(at time.Duration, d *control.Decision, _ func() control.Status) {
			for _, m := range d.Policy.Methods {
				if at >= articleOwnAt && s.back == 0 && m.Reason.Code == policy.ReasonTracking {
					s.back = at - articleOwnAt
				}
			}
		},
	}
}

// articleSharedCalls is what hedging costs where each stall is one of every copy, and
// how soon it is back.
func articleSharedCalls(b *Bench) ([]Check, error) {
	s := World("article-shared", `
		duration %v
		arrivals poisson 1000
		latency  uniform 5ms 15ms
		stall    call 1%% 1s
		replicas 3
		at %v stall call 0%% 1s
		at %v stall shared 1%% 1s
		at %v stall shared 0%% 1s
		at %v stall call 1%% 1s`, articleEnd, articleShared, articleShared, articleOwnAt, articleOwnAt)
	runs := make([]sharedCalls, Pick(b, 12, 3))
	if _, err := b.Run(s, Hedged(), len(runs), func(i int) sim.Probe { return runs[i].probe() }); err != nil {
		return nil, err
	}
	extra, back := 0.0, 0.0
	for i := range runs {
		r := &runs[i]
		extra = max(extra, float64(r.hedges)/float64(r.after))
		if r.back == 0 {
			r.back = math.MaxInt64
		}
		back = max(back, r.back.Seconds())
	}
	return []Check{
		AtMost("shared-extra", "%", Figure{Value: 100 * extra}, .4),
		AtMost("shared-back", "s", Figure{Value: back}, 8),
	}, nil
}
