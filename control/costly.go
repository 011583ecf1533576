package control

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/report"
)

const (
	// Hedges are costly when cancelled attempts keep servers for this much longer
	// than callers waited for them, and until it is the other. Of 30 kinds of queues
	// that finish what was cancelled, .58 is the least; of as many that drop it
	// unless they have begun, .44 is the most, but for a service without variance.
	costlyFrom = 0.5
	costlyTo   = 0.25

	// It is judged by the last costlyTime or so, and not by fewer cancelled attempts
	// than costlyLeast.
	costlyTime  = 5 * time.Minute
	costlyLeast = 30

	// Of costly hedges this share of the target is spent, and a client's burst is
	// that of calls which are crowded no more than costlyCrowding.
	costlyShare    = 0.5
	costlyCrowding = 1.5
)

// costly notices that servers work on what their callers cancelled, while calls
// queue: then a hedge takes a whole call's work from those that wait behind it,
// most of all when many are sent together. Clients know how long they waited for
// what they cancelled, servers how long they were busy with it; were cancelling of
// any use, both would be the same. The zero costly has seen nothing.
type costly struct {
	on     bool
	looked time.Time

	served, waited cancelled // of the last costlyTime
}

// cancelled is so many attempts and their times in ns. Whole numbers add up to the
// same in any order.
type cancelled struct{ n, ns float64 }

func (c *cancelled) mean() float64 { return c.ns / c.n }

func (c *cancelled) fade(keep float64) { c.n, c.ns = keep*c.n, keep*c.ns }

// addServed takes in what a server saw.
func (c *costly) addServed(s report.Served) {
	c.served.n += float64(s.Cancelled)
	c.served.ns += float64(s.Wasted)
}

// addWaited takes in what a client cancelled.
func (c *costly) addWaited(h *estimator.Histogram) {
	for i, n := range h.Buckets() {
		lower, upper := estimator.Bounds(i)
		c.waited.ns += float64(n) * float64(lower+(upper-lower)/2)
	}
	c.waited.n += float64(h.Count())
}

// decide returns whether hedges are costly.
func (c *costly) decide(now time.Time, crowding float64) (bool, string) {
	if !c.looked.IsZero() && now.After(c.looked) {
		keep := decay(now.Sub(c.looked), costlyTime)
		c.served.fade(keep)
		c.waited.fade(keep)
	}
	if now.After(c.looked) {
		c.looked = now
	}
	if least := min(c.served.n, c.waited.n); least < costlyLeast {
		c.on = c.on && crowding > 1 && least >= costlyLeast/2
		return c.on, fmt.Sprintf("servers told of %s cancelled attempts, clients of %s",
			commas(uint64(c.served.n)), commas(uint64(c.waited.n)))
	}
	bound := costlyFrom
	if c.on {
		bound = costlyTo
	}
	longer := c.served.mean()/c.waited.mean() - 1
	c.on = crowding > 1 && longer >= bound
	text := fmt.Sprintf("cancelled attempts kept servers for %s where callers had waited for %s",
		millis(time.Duration(c.served.mean())), millis(time.Duration(c.waited.mean())))
	if c.on {
		text += ", and calls queue: a hedge costs a whole call, so " + percent(costlyShare) + " of the target is spent"
	}
	return c.on, text
}
