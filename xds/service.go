package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// Register adds the aggregated discovery service to a gRPC server, before that
// one serves. The gRPC server has to be made with Codec.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(r, &aggregated{server: s})
}

// RegisterType adds a type's own service: service is its full name, and methods
// the name that stands behind Stream and Delta in its two methods. It speaks the
// same messages as the aggregated one, of one type only.
func (s *Server) RegisterType(r grpc.ServiceRegistrar, service, methods, typeURL string) {
	stream := func(kind StreamKind) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.handle(g, kind, typeURL) }
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		Streams: []grpc.StreamDesc{
			{StreamName: "Stream" + methods, Handler: stream(SotW), ServerStreams: true, ClientStreams: true},
			{StreamName: "Delta" + methods, Handler: stream(Delta), ServerStreams: true, ClientStreams: true},
		},
	}, nil)
}

// aggregated implements the aggregated discovery service.
type aggregated struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

// StreamAggregatedResources serves one state-of-the-world stream.
func (a *aggregated) StreamAggregatedResources(g discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.server.handle(g, SotW, "")
}

// DeltaAggregatedResources serves one incremental stream.
func (a *aggregated) DeltaAggregatedResources(g discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.server.handle(g, Delta, "")
}

func (s *Server) handle(g grpc.ServerStream, kind StreamKind, only string) error {
	recv := func() (*request, error) {
		m := new(discovery.DiscoveryRequest)
		if err := g.RecvMsg(m); err != nil {
			return nil, err
		}
		return fromSotW(m), nil
	}
	if kind == Delta {
		recv = func() (*request, error) {
			m := new(discovery.DeltaDiscoveryRequest)
			if err := g.RecvMsg(m); err != nil {
				return nil, err
			}
			return fromDelta(m), nil
		}
	}
	return s.serve(g.Context(), kind, only, recv, func(rep *reply) error { return g.SendMsg(rep.message(kind)) })
}
