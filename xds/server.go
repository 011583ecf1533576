package xds

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

// Options configure a Server. The zero value is ready.
type Options struct {
	// Logger gets a warning for each rejected response and each refused stream. Nil: none.
	Logger *slog.Logger
}

// Server is the aggregated discovery service over one Cache.
type Server struct{}

// NewServer starts to serve cache until ctx ends; then every stream ends with
// the status Unavailable, which clients retry.
func NewServer(ctx context.Context, cache *Cache, opts Options) *Server { return &Server{} }

// Register adds the service to a gRPC server, before that one serves.
func (s *Server) Register(r grpc.ServiceRegistrar) {}

// Wait returns when the context of NewServer has ended and all streams with it.
func (s *Server) Wait() {}

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

// Clients returns the state of every open stream, by node, peer and time of opening.
func (s *Server) Clients() []ClientState { return nil }

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
func (s *Server) Stats() Stats { return Stats{} }
