package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// Options configure a Server. The zero value is ready.
type Options struct {
	// Logger gets a warning for each rejected response and each refused stream. Nil: none.
	Logger *slog.Logger
}

// Server is the aggregated discovery service over one Cache. It is safe for
// concurrent use.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	ctx    context.Context
	cache  *Cache
	logger *slog.Logger
	prefix string // of nonces, different for every server
	index  *index
	stats  counters
	tasks  sync.WaitGroup // the fan-out and the streams

	mu      sync.Mutex
	stopped bool
	streams map[*stream]struct{}
}

type counters struct {
	opened, refused, requests, responses, acks, nacks atomic.Uint64
}

// NewServer starts to serve cache until ctx ends; then every stream ends with
// the status Unavailable, which clients retry. A stream whose client does not
// read ends with its transport: grpc.Server.Stop ends those that are left.
func NewServer(ctx context.Context, cache *Cache, opts Options) *Server {
	s := &Server{
		ctx:     ctx,
		cache:   cache,
		logger:  opts.Logger,
		prefix:  rand.Text()[:10] + "-",
		index:   newIndex(),
		streams: map[*stream]struct{}{},
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	f := cache.attach()
	s.tasks.Go(func() { s.fanOut(f) })
	return s
}

// Register adds the service to a gRPC server, before that one serves.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// Wait returns when the context of NewServer has ended and all streams with it.
func (s *Server) Wait() { s.tasks.Wait() }

// fanOut marks the streams that watch what changed. It waits for no stream.
func (s *Server) fanOut(f *feed) {
	defer func() {
		s.cache.detach(f)
		s.mu.Lock()
		s.stopped = true // from here on nothing joins tasks
		s.mu.Unlock()
	}()
	var watching []*stream
	for {
		select {
		case <-f.wake:
		case <-s.ctx.Done():
			return
		}
		for id := range s.cache.take(f) {
			watching = s.index.appendTo(watching[:0], id)
			for _, st := range watching {
				st.mark(id)
			}
		}
		clear(watching)
	}
}

// serve runs one stream from its first message to its last.
func (s *Server) serve(ctx context.Context, kind StreamKind, recv func() (*request, error), send func(*reply) error) error {
	st := &stream{
		server: s,
		kind:   kind,
		peer:   address(ctx),
		since:  time.Now(),
		wake:   make(chan struct{}, 1),
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errStopped
	}
	s.tasks.Add(1)
	st.prefix = s.prefix + strconv.FormatUint(s.stats.opened.Add(1), 10) + "-"
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		st.close()
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
		s.tasks.Done()
	}()
	return st.serve(ctx, recv, send)
}

// refused counts and logs a stream that a request out of bounds ends.
func (s *Server) refused(st *stream, err error) {
	s.stats.refused.Add(1)
	s.logger.Warn("xds stream refused", "peer", st.peer, "kind", st.kind.String(), "error", err)
}

// answered counts and logs what r says about a response.
func (s *Server) answered(st *stream, r *request, v verdict) {
	switch v {
	case accepted:
		s.stats.acks.Add(1)
	case rejected:
		s.stats.nacks.Add(1)
		s.logger.Warn("xds response rejected", "peer", st.peer, "kind", st.kind.String(), "type", r.typeURL, "reason", r.reason)
	}
}

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

// ResourceState is one subscribed name of one stream.
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
	s.mu.Lock()
	streams := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
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

// Stats are counts since NewServer, but for the two that say open.
type Stats struct {
	OpenSotW, OpenDelta uint64 // streams open now
	Opened              uint64 // streams
	Refused             uint64 // streams ended for a request out of bounds
	Requests            uint64
	Responses           uint64
	Acks, Nacks         uint64
	Publishes           uint64 // changes of content by Set and Delete, all servers of the cache together
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
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.kind == SotW {
			stats.OpenSotW++
		} else {
			stats.OpenDelta++
		}
	}
	return stats
}
