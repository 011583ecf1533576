package hedge

// Waiter is one call's place in the queue of a Budget. The zero value is ready,
// and may be used again once its call is done with it; it belongs to one call
// at a time and to one Budget.
type Waiter struct {
	// C delivers the token: who receives from it owns one, to be spent on a
	// hedge. It is nil until the waiter first waits, so read it after Take.
	C chan struct{}

	queue      *queue // nil while not waiting; Budget.mu guards these
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

// queue is first in, first out, and lets anybody leave. Budget.mu guards it.
type queue struct{ head, tail *Waiter }

func (q *queue) push(w *Waiter) {
	if w.C == nil {
		w.C = make(chan struct{}, 1)
	}
	w.queue, w.prev, w.next = q, q.tail, nil
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
	w.queue, w.prev, w.next = nil, nil, nil
}
