package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/client"
)

const method = "/bench.Store/Get"

var roundRobin = grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)

// clientHTTP is a service behind one address.
var clientHTTP = client.HTTPOptions{}

// servers are the replicas of one service on loopback, over gRPC and over HTTP.
type servers struct {
	handle  func(ctx context.Context, hedge bool) error
	seen    atomic.Int64
	grpc    []string // addresses
	http    []string
	closers []func()
}

func startServers(n int, handle func(context.Context, bool) error) *servers {
	s := &servers{handle: handle}
	for range n {
		listener := listen()
		server := grpc.NewServer()
		server.RegisterService(s.service(), nil)
		go func() { _ = server.Serve(listener) }() // ends with Stop
		s.grpc = append(s.grpc, listener.Addr().String())

		other := listen()
		web := &http.Server{Handler: http.HandlerFunc(s.serveHTTP)}
		go func() { _ = web.Serve(other) }() // ends with Close
		s.http = append(s.http, other.Addr().String())
		s.closers = append(s.closers, server.Stop, func() { _ = web.Close() })
	}
	return s
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	return listener
}

func (s *servers) stop() {
	for _, f := range s.closers {
		f()
	}
}

func (s *servers) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "bench.Store",
		Methods: []grpc.MethodDesc{{
			MethodName: "Get",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				req := &wrapperspb.StringValue{}
				if err := decode(req); err != nil {
					return nil, err
				}
				s.seen.Add(1)
				return req, s.handle(ctx, false)
			},
		}},
	}
}

func (s *servers) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.seen.Add(1)
	if err := s.handle(r.Context(), false); err != nil {
		return
	}
	_, _ = w.Write([]byte("data"))
}

func (s *servers) dialGRPC(options ...grpc.DialOption) *grpc.ClientConn {
	r := manual.NewBuilderWithScheme("bench")
	var state resolver.State
	for _, address := range s.grpc {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address}}})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("bench:///store",
		append(options, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fail(err)
	}
	return conn
}

func invoke(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, method, wrapperspb.String("key"), &wrapperspb.StringValue{}, grpc.WaitForReady(true))
}

// spread goes round the replicas, attempt by attempt, as a balancer would.
type spread struct {
	base      http.RoundTripper
	addresses []string
	turn      atomic.Uint64
}

func (s *spread) RoundTrip(r *http.Request) (*http.Response, error) {
	to := *r.URL
	to.Host = s.addresses[s.turn.Add(1)%uint64(len(s.addresses))]
	out := r.WithContext(r.Context())
	out.URL = &to
	return s.base.RoundTrip(out)
}

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1000}
}
