package sim

import "time"

// kind says what an event is about.
type kind uint8

const (
	evArrival   kind = iota // the next request of the open loop
	evDue                   // an attempt of call ref is due, or waits for promotion
	evReach                 // attempt ref reaches its replica
	evServed                // the replica has served attempt ref
	evBack                  // the answer to attempt ref reaches the client
	evCancel                // the cancellation of attempt ref reaches the replica
	evChange                // change number ref of the scenario
	evBurst                 // a burst of arrivals begins (ref 1) or ends (ref 0)
	evEpisode               // a stall episode begins or ends on replica ref, or on all (-1)
	evLife                  // the client in slot ref ends, and another takes its place
	evLaw                   // a timer of the policy; ref is its own
	evLawClient             // a timer of the policy for one client, by number
	evMessage               // message ref of the policy arrives
)

// event is what happens at one instant. Events of one instant happen in the
// order in which they were pushed.
type event struct {
	at   time.Duration
	seq  uint64
	ref  int32
	gen  uint32 // of what ref names; an event of an older one is stale
	kind kind
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// queue is a four-way heap of events: flatter than a binary one, so that a push,
// which mostly stays near the bottom, moves little. It allocates only to grow.
type queue struct {
	heap []event
	seq  uint64
}

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// pop returns the earliest event; the queue must not be empty.
func (q *queue) pop() event {
	h := q.heap
	first := h[0]
	n := len(h) - 1
	e := h[n]
	q.heap = h[:n]
	h = h[:n]
	i := 0
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for k := child + 1; k < min(child+4, n); k++ {
			if h[k].before(&h[least]) {
				least = k
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	if n > 0 {
		h[i] = e
	}
	return first
}
