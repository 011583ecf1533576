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

// run sends what changes, until the server's context ends. It waits for no stream.
func (x *shard) run(revs map[string]uint64) {
	var watching, due []*stream
	for {
		select {
		case <-x.feed.wake:
		case <-x.server.ctx.Done():
			return
		}
		// All is marked before anything is sent: a stream gets what was published
		// together in one response.
		x.server.cache.news(revs, func(typeURL string, list []change) {
			for _, ch := range list {
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
			}
		})
		for _, st := range due {
			st.push()
		}
		clear(watching)
		clear(due)
		due = due[:0]
	}
}
