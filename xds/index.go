package xds

import "sync"

// index knows which streams watch a resource, so that a change costs what its
// watchers cost and not what all streams cost.
type index struct {
	mu      sync.Mutex
	streams map[resourceID]map[*stream]struct{}
}

func newIndex() *index {
	return &index{streams: map[resourceID]map[*stream]struct{}{}}
}

func (x *index) update(s *stream, typeURL string, added, removed []string) {
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
// after the index is unlocked: a stream updates the index under its own lock.
func (x *index) appendTo(dst []*stream, id resourceID) []*stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.streams[id] {
		dst = append(dst, s)
	}
	return dst
}
