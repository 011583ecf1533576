package control

import (
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

const (
	// One client in so many may be broken or lie. Where there are fewer, all count
	// as they are: one alone is right by definition.
	liarsOneIn = 20

	// The twentieth of the clients that calls most counts for at most this much of
	// what all the others call. A client that makes up its counts is then worth five:
	// few enough for its chance not to be taken for what happens to a fleet.
	mostOfOthers = 0.25

	// A client may add at once what it may in so long.
	creditTime = 3 * time.Second

	// A client's latencies are left out when the share of its calls that outlive the
	// delay is more than so many times the largest that is not among the twentieth of
	// the largest. Taken over 10 s of 5 calls a second, shares of clients that are
	// alike spread so far once in a million.
	unlikeRatio = 2
	// Calls that did not outlive the delay, added to each client's, so that the first
	// few of a new one decide nothing.
	unlikeWeight = 100

	// Clients whose latencies are told apart, over all methods. Those of others are
	// not taken in.
	maxVoices = 100_000
)

// decayed is a sum in which what is Window old counts for 1/e, dt later.
func decayed(x float64, dt time.Duration) float64 { return x * decay(dt, Window) }

// decay is what remains after dt of a sum in which what is so old counts for 1/e.
func decay(dt, old time.Duration) float64 { return math.Exp(-dt.Seconds() / old.Seconds()) }

// clientState is one client, and what it may add.
type clientState struct {
	lastSeen   time.Time
	measured   time.Time         // to which the latencies of its last report count
	generation policy.Generation // of its last report
	tracked    bool

	calls, time float64 // decayed; of these, seconds since it is known
	credit      float64 // calls that it may report now
	phase       float64 // of the next report that is scaled
}

// weigh returns r, or what it counts for where its client calls more than it may. most
// is the calls a second that a client may add.
func (c *clientState) weigh(now time.Time, r *report.Report, most float64) *report.Report {
	var calls float64
	for _, m := range r.Methods {
		calls += float64(max(m.Calls, ended(m)))
	}
	c.calls += calls
	if math.IsInf(most, 1) {
		return r
	}
	since := max(0, now.Sub(c.lastSeen)) // long, for a new client
	c.credit = min(c.credit+most*since.Seconds(), most*creditTime.Seconds())
	if calls <= c.credit {
		c.credit -= calls
		return r
	}
	f := c.credit / calls
	c.credit = 0
	c.phase = math.Mod(c.phase+math.Phi, 1)
	return r.Scaled(f, c.phase)
}

// ended is how many primaries of a method ended.
func ended(m *report.Method) uint64 {
	var n uint64
	for _, r := range m.Replicas {
		n += r.Primary.Count()
	}
	return n
}

// mostOf returns how many calls a second a client may add, given what each adds.
func mostOf(rates []float64) float64 {
	few := len(rates) / liarsOneIn
	if few == 0 {
		return math.Inf(1)
	}
	slices.Sort(rates)
	var others float64
	for _, r := range rates[:len(rates)-few] {
		others += r
	}
	return mostOfOthers * others / float64(few)
}

// tale is how many of a client's calls of a method outlived the delay. Decayed.
type tale struct{ calls, longer float64 }

// voice is what one client says of one method: by its latencies, and by its counts.
type voice struct {
	lastSeen time.Time
	tale     [2]tale
	left     bool // out: it is unlike the others
}

// voices are those of a method's clients.
type voices map[*clientState]*voice

// hear adds what a client reports of a method whose delay is d; forced says that its
// counts are of that delay too. It reports whether the client's latencies count.
func (vs voices) hear(now time.Time, c *clientState, from *report.Method, d time.Duration, forced, room bool) bool {
	v := vs[c]
	if v == nil {
		if !room || !c.tracked {
			return false
		}
		v = &voice{}
		vs[c] = v
	}
	v.lastSeen = now
	if d > 0 {
		for _, r := range from.Replicas {
			known, longer := counts(&r.Primary, d)
			v.tale[0].calls += known
			v.tale[0].longer += longer
		}
	}
	if forced {
		v.tale[1].calls += float64(from.Safe)
		v.tale[1].longer += float64(min(from.Eligible, from.Safe))
	}
	return !v.left
}

// judge decides whose latencies count, and lets dt pass.
func (vs voices) judge(now time.Time, dt time.Duration) {
	for c, v := range vs {
		if now.Sub(v.lastSeen) > Window {
			delete(vs, c)
		}
		v.left = false
	}
	shares := make([]float64, 0, len(vs))
	for i := range (voice{}).tale {
		var all tale
		for _, v := range vs {
			all.calls += v.tale[i].calls
			all.longer += v.tale[i].longer
		}
		typical := all.share(0)
		shares = shares[:0]
		for _, v := range vs {
			shares = append(shares, v.tale[i].share(typical))
		}
		least, most := alike(shares)
		for _, v := range vs {
			t := &v.tale[i]
			share := t.share(typical)
			v.left = v.left || share < least || share > most
			t.calls, t.longer = decayed(t.calls, dt), decayed(t.longer, dt)
		}
	}
}

// share is that of the calls that outlived the delay, as if there were unlikeWeight
// more of which the typical share did.
func (t *tale) share(typical float64) float64 {
	if t.calls == 0 {
		return typical
	}
	return (t.longer + unlikeWeight*typical) / (t.calls + unlikeWeight)
}

// alike returns the bounds of the shares that are like others.
func alike(shares []float64) (least, most float64) {
	few := len(shares) / liarsOneIn
	if few == 0 {
		return 0, math.Inf(1)
	}
	slices.Sort(shares)
	return shares[few] / unlikeRatio, unlikeRatio * shares[len(shares)-1-few]
}
