package sim

import (
	"time"

	"github.com/hedged-project/hedged/report"
)

// attemptState is where an attempt is.
type attemptState uint8

const (
	unsent  attemptState = iota
	onWay                // to its replica
	queued               // there
	running              // there
	onReturn
	gone // ended, or cancelled and forgotten
)

// attempt is one copy of a call.
type attempt struct {
	state   attemptState
	fails   bool
	ended   bool // for the client: answered, failed or cancelled
	replica int32
	sent    time.Duration
	reached time.Duration // its replica
	took    time.Duration // once it has ended, other than by cancellation
	begun   time.Duration // service
	takes   time.Duration // of service
}

// attemptRef names an attempt: its call's number and its place there.
const attemptsBits = 3

func attemptRef(c *call, i int) int32 { return c.ref<<attemptsBits | int32(i) }

// waiting is an attempt in a replica's queue. It may be stale.
type waiting struct {
	ref int32
	gen uint32
}

// replica serves attempts with so many workers and a queue, first in, first out.
type replica struct {
	workers int // 0: no limit
	busy    int
	waits   int // of queue, those that are not stale
	queue   []waiting
	head    int
	work    time.Duration   // done, so far
	served  []report.Served // since its last report, by method
}

// quickest is the least time that a replica takes, so that time passes even where
// callers wait for answers that cost nothing.
const quickest = time.Microsecond

// load is what it has to do, for routing that sees queues.
func (r *replica) load() int { return r.busy + r.waits }

func (r *replica) enqueue(x waiting) {
	if r.head > 1024 && 2*r.head > len(r.queue) {
		r.queue = r.queue[:copy(r.queue, r.queue[r.head:])]
		r.head = 0
	}
	r.queue = append(r.queue, x)
	r.waits++
}

// reach takes in an attempt that has arrived.
func (w *World) reach(c *call, i int) {
	a := &c.attempts[i]
	if a.state != onWay {
		return
	}
	r := &w.replicas[a.replica]
	a.reached = w.now
	w.arrived(c, i)
	if r.workers > 0 && r.busy >= r.workers {
		a.state = queued
		r.enqueue(waiting{attemptRef(c, i), c.gen})
		return
	}
	w.serve(r, c, i)
}

func (w *World) serve(r *replica, c *call, i int) {
	a := &c.attempts[i]
	r.busy++
	a.state, a.begun = running, w.now
	a.takes, a.fails = w.serviceTime(c, i, a.replica)
	a.takes = max(a.takes, quickest)
	w.push(event{at: w.now + a.takes, kind: evServed, ref: attemptRef(c, i), gen: c.gen})
}

// served ends an attempt's work and sends its answer.
func (w *World) served(c *call, i int) {
	a := &c.attempts[i]
	if a.state != running {
		return
	}
	if at, frozen := w.thawed(a.begun); frozen {
		w.push(event{at: at, kind: evServed, ref: attemptRef(c, i), gen: c.gen})
		return
	}
	if a.ended { // its caller is gone
		w.wasted(c, i)
	}
	a.state = onReturn
	if way := w.way(c.client, a.replica); way > 0 {
		w.push(event{at: w.now + way, kind: evBack, ref: attemptRef(c, i), gen: c.gen})
		w.free(a)
		return
	}
	w.free(a)
	w.back(c, i)
}

// free gives an attempt's worker to the next in the queue.
func (w *World) free(a *attempt) {
	r := &w.replicas[a.replica]
	r.busy--
	r.work += w.now - a.begun
	for r.head < len(r.queue) {
		x := r.queue[r.head]
		r.head++
		c := w.calls[x.ref>>attemptsBits]
		i := int(x.ref & (1<<attemptsBits - 1))
		if c.gen != x.gen || c.attempts[i].state != queued {
			continue
		}
		r.waits--
		w.serve(r, c, i)
		return
	}
	r.queue, r.head = r.queue[:0], 0
}

// cancellation is what a replica does about a cancelled attempt.
type cancellation uint8

const (
	cancelAtOnce cancellation = iota // drop it from the queue, or stop work on it
	cancelQueued                     // drop it from the queue; work goes on
	cancelNever
)

// cancel tells the replica that nobody waits for an attempt any more.
func (w *World) cancel(c *call, i int) {
	if w.sc.cancellation == cancelNever {
		return
	}
	if way := w.way(c.client, c.attempts[i].replica); way > 0 {
		w.push(event{at: w.now + way, kind: evCancel, ref: attemptRef(c, i), gen: c.gen})
		return
	}
	w.drop(c, i)
}

// drop is a cancellation's arrival at the replica.
func (w *World) drop(c *call, i int) {
	a := &c.attempts[i]
	switch {
	case a.state == onWay:
	case a.state == queued:
		w.wasted(c, i)
		w.replicas[a.replica].waits--
	case a.state == running && w.sc.cancellation == cancelAtOnce:
		w.wasted(c, i)
		a.state = gone // before its worker looks at the queue
		w.free(a)
	default:
		return
	}
	a.state = gone
	w.left(c)
}
