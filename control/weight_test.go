package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
	"pgregory.net/rapid"
)

// crowd is clients that each report once a second, in step.
type crowd struct {
	svc    *Service
	now    time.Time
	rng    *rand.Rand
	number uint64
	policy *policy.Policy
}

func newCrowd() *crowd {
	return &crowd{svc: New(testKey, configured()), now: epoch, rng: rand.New(rand.NewPCG(1, 2))}
}

// client reports a second of so many calls, which take latency.
func (f *crowd) client(id string, calls int, latency func() time.Duration) *report.Report {
	m := &report.Method{Calls: uint64(calls), Safe: uint64(calls), Replicas: map[string]*report.Replica{}}
	r := &report.Report{
		Source:   report.Source{ID: id, Incarnation: 1},
		Interval: time.Second,
		Methods:  map[string]*report.Method{testMethod: m},
	}
	if f.policy != nil {
		r.Generation = f.policy.Generation
	}
	for i := range calls {
		name := fmt.Sprintf("replica-%d", i%3)
		if m.Replicas[name] == nil {
			m.Replicas[name] = &report.Replica{}
		}
		d := latency()
		m.Replicas[name].Primary.Completed.Record(d)
		if f.policy != nil && d > f.policy.Methods[testMethod].Delay {
			m.Eligible++
		}
	}
	return r
}

func (f *crowd) honest() time.Duration {
	return time.Duration(1e7 * math.Exp(.5*f.rng.NormFloat64()))
}

// run lets so many seconds pass, in each of which reports come from every client.
func (f *crowd) run(seconds int, reports func() []*report.Report) {
	for range seconds {
		for _, r := range reports() {
			f.svc.Add(f.now, r)
		}
		for range 4 {
			f.now = f.now.Add(250 * time.Millisecond)
			d := f.svc.Tick(f.now)
			if d.Publish {
				f.number++
				p := *d.Policy
				p.Generation = policy.Generation{Epoch: 1, Number: f.number}
				f.svc.Published(&p)
				f.policy = &p
			}
		}
	}
}

// of is so many honest clients, and others.
func (f *crowd) of(honest, calls int, others ...func() *report.Report) func() []*report.Report {
	return func() []*report.Report {
		var all []*report.Report
		for i := range honest {
			all = append(all, f.client(fmt.Sprintf("honest-%d", i), calls, f.honest))
		}
		for _, other := range others {
			all = append(all, other())
		}
		return all
	}
}

func (f *crowd) delay() time.Duration { return f.policy.Methods[testMethod].Delay }

// p957 is what 4.3% of honest calls outlive.
const p957 = 23_590 * time.Microsecond

func (f *crowd) wantDelay(t *testing.T, what string, off float64) {
	t.Helper()
	if got := float64(f.delay()) / float64(p957); got < 1-off || got > 1+off {
		t.Errorf("%s: delay %v, want %v give or take %g%%", what, f.delay(), p957, 100*off)
	}
}

// Whatever one client in twenty reports, in latencies or in counts, the delay stays
// where it is without it.
func TestLiarsDoNotMoveTheDelay(t *testing.T) {
	lies := map[string]func(f *crowd, r *report.Report){
		"calls that all outlive the delay": func(_ *crowd, r *report.Report) {
			r.Methods[testMethod].Eligible = r.Methods[testMethod].Calls
		},
		"a thousand times the calls, all short": func(f *crowd, r *report.Report) {
			*r = *f.client(r.Source.ID, 50, func() time.Duration { return time.Millisecond }).Scaled(1000, 0)
		},
		"all long": func(f *crowd, r *report.Report) {
			*r = *f.client(r.Source.ID, 50, func() time.Duration { return time.Second })
		},
		"a thousand times the calls, all long": func(f *crowd, r *report.Report) {
			*r = *f.client(r.Source.ID, 50, func() time.Duration { return time.Second }).Scaled(1000, 0)
		},
	}
	for name, lie := range lies {
		f := newCrowd()
		f.run(5, f.of(20, 50))
		f.run(60, f.of(19, 50, func() *report.Report {
			r := f.client("honest-19", 50, f.honest)
			lie(f, r)
			return r
		}))
		f.wantDelay(t, name, .1)
	}
}

// What a client adds to counts is bounded by what the others call, however often it
// reports.
func TestCountsOfOneClientAreBounded(t *testing.T) {
	alone := newCrowd()
	alone.run(30, alone.of(20, 50))
	f := newCrowd()
	exaggerates := func() *report.Report { return f.client("liar", 50, f.honest).Scaled(1000, 0) }
	f.run(30, f.of(19, 50, exaggerates, exaggerates, exaggerates))
	load := f.svc.Status(f.now).Load
	// 19 x 50 calls a second, and a quarter of that.
	within(t, "calls", load.Calls, 9*19*50, 10*19*50*5/4+1000)
	f.now = f.now.Add(8 * time.Second)
	f.svc.Add(f.now, exaggerates())
	within(t, "calls after 8 s of silence", f.svc.counts.sum(f.now, 1).calls, 0, 3*19*50/4*11/10)
	got, want := f.policy.Budget, alone.policy.Budget
	within(t, "burst", got.Burst, want.Burst, want.Burst*1.25)
	within(t, "start", got.Start, want.Start, want.Start*1.25)
}

// A client that calls much more than others has the latencies of its fleet, and a
// few clients are too few to tell who lies.
func TestHonestClientsAreHeard(t *testing.T) {
	f := newCrowd()
	f.run(40, f.of(20, 5, func() *report.Report { return f.client("big", 900, f.honest) }))
	f.wantDelay(t, "one big client among twenty small ones", .15)

	far := func(id string) func() *report.Report {
		return func() *report.Report {
			return f.client(id, 50, func() time.Duration { return f.honest() + 100*time.Millisecond })
		}
	}
	f = newCrowd()
	f.run(40, f.of(18, 50, far("far")))
	if f.delay() < 100*time.Millisecond {
		t.Errorf("one far client of 19: delay %v, want it to count", f.delay())
	}
	f = newCrowd()
	f.run(40, f.of(18, 50, far("far-0"), far("far-1")))
	if f.delay() < 100*time.Millisecond {
		t.Errorf("two far clients of 20: delay %v, want them to count", f.delay())
	}
	f = newCrowd()
	f.run(40, f.of(19, 50, far("far")))
	f.wantDelay(t, "one far client of 20", .1)
	f.run(40, f.of(19, 50, func() *report.Report { return f.client("far", 50, f.honest) }))
	for c, v := range f.svc.methods[testMethod].voices {
		if v.left {
			t.Errorf("%+v is left out still, want it back now that it is like the others", c)
		}
	}
}

// Who is left out depends on how many calls say so.
func TestUnlikeClientsAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		calls, longer float64
		left          bool
	}{
		{500, 22, false},
		{500, 100, true}, // 20% of its calls, not 4.3%
		{500, 0, true},
		{20, 20, true},
		{20, 3, false},
		{20, 0, false},
		{0, 0, false},
	} {
		for i := range (voice{}).tale {
			vs := voices{}
			for k := range 38 {
				v := &voice{lastSeen: epoch}
				v.tale[i] = tale{500, float64(20 + k%4)}
				vs[&clientState{calls: float64(k)}] = v
			}
			v := &voice{lastSeen: epoch}
			v.tale[i] = tale{c.calls, c.longer}
			vs[&clientState{}] = v
			// Another one, that stands out more on either side.
			vs[&clientState{}] = &voice{lastSeen: epoch, tale: v.tale}
			vs.judge(epoch, time.Second)
			if v.left != c.left {
				t.Errorf("%g of %g calls are longer, told in way %d: left out %v, want %v", c.longer, c.calls, i, v.left, c.left)
			}
			if d := v.tale[i].calls; math.Abs(d-c.calls*math.Exp(-.1)) > 1e-9 {
				t.Errorf("%g calls after a second, want %g", d, c.calls*math.Exp(-.1))
			}
		}
	}
}

// Clients that come and go leave nothing behind, and where there are more than can
// be told apart, the others decide.
func TestVoicesAreForgotten(t *testing.T) {
	f := newCrowd()
	for i := range 20 {
		f.run(1, f.of(20, 5, func() *report.Report { return f.client(fmt.Sprintf("once-%d", i), 5, f.honest) }))
	}
	f.run(12, f.of(20, 5))
	if got := len(f.svc.methods[testMethod].voices); got != 20 {
		t.Errorf("%d voices, want those of the 20 clients that are there", got)
	}
	if f.svc.voices != 20 {
		t.Errorf("%d counted, want 20", f.svc.voices)
	}
	f.svc.voices = maxVoices
	before := f.svc.methods[testMethod].latency.Total().Count()
	f.svc.Add(f.now, f.client("one-more", 5, f.honest))
	if got := f.svc.methods[testMethod].latency.Total().Count(); got != before {
		t.Errorf("%d latencies, want %d: there is no place for another client", got, before)
	}
}

// Bounds depend on nothing but the set of clients, scale with it, leave most of them
// as they are and the others no more than their part.
func TestWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Float64Range(.1, 1e6), 1, 100).Draw(t, "rates")
		few := len(rates) / liarsOneIn
		shuffled := append([]float64(nil), rates...)
		rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		most := mostOf(append([]float64(nil), rates...))
		if again := mostOf(shuffled); again != most {
			t.Fatalf("%g, shuffled %g", most, again)
		}
		if few == 0 {
			if !math.IsInf(most, 1) {
				t.Fatalf("%d clients: at most %g, want no bound", len(rates), most)
			}
			return
		}
		for i := range shuffled { // sorted by now
			shuffled[i] *= 10
		}
		if scaled := mostOf(shuffled); math.Abs(scaled/(10*most)-1) > 1e-9 {
			t.Fatalf("%g, of ten times the rates %g", most, scaled)
		}
		var top, others float64
		for i, r := range shuffled {
			if i < len(shuffled)-few {
				others += r / 10
			} else {
				top += min(r/10, most)
			}
		}
		if top > mostOfOthers*others*(1+1e-9) {
			t.Fatalf("the %d that call most count for %g beside %g", few, top, others)
		}
		least, most := alike(append([]float64(nil), rates...))
		out := 0
		for _, r := range rates {
			if r < least || r > most {
				out++
			}
		}
		if out > 2*few {
			t.Fatalf("%d of %d are left out, want at most %d", out, len(rates), 2*few)
		}
	})
}
