package hedge

// Waiter is one call's place in the queue of a Budget. The zero value is ready,
// and may be used again once its call has left; it belongs to one call at a time
// and to one Budget.
type Waiter struct {
	// C delivers the token: who receives from it owns one. It is nil until the
	// waiter first waits, so read it after Take.
	C chan struct{}

	// Budget.mu guards the rest.
	queued     bool
	level      int // how often it was promoted, and where it started
	prev, next *Waiter
}

// collect takes a token that was granted and not yet received.
func (w *Waiter) collect() bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

// queue is first in, first out, and lets anybody leave.
type queue struct{ head, tail *Waiter }

func (q *queue) push(w *Waiter, level int) {
	if w.C == nil {
		w.C = make(chan struct{}, 1)
	}
	w.queued, w.level, w.prev, w.next = true, level, q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

func (q *queue) remove(w *Waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
}
