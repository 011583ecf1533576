package xds

import "sync"

// resourceID names a resource.
type resourceID struct{ typeURL, name string }

// shard serves a part of the streams: its goroutine sends them what changed. It
// knows which of them watch a resource, so that a change costs what its watchers
// cost and not what all streams cost.
type shard struct {
	server *Server
	feed   *feed

	mu      sync.Mutex
	streams map[resourceID]map[*stream]struct{} // by name, the wildcard among them
}

func newShard(s *Server, f *feed) *shard {
	return &shard{server: s, feed: f, streams: map[resourceID]map[*stream]struct{}{}}
}

// update notes which names a stream watches from now on, and which no more.
func (x *shard) update(s *stream, typeURL string, added, removed []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range added {
		id := resourceID{typeURL, name}
		if x.streams[id] == nil {
			x.streams[id] = map[*stream]struct{}{}
		}
		x.streams[id][s] = struct{}{}
	}
	for _, name := range removed {
		id := resourceID{typeURL, name}
		delete(x.streams[id], s)
		if len(x.streams[id]) == 0 {
			delete(x.streams, id)
		}
	}
}

// appendTo appends the streams that watch id to dst. The caller marks them
// after the shard is unlocked: a stream updates the shard under its own lock.
func (x *shard) appendTo(dst []*stream, id resourceID) []*stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.streams[id] {
		dst = append(dst, s)
	}
	return dst
}

// batch is how many streams are sent to before the shard looks for news again: as
// much work as it is to mark some thousand streams, so that neither of the two
// keeps the other waiting for long.
const batch = 256

// run sends what changes, until the server's context ends. It waits for no stream.
//
// All is marked before anything is sent, and again while much is still to be sent:
// a stream gets what was published together in one response, and what stops
// something overtakes what was published before it.
func (x *shard) run(revs map[string]uint64) {
	var due, watching []*stream
	var waiting <-chan struct{} // closed while there is something to send
	ready := make(chan struct{})
	close(ready)
	for {
		select {
		case <-x.feed.wake:
			x.server.cache.news(revs, func(typeURL string, list []change) {
				for _, ch := range list {
					watching, due = x.mark(typeURL, ch, watching, due)
				}
			})
			clear(watching)
			waiting = ready
		case <-waiting:
		case <-x.server.ctx.Done():
			return
		}
		n := min(batch, len(due))
		for _, st := range due[:n] {
			st.push()
		}
		clear(due[:n])
		if due = due[n:]; len(due) == 0 {
			due, waiting = nil, nil
		}
	}
}

// mark notes a change for the streams that watch it, and appends those to due to
// which something is to be sent now. watching is scratch.
func (x *shard) mark(typeURL string, ch change, watching, due []*stream) (_, _ []*stream) {
	watching = x.appendTo(watching[:0], resourceID{typeURL, ch.name})
	named := len(watching)
	watching = x.appendTo(watching, resourceID{typeURL, wildcard})
	if ch.content != nil && len(watching) > 0 { // before any of them can answer
		ch.content.spread.followed.Store(true)
		ch.content.spread.waiting.Add(int64(len(watching)))
	}
	for i, st := range watching {
		if st.mark(typeURL, ch, i >= named) {
			due = append(due, st)
		}
	}
	if ch.content != nil && ch.content.spread.answered() {
		x.server.spread(ch.content) // all of them were faster than this
	}
	return watching, due
}
