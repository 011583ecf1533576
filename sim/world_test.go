package sim

import (
	"math"
	"testing"
	"time"

	"github.com/hedged-project/hedged/report"
)

// hedging hedges each call that is longer than d.
func hedging(d time.Duration) Policy {
	return Policy{Name: "always", new: newAlways(d, 1)}
}

// What a cancelled attempt still costs decides what hedges add to the load. At
// half load, with 5% hedges, others measured .512 of the workers busy when losers
// leave the queue, .524 when they are served in full, and .491 when work on them
// stops too.
func TestCancellationDecidesLoad(t *testing.T) {
	t.Parallel()
	for cancel, want := range map[string]float64{"queued": .512, "never": .524, "at-once": .491} {
		s := world(t, "latency lognormal 10ms 1\nreplicas 3 workers 1\nrouting random\ncancel %s\narrivals poisson 90.98\nwarmup 60s\nduration %ds",
			cancel, 60+sized(300_000)/91)
		r := play(t, s, under(t, "windowed"), 1)
		near(t, cancel+": busy", r.Busy, want, .012)
		near(t, cancel+": extra load", r.Extra(), .05, .1)
	}
}

// The way there and back is on top of the work, and a hedge has it too.
func TestNetwork(t *testing.T) {
	t.Parallel()
	s := world(t, "latency constant 10ms\nnetwork 3ms\narrivals poisson 100\nwarmup 1s\nduration 20s")
	if r := play(t, s, under(t, "none"), 1); r.P50 != 16*time.Millisecond || r.P999 != r.P50 {
		t.Errorf("p50 %v, p99.9 %v, want 16ms", r.P50, r.P999)
	}
	s = world(t, "latency constant 10ms\nstall call 10%% 1s\nnetwork 3ms jitter 2ms\narrivals poisson 100\nwarmup 1s\nduration 50s")
	r := play(t, s, hedging(25*time.Millisecond), 1)
	if r.P50 < 16*time.Millisecond || r.P50 > 20*time.Millisecond {
		t.Errorf("p50 %v, want 16 to 20ms", r.P50)
	}
	if got := float64(r.Over) / float64(r.Requests); !raceEnabled && (got > .02 || got < .003) {
		t.Errorf("%.4f of the calls stalled twice, want about .01", got)
	}
}

// Nothing that is under way or begins in a freeze ends in it.
func TestFreeze(t *testing.T) {
	t.Parallel()
	s := world(t, "latency constant 10ms\nbound 20ms\narrivals steady 1000\nwarmup 1s\nduration 20s\nat 10s freeze 3s")
	r := play(t, s, under(t, "none"), 1)
	near(t, "calls that a freeze of 3 s delays", float64(r.Over), 3010, .01)
	if r.P999 > 3010*time.Millisecond || r.P999 < 2900*time.Millisecond {
		t.Errorf("p99.9 %v, want about 3s", r.P999)
	}
}

// In episodes of the whole service a share of the calls is slow on every copy, in
// those of a replica another replica is not.
func TestEpisodes(t *testing.T) {
	t.Parallel()
	if raceEnabled { // a world is one goroutine: there is nothing to find
		return
	}
	for _, c := range []struct {
		stall         string
		plain, hedged float64 // share of slow calls
	}{
		{"all 50% 300ms every 9s for 1s", .05, .05},
		{"replica 50% 300ms every 9s for 1s", .05, .0025},
		{"shared 5% 300ms", .05, .05},
		{"call 5% 300ms", .05, .0025},
	} {
		s := world(t, "latency constant 10ms\nbound 200ms\nreplicas 10\nstall %s\narrivals steady 100\nwarmup 1s\nduration 2000s", c.stall)
		for _, p := range []struct {
			p    Policy
			want float64
		}{{under(t, "none"), c.plain}, {hedging(20 * time.Millisecond), c.hedged}} {
			r := play(t, s, p.p, 1)
			got := float64(r.Over) / float64(r.Requests)
			if math.Abs(got-p.want) > .2*p.want+.0005 { // some 200 episodes
				t.Errorf("stall %s, %s: %.4f of the calls are slow, want about %.4f", c.stall, p.p.Name, got, p.want)
			}
		}
	}
}

// Copies that share their luck entirely cannot help each other.
func TestCorrelation(t *testing.T) {
	t.Parallel()
	if raceEnabled { // a world is one goroutine: there is nothing to find
		return
	}
	slow := func(rho float64) float64 {
		s := world(t, "latency lognormal 10ms 1\ncorrelation %g\nbound 100ms\narrivals steady 1000\nwarmup 0s\nduration 100s", rho)
		r := play(t, s, hedging(20*time.Millisecond), 1)
		return float64(r.Over) / float64(r.Requests)
	}
	none, half, all := slow(0), slow(.5), slow(1)
	// P(X > 100 ms) = 1 - Phi(ln 10), and of the copy the time from 20 ms on.
	x := 1 - phi(math.Log(10))
	near(t, "copies alike", all, x, .1)
	near(t, "independent copies", none, x*(1-phi(math.Log(8))), .6)
	if !(none < half && half < all) {
		t.Errorf("slow shares %.5f, %.5f, %.5f at correlations 0, .5, 1: want them to grow", none, half, all)
	}
}

// A method's calls take their factor, and a way between zones is longer both ways.
func TestMethodsAndZones(t *testing.T) {
	t.Parallel()
	if raceEnabled { // a world is one goroutine: there is nothing to find
		return
	}
	for text, want := range map[string]float64{ // shares of calls over 15 ms
		"method 20% 2\nmethod 30% .5\nnetwork 2ms": .2,
		"zones 50% far 5ms":                        .5,
		"zones 25% far 5ms":                        .5, // half of the replicas are in each
	} {
		s := world(t, "latency constant 10ms\nbound 15ms\nreplicas 10\nrouting random\nclients 20\narrivals steady 1000\nwarmup 1s\nduration 60s\n%s", text)
		r := play(t, s, under(t, "none"), 1)
		near(t, text, float64(r.Over)/float64(r.Requests), want, .03)
	}
}

// What a liar's report says, and who lies.
func TestLiars(t *testing.T) {
	t.Parallel()
	s := world(t, "latency constant 10ms\nliars 5%% random")
	w := newWorld(s, 1, newNone)
	for l, want := range map[lie][2]time.Duration{
		lieShort:  {100 * time.Microsecond, 100 * time.Microsecond},
		lieLong:   {time.Second, time.Second},
		lieRandom: {100 * time.Microsecond, time.Second},
		lieCounts: {10 * time.Millisecond, 10 * time.Millisecond},
	} {
		for range 100 {
			if got := l.latency(w, 10*time.Millisecond); got < want[0] || got > want[1] {
				t.Errorf("lie %d: %v, want %v", l, got, want)
			}
		}
	}
	liars := 0
	for slot := range int32(200) {
		if among(s.liars, slot) {
			liars++
		}
	}
	if liars != 10 || among(0, 0) || !among(1, 0) {
		t.Errorf("%d of 200 lie, want 10", liars)
	}
	m := report.Method{Calls: 3, Replicas: map[string]*report.Replica{"r": {Failed: 2}}}
	m.Replicas["r"].Primary.Completed.Record(time.Second)
	exaggerate(&m)
	if r := m.Replicas["r"]; m.Calls != 3000 || r.Failed != 2000 || r.Primary.Count() != 1000 {
		t.Errorf("%+v, want a thousand times as many", m)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := world(t, "latency constant 10ms\narrivals steady 1000\nwarmup 0s\nduration 30s\nfail 20%% after 2ms")
	r := play(t, s, under(t, "none"), 1)
	near(t, "failed calls", float64(r.Failed), 6000, .05)
	// The service fails: A6's throttle and the controller stop hedging.
	if r := play(t, s, under(t, "hedged"), 1); r.Extra() > .002 {
		t.Errorf("extra load %.4f while a fifth fails, want next to none", r.Extra())
	}
}

// Forty callers that wait 10 ms each make 4,000 calls a second.
func TestClosedLoop(t *testing.T) {
	t.Parallel()
	s := world(t, "latency constant 10ms\narrivals closed 40\nwarmup 1s\nduration 5s")
	r := play(t, s, under(t, "none"), 1)
	near(t, "calls", float64(r.Calls), 16_000, .01)
}

// Rates add up, whatever their shape.
func TestArrivals(t *testing.T) {
	t.Parallel()
	if raceEnabled { // a world is one goroutine: there is nothing to find
		return
	}
	for text, want := range map[string]float64{
		"arrivals poisson 1000":                              100_000,
		"arrivals steady 1000":                               100_000,
		"arrivals poisson 1000\ndaily 80% period 25s":        100_000,
		"arrivals poisson 500\nbursts 5500 every 10s for 1s": 95_000, // nine bursts: the first comes after 10 s
		"arrivals poisson 500\nat 50s arrivals poisson 1500": 100_000,
	} {
		s := world(t, "latency constant 10ms\nwarmup 0s\nduration 100s\n%s", text)
		near(t, text, float64(play(t, s, under(t, "none"), 1).Calls), want, .015)
	}
}

// A daemon that was never there leaves clients without hedging; one that goes
// away leaves them their policy until its valid_for, and their budget holds.
func TestDaemonAway(t *testing.T) {
	t.Parallel()
	if raceEnabled { // a world is one goroutine: there is nothing to find
		return
	}
	const text = "latency uniform 5ms 15ms\nstall call 1%% 1s\nclients 5\narrivals poisson 200\nwarmup 20s\n"
	p := under(t, "hedged")
	if r := play(t, world(t, text+"duration 60s\ndaemon down"), p, 1); r.Hedges != 0 {
		t.Errorf("%d hedges without a daemon, want none", r.Hedges)
	}
	r := play(t, world(t, text+"duration 200s\nat 20s daemon down"), p, 1)
	if r.Extra() < .03 || r.Extra() > .05 {
		t.Errorf("extra load %.4f with the daemon away, want it as before", r.Extra())
	}
	r = play(t, world(t, text+"duration 1500s\nat 20s daemon down"), p, 1)
	share := 600. / 1480 // valid_for is 10 minutes
	if got := r.Extra(); math.Abs(got-share*.044) > .005 {
		t.Errorf("extra load %.4f, want hedging to end after ten minutes: about %.4f", got, share*.044)
	}
	r = play(t, world(t, text+"duration 1500s\nat 20s daemon down\nat 1000s daemon up"), p, 1)
	if got, want := r.Extra(), (600+500)/1480.*.044; math.Abs(got-want) > .006 {
		t.Errorf("extra load %.4f, want hedging to return with the daemon: about %.4f", got, want)
	}
}

// Clients that come and go start with the tokens they were granted and no more.
func TestClientsComeAndGo(t *testing.T) {
	t.Parallel()
	s := world(t, "latency uniform 5ms 15ms\nstall call 1%% 1s\nclients 50 life 5s\narrivals poisson 500\nwarmup 20s\nduration 80s\nat 40s clients 10\nat 60s clients 100")
	r := play(t, s, under(t, "hedged"), 1)
	if r.Extra() < .01 || r.Extra() > .05 {
		t.Errorf("extra load %.4f, want some and at most the target", r.Extra())
	}
}
