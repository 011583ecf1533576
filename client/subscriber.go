package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

const (
	maxAnswers    = 64   // that may wait for a daemon which sends but does not read
	maxErrorBytes = 4096 // of a NACK's text

	// A name has at most 513 bytes, and stands twice in a request where its version
	// is held: so many take 2.4 MB.
	maxNamesAtOnce = 2000
)

// subscriber follows the policies of the services in use over delta xDS. What it
// asks for and holds outlives a stream: a new one tells the daemon the versions,
// which then sends only what is new.
type subscriber struct {
	node *corev3.Node

	mu       sync.Mutex
	names    []string          // of the services' resources; only grows
	versions map[string]string // of the resources accepted, by name
	added    chan struct{}     // closed and replaced when names grows
}

func newSubscriber(node report.Source) *subscriber {
	return &subscriber{
		node: &corev3.Node{
			Id:                   node.ID,
			Locality:             &corev3.Locality{Zone: node.Zone},
			UserAgentName:        "hedged",
			UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: node.Version},
		},
		versions: map[string]string{},
		added:    make(chan struct{}),
	}
}

// add asks for one more resource.
func (s *subscriber) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.names, name) {
		return
	}
	s.names = append(s.names, name)
	close(s.added)
	s.added = make(chan struct{})
}

// await waits until there is something to ask for; false: ctx ended first.
func (s *subscriber) await(ctx context.Context) bool {
	for {
		names, added := s.since(0)
		if len(names) > 0 {
			return true
		}
		select {
		case <-added:
		case <-ctx.Done():
			return false
		}
	}
}

// since returns the names from the nth on, and what is closed when more come.
func (s *subscriber) since(n int) (names []string, added <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names[n:]), s.added
}

// follow keeps one stream until it breaks or ctx ends; answered tells whether
// the daemon sent anything. Policies are applied as they arrive, whether or not
// the daemon reads the answers.
func (s *subscriber) follow(ctx context.Context, conn *grpc.ClientConn, wait bool, l Listener, log *slog.Logger) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(wait))
	if err != nil {
		return false, err
	}
	answers := make(chan *discoveryv3.DeltaDiscoveryRequest, maxAnswers)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				cancel(err)
				return
			}
			answered = true
			l.Heard()
			select {
			case answers <- s.accept(response, l, log):
			default:
				cancel(fmt.Errorf("the daemon read none of %d answers", maxAnswers))
				return
			}
		}
	})
	err = s.send(ctx, stream, answers)
	if !errors.Is(err, io.EOF) { // that is: Recv knows the error
		cancel(err)
	}
	receiving.Wait()
	return answered, context.Cause(ctx)
}

// send sends the subscription, what is added to it, and the answers.
func (s *subscriber) send(ctx context.Context, stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, answers <-chan *discoveryv3.DeltaDiscoveryRequest) error {
	names, added := s.since(0)
	asked := len(names)
	pending := s.requests(names)
	pending[0].Node = s.node
	for {
		var next *discoveryv3.DeltaDiscoveryRequest
		if len(pending) > 0 {
			next, pending = pending[0], pending[1:]
		} else {
			select {
			case next = <-answers:
			case <-added:
				names, added = s.since(asked)
				asked += len(names)
				pending = s.requests(names)
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := stream.Send(next); err != nil {
			return err
		}
	}
}

// requests ask for names and tell which versions of them are held, in messages of
// less than the 4 MiB that a server takes.
func (s *subscriber) requests(names []string) (all []*discoveryv3.DeltaDiscoveryRequest) {
	held := s.held()
	for part := range slices.Chunk(names, maxNamesAtOnce) {
		r := &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl:                 wire.ServicePolicyType,
			ResourceNamesSubscribe:  part,
			InitialResourceVersions: map[string]string{},
		}
		for _, name := range part {
			if version := held[name]; version != "" {
				r.InitialResourceVersions[name] = version
			}
		}
		all = append(all, r)
	}
	return all
}

func (s *subscriber) held() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.versions)
}

// accept applies a response and returns its answer: an ACK, or a NACK that
// names the resources that were refused and why. The good ones of a response
// are applied all the same.
func (s *subscriber) accept(r *discoveryv3.DeltaDiscoveryResponse, l Listener, log *slog.Logger) *discoveryv3.DeltaDiscoveryRequest {
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
	var refused []error
	for _, resource := range r.Resources {
		if err := apply(resource, l); err != nil {
			refused = append(refused, fmt.Errorf("%.*q: %w", 2*policy.MaxNameLen, resource.Name, err))
			continue
		}
		s.note(resource.Name, resource.Version)
	}
	for _, name := range r.RemovedResources {
		// No opinion, rather than off: the policy held lives on until its valid_for.
		s.note(name, "")
	}
	if err := errors.Join(refused...); err != nil {
		log.Error("a policy was rejected; the last good one stays", "error", err)
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: shown(err)}
	}
	return answer
}

// shown is an error's text as a message may carry it.
func shown(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
}

func apply(resource *discoveryv3.Resource, l Listener) error {
	var m hedgedv1.ServicePolicy
	if err := resource.Resource.UnmarshalTo(&m); err != nil {
		return err
	}
	if m.Name != resource.Name {
		return fmt.Errorf("name: %q, want the resource's", m.Name)
	}
	p, err := wire.PolicyFromProto(&m)
	if err != nil {
		return err
	}
	return l.Apply(p)
}

// note remembers the version held of a resource that was asked for.
func (s *subscriber) note(name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == "" {
		delete(s.versions, name)
	} else if slices.Contains(s.names, name) {
		s.versions[name] = version
	}
}
