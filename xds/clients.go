package xds

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// StreamKind is the protocol variant of a stream.
type StreamKind uint8

// The variants of the protocol.
const (
	SotW  StreamKind = iota // state of the world
	Delta                   // incremental
)

// String returns "sotw" or "delta".
func (k StreamKind) String() string {
	if k == Delta {
		return "delta"
	}
	return "sotw"
}

// ClientState is what one stream asked for, was sent and answered.
type ClientState struct {
	Node      string // node id of the first request; empty before it
	Peer      string // network address
	Kind      StreamKind
	Since     time.Time // when the stream opened
	Resources []ResourceState
}

// ResourceState is one subscribed name of one stream. For the wildcard, "*",
// versions are revisions of the type, which count its changes in this process.
type ResourceState struct {
	Type, Name string
	Sent       string    // version sent last; empty: none, or told to be absent
	Acked      string    // version the client accepted last; empty: none
	Current    bool      // Acked is what the cache holds now
	Nack       string    // why the response that carried the resource was rejected; empty: it was not
	Time       time.Time // of the last of these events; zero: none yet
}

// Clients returns the state of every open stream, by node, peer and time of
// opening, with its resources by type and name.
func (s *Server) Clients() []ClientState {
	streams := s.open()
	states := make([]ClientState, len(streams))
	for i, st := range streams {
		states[i] = st.state()
		slices.SortFunc(states[i].Resources, func(a, b ResourceState) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(states, func(a, b ClientState) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Peer, b.Peer), a.Since.Compare(b.Since))
	})
	return states
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.streams))
}

// state is what Clients tells of a watch.
func (w *watch) state(c *Cache) []ResourceState {
	var states []ResourceState
	for name, e := range w.names {
		states = append(states, ResourceState{
			Type: w.typeURL, Name: name,
			Sent: e.sent, Acked: e.acked, Nack: e.nack, Time: e.at,
			Current: e.acked == item{content: c.get(w.typeURL, name)}.version(),
		})
	}
	if a := w.all; a != nil {
		rev, _ := c.revision(w.typeURL)
		states = append(states, ResourceState{
			Type: w.typeURL, Name: wildcard,
			Sent: revision(a.sent), Acked: revision(a.acked), Nack: a.nack, Time: a.at,
			Current: a.acked == rev,
		})
	}
	return states
}

func revision(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// Stats are counts since NewServer, but for those that say now.
type Stats struct {
	OpenSotW, OpenDelta uint64 // streams open now
	Opened              uint64 // streams
	Refused             uint64 // streams ended for a request out of bounds
	Requests            uint64
	Responses           uint64
	Acks, Nacks         uint64
	Publishes           uint64        // changes of content by Set and Delete, all servers of the cache together
	Spread              Spread        // from a publish to the answer of its last client
	Unanswered          time.Duration // how long the oldest response has no answer now; 0: all have one
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	stats := Stats{
		Opened:    s.stats.opened.Load(),
		Refused:   s.stats.refused.Load(),
		Requests:  s.stats.requests.Load(),
		Responses: s.stats.responses.Load(),
		Acks:      s.stats.acks.Load(),
		Nacks:     s.stats.nacks.Load(),
		Publishes: s.cache.published(),
		Spread:    s.stats.spreads.load(),
	}
	now := time.Now()
	for _, st := range s.open() {
		if st.kind == SotW {
			stats.OpenSotW++
		} else {
			stats.OpenDelta++
		}
		if at := st.unanswered(); !at.IsZero() {
			stats.Unanswered = max(stats.Unanswered, now.Sub(at))
		}
	}
	return stats
}
