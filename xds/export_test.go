package xds

import (
	"context"
	"io"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// ServeBytes runs a stream whose client sends the given messages as they are on
// the wire, those that gRPC could decode, and then closes.
func ServeBytes(s *Server, delta bool, wire ...[]byte) error {
	kind := SotW
	if delta {
		kind = Delta
	}
	recv := func() (*request, error) {
		for len(wire) > 0 {
			b := wire[0]
			wire = wire[1:]
			var sotw discovery.DiscoveryRequest
			var incremental discovery.DeltaDiscoveryRequest
			switch {
			case delta && proto.Unmarshal(b, &incremental) == nil:
				return fromDelta(&incremental), nil
			case !delta && proto.Unmarshal(b, &sotw) == nil:
				return fromSotW(&sotw), nil
			}
		}
		return nil, io.EOF
	}
	return s.serve(context.Background(), kind, "", recv, func(*reply) error { return nil })
}

// Indexed returns how many names are watched.
func Indexed(s *Server) int {
	n := 0
	for _, x := range s.shards {
		x.mu.Lock()
		n += len(x.streams)
		x.mu.Unlock()
	}
	return n
}

// Accounts returns how many peers hold anything.
func Accounts(s *Server) int {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	return len(s.accounts.byAddr)
}

// Idle opens streams that watch one name and never answer; the result ends them.
func Idle(s *Server, streams int, typeURL, name string) func() {
	return open(s, streams, typeURL, name, func(chan<- *request, *reply) {})
}

// Acknowledging opens streams that accept each response and then tell delivered.
func Acknowledging(s *Server, streams int, typeURL, name string, delivered chan<- struct{}) func() {
	return open(s, streams, typeURL, name, func(answers chan<- *request, rep *reply) {
		answers <- &request{typeURL: typeURL, nonce: rep.nonce, names: []string{name}}
		delivered <- struct{}{}
	})
}

// open opens state-of-the-world streams that watch one name and returns when all do.
func open(s *Server, streams int, typeURL, name string, answer func(chan<- *request, *reply)) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var running, watching sync.WaitGroup
	watching.Add(streams)
	for range streams {
		requests := make(chan *request, 2)
		requests <- &request{typeURL: typeURL, names: []string{name}}
		first := true
		recv := func() (*request, error) {
			if len(requests) == 0 && first {
				first = false
				watching.Done()
			}
			select {
			case r := <-requests:
				return r, nil
			case <-ctx.Done():
				return nil, io.EOF
			}
		}
		running.Go(func() {
			_ = s.serve(ctx, SotW, "", recv, func(rep *reply) error { answer(requests, rep); return nil })
		})
	}
	watching.Wait()
	return func() { cancel(); running.Wait() }
}
