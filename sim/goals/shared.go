package goals

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/sim"
)

// Episodes of sharedWorld: the first at sharedFirst, then one every sharedEvery.
const (
	sharedFirst = 40 * time.Second
	sharedEvery = 25 * time.Second
	sharedLasts = 5 * time.Second
)

// sharedWorld is episodes in which a share of calls, in %, is slow on every copy.
func sharedWorld(share, clients, episodes int) *sim.Scenario {
	text := fmt.Sprintf(`
		duration %v
		clients  %d
		arrivals poisson 1000
		latency  lognormal 10ms 0.5
		stall    call 1%% 500ms
		replicas 5`, sharedFirst+time.Duration(episodes)*sharedEvery, clients)
	for i := range episodes {
		at := sharedFirst + time.Duration(i)*sharedEvery
		text += fmt.Sprintf("\n\t\tat %v stall shared %d%% 300ms\n\t\tat %v stall shared 0%% 300ms", at, share, at+sharedLasts)
	}
	return World(fmt.Sprintf("shared-%d-%d", share, clients), "%s", text)
}

// declared looks for when shared slowness is declared after each episode's begin.
type declared struct {
	after []float64 // s; NaN: never in it
	wrong int       // times that it was declared outside of one
	on    bool
}

func (d *declared) probe(episodes int) sim.Probe {
	d.after = slices.Repeat([]float64{math.NaN()}, episodes)
	return sim.Probe{Decided: func(at time.Duration, decision *control.Decision, _ func() control.Status) {
		on := false
		for _, m := range decision.Policy.Methods {
			on = on || m.Reason.Code == policy.ReasonShared
		}
		i := int((at - sharedFirst) / sharedEvery)
		since := at - sharedFirst - time.Duration(i)*sharedEvery
		switch in := at >= sharedFirst && since < sharedLasts && i < episodes; {
		case !on:
		case in && math.IsNaN(d.after[i]):
			d.after[i] = since.Seconds()
		case !in && !d.on:
			d.wrong++
		}
		d.on = on
	}}
}

// shared is how soon episodes of shared slowness are declared.
func shared(b *Bench) ([]Check, error) {
	var times []float64
	missed, wrong := 0, 0
	episodes := Pick(b, 10, 3)
	for _, share := range []int{10, 20, 30, 50} {
		for _, clients := range []int{1, 20} {
			runs := make([]declared, Pick(b, 12, 2))
			_, err := b.Run(sharedWorld(share, clients, episodes), Hedged(), len(runs), func(i int) sim.Probe { return runs[i].probe(episodes) })
			if err != nil {
				return nil, err
			}
			for i := range runs {
				wrong += runs[i].wrong
				for _, t := range runs[i].after {
					if math.IsNaN(t) {
						missed++
						t = math.Inf(1)
					}
					times = append(times, t)
				}
			}
		}
	}
	slices.Sort(times)
	found := 100 * (1 - float64(missed)/float64(len(times)))
	return []Check{
		AtLeast("declared", "%", Figure{Value: found}, 99),
		AtMost("median", "s", Figure{Value: times[len(times)/2]}, .6),
		AtMost("declared-between", "", Figure{Value: float64(wrong)}, 0),
	}, nil
}
