package bolt

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/hedged-project/hedged/storage"
)

// watches is the set of a store's watches. Its methods may be called
// concurrently.
type watches struct {
	mu  sync.Mutex
	set map[*watch]struct{}
	end sync.WaitGroup
}

// watch holds the newest event of each key that its receiver has not taken.
type watch struct {
	prefix  string
	wake    chan struct{} // size 1
	mu      sync.Mutex
	pending map[string]storage.Event
	order   []string // the keys of pending, the one that waits longest first
}

// add starts a watch with a goroutine of its own, which ends with ctx or done.
func (ws *watches) add(ctx context.Context, done <-chan struct{}, prefix string) <-chan storage.Event {
	w := &watch{prefix: prefix, wake: make(chan struct{}, 1), pending: map[string]storage.Event{}}
	ws.mu.Lock()
	if ws.set == nil {
		ws.set = map[*watch]struct{}{}
	}
	ws.set[w] = struct{}{}
	ws.mu.Unlock()
	events := make(chan storage.Event)
	ws.end.Go(func() {
		defer close(events)
		defer ws.remove(w)
		w.deliver(ctx, done, events)
	})
	return events
}

func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.set, w)
}

// publish never blocks on a receiver.
func (ws *watches) publish(ev storage.Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.set {
		if strings.HasPrefix(ev.Record.Key, w.prefix) {
			own := ev
			own.Record.Value = bytes.Clone(ev.Record.Value)
			w.add(own)
		}
	}
}

// wait returns when all watches have ended.
func (ws *watches) wait() { ws.end.Wait() }

func (w *watch) add(ev storage.Event) {
	w.mu.Lock()
	if _, waits := w.pending[ev.Record.Key]; !waits {
		w.order = append(w.order, ev.Record.Key)
	}
	w.pending[ev.Record.Key] = ev
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) deliver(ctx context.Context, done <-chan struct{}, events chan<- storage.Event) {
	for {
		var out chan<- storage.Event
		ev, ok := w.first()
		if ok {
			out = events
		}
		select {
		case out <- ev:
			w.taken(ev)
		case <-w.wake: // what was on offer may be stale
		case <-ctx.Done():
			return
		case <-done:
			return
		}
	}
}

func (w *watch) first() (storage.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return storage.Event{}, false
	}
	return w.pending[w.order[0]], true
}

// taken removes the first event, unless a newer one of its key has come.
func (w *watch) taken(ev storage.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending[ev.Record.Key].Record.Revision == ev.Record.Revision {
		delete(w.pending, ev.Record.Key)
		w.order = w.order[1:]
	}
}
