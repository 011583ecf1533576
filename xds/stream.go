package xds

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// stream is the loop around the watches of one client. The goroutine of the
// gRPC handler sends, a second one receives, and the server's fan-out marks
// what changed; all three take mu, and none holds it while it sends or waits.
// So a client that does not read keeps nobody else up, and its acknowledgements
// are read while a message to it is still under way.
type stream struct {
	server *Server
	kind   StreamKind
	peer   string
	since  time.Time
	prefix string // of the stream's nonces, different on every stream of every server

	wake chan struct{} // of size 1: a watch may be ready

	mu      sync.Mutex
	node    string
	watches []*watch
	nonces  uint64
	closed  bool
}

// serve runs a stream until the client, a request out of bounds or the server
// ends it.
func (s *stream) serve(ctx context.Context, recv func() (*request, error), send func(*reply) error) error {
	ended := make(chan error, 1)
	s.server.tasks.Go(func() { ended <- s.receive(recv) })
	for {
		if s.server.ctx.Err() != nil {
			return errStopped
		}
		rep, err := s.next()
		if err != nil {
			return status.Error(codes.ResourceExhausted, "xds: "+err.Error())
		}
		if rep != nil {
			if err := send(rep); err != nil {
				return err
			}
			s.server.stats.responses.Add(1)
			continue
		}
		select {
		case <-s.wake:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.server.ctx.Done():
			return errStopped
		}
	}
}

// errStopped ends the streams of a server that stops; clients retry on it.
var errStopped = status.Error(codes.Unavailable, "xds: the server is stopping")

// receive applies requests until there are no more; nil is the client's end.
func (s *stream) receive(recv func() (*request, error)) error {
	for {
		r, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.apply(r); err != nil {
			s.server.refused(s, err)
			return status.Error(codes.InvalidArgument, "xds: "+err.Error())
		}
	}
}

// apply takes one request into the state of its type.
func (s *stream) apply(r *request) error {
	s.server.stats.requests.Add(1)
	if err := r.check(); err != nil {
		return err
	}
	v, err := s.update(r)
	s.server.answered(s, r, v)
	return err
}

func (s *stream) update(r *request) (verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return silent, nil // received behind the end of the stream
	}
	// "Only the first request on a stream is guaranteed to carry the node
	// identifier." (xDS protocol, "Streaming gRPC subscriptions")
	if s.node == "" {
		s.node = r.node
	}
	w := s.watch(r.typeURL)
	first := w == nil
	if first {
		if len(s.watches) == maxTypes {
			return silent, errTooMany("type_url", r.typeURL, maxTypes, "types")
		}
		w = newWatch(r.typeURL, s.kind)
		s.watches = append(s.watches, w)
	}
	v := w.answer(r, time.Now())
	added, removed := w.subscribe(r)
	if first {
		w.hold(r.held)
	}
	// Before anything is read from the cache for the new names: what is
	// published from here on is marked.
	s.server.index.update(s, r.typeURL, added, removed)
	names := 0
	for _, w := range s.watches {
		names += len(w.names)
	}
	if names > maxNames {
		return v, errTooMany("resource names", strconv.Itoa(names), maxNames, "subscribed names")
	}
	if w.ready() {
		s.signal()
	}
	return v, nil
}

// watch returns the watch of a type, or nil.
func (s *stream) watch(typeURL string) *watch {
	for _, w := range s.watches {
		if w.typeURL == typeURL {
			return w
		}
	}
	return nil
}

// mark notes a change of content.
func (s *stream) mark(id resourceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watch(id.typeURL)
	if w == nil {
		return
	}
	w.mark(id.name)
	if w.ready() {
		s.signal()
	}
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // the sender has not come back from the last call yet
	}
}

// next returns the first reply that is due, or nil.
func (s *stream) next() (*reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		nonce := s.prefix + strconv.FormatUint(s.nonces+1, 10)
		rep, err := w.next(s.server.cache, nonce, time.Now())
		if err != nil {
			return nil, err
		}
		if rep != nil {
			s.nonces++
			return rep, nil
		}
	}
	return nil, nil
}

// close takes the stream out of the index.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		for name := range w.names {
			s.server.index.update(s, w.typeURL, nil, []string{name})
		}
	}
	s.watches, s.closed = nil, true
}

func (s *stream) state() ClientState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := ClientState{Node: s.node, Peer: s.peer, Kind: s.kind, Since: s.since}
	for _, w := range s.watches {
		for name, e := range w.names {
			state.Resources = append(state.Resources, ResourceState{
				Type: w.typeURL, Name: name,
				Sent: e.sent, Acked: e.acked, Nack: e.nack, Time: e.at,
				Current: e.acked == s.server.cache.version(w.typeURL, name),
			})
		}
	}
	return state
}

// StreamAggregatedResources serves one state-of-the-world stream.
func (s *Server) StreamAggregatedResources(g discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(g.Context(), SotW,
		func() (*request, error) {
			m, err := g.Recv()
			if err != nil {
				return nil, err
			}
			return fromSotW(m), nil
		},
		func(rep *reply) error {
			m := &discovery.DiscoveryResponse{TypeUrl: rep.typeURL, VersionInfo: rep.version, Nonce: rep.nonce}
			m.Resources = make([]*anypb.Any, len(rep.resources))
			for i, r := range rep.resources {
				m.Resources[i] = r.delta.Resource
			}
			return g.Send(m)
		})
}

// DeltaAggregatedResources serves one incremental stream.
func (s *Server) DeltaAggregatedResources(g discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(g.Context(), Delta,
		func() (*request, error) {
			m, err := g.Recv()
			if err != nil {
				return nil, err
			}
			return fromDelta(m), nil
		},
		func(rep *reply) error {
			m := &discovery.DeltaDiscoveryResponse{TypeUrl: rep.typeURL, Nonce: rep.nonce, RemovedResources: rep.removed}
			m.Resources = make([]*discovery.Resource, len(rep.resources))
			for i, r := range rep.resources {
				m.Resources[i] = r.delta
			}
			return g.Send(m)
		})
}

// address is the peer of a stream, for people.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}
