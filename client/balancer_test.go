package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/policy"
)

func TestReplicaName(t *testing.T) {
	named := attributes.New(ReplicaAttribute, "db-1")
	tests := map[string]struct {
		endpoint resolver.Endpoint
		want     string
	}{
		"address":   {resolver.Endpoint{Addresses: []resolver.Address{{Addr: "10.0.0.1:80"}, {Addr: "[::1]:80"}}}, "10.0.0.1:80"},
		"endpoint":  {resolver.Endpoint{Attributes: named, Addresses: []resolver.Address{{Addr: "10.0.0.1:80"}}}, "db-1"},
		"attribute": {resolver.Endpoint{Addresses: []resolver.Address{{Addr: "10.0.0.1:80", Attributes: named}}}, "db-1"},
		"empty": {resolver.Endpoint{Attributes: attributes.New(ReplicaAttribute, ""),
			Addresses: []resolver.Address{{Addr: "10.0.0.1:80"}}}, "10.0.0.1:80"},
		"not a string": {resolver.Endpoint{Attributes: attributes.New(ReplicaAttribute, 1),
			Addresses: []resolver.Address{{Addr: "10.0.0.1:80"}}}, "10.0.0.1:80"},
		"nothing": {resolver.Endpoint{}, other},
	}
	for name, tt := range tests {
		if got := replicaName(tt.endpoint); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Over real connections: three stalled attempts go to three replicas, whatever
// the picker was when each was sent.
func TestRealAttemptsNeverMeetAReplicaTwice(t *testing.T) {
	var mu sync.Mutex
	var visits []string
	serve := func(ctx context.Context, replica string, _ bool) ([]byte, error) {
		mu.Lock()
		visits = append(visits, replica)
		n := len(visits)
		mu.Unlock()
		if n < 3 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []byte(replica), nil
	}
	// The delay is long enough for a loaded machine to pick a replica in it, and
	// for connect to send no hedge that would be seen after it.
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = 50 * ms }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.connect(t)
	for range 10 {
		mu.Lock()
		visits = nil
		mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := c.call(ctx)
		cancel()
		mu.Lock()
		if err != nil || len(visits) != 3 || visits[0] == visits[1] || visits[0] == visits[2] || visits[1] == visits[2] {
			t.Fatalf("got %v from attempts at %v, want three replicas", err, visits)
		}
		mu.Unlock()
	}
}

// Replicas come and go while the channel lives: picks follow, and the attempts
// outstanding at a replica that stays are not forgotten.
func TestReplicaSetChanges(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	serve := func(ctx context.Context, replica string, _ bool) ([]byte, error) {
		if replica == "a" {
			select {
			case arrived <- struct{}{}:
				<-release
			case <-ctx.Done():
			}
		}
		return []byte(replica), nil
	}
	c := newCluster(t, testService(t, nil), serve, "a", "b")
	c.connect(t)
	endpoint := func(name string) resolver.Endpoint {
		return resolver.Endpoint{Addresses: []resolver.Address{{Addr: name}}}
	}
	var held sync.WaitGroup
	c.resolver.UpdateState(resolver.State{Endpoints: []resolver.Endpoint{endpoint("a")}})
	for range 3 {
		held.Go(func() {
			if got, err := c.call(context.Background(), grpc.WaitForReady(true)); err != nil || string(got) != "a" {
				t.Errorf("got %q, %v, want an answer of a", got, err)
			}
		})
	}
	for range 3 {
		<-arrived
	}
	c.resolver.UpdateState(resolver.State{Endpoints: []resolver.Endpoint{endpoint("a"), endpoint("b")}})
	for { // until b is ready; a call that goes to a waits
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		got, err := c.call(ctx)
		cancel()
		if err == nil && string(got) == "b" {
			break
		}
		if err != nil && status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
	}
	for range 20 {
		got, err := c.call(context.Background())
		if err != nil || string(got) != "b" {
			t.Fatalf("got %q, %v, want b: a has calls outstanding", got, err)
		}
	}
	close(release)
	held.Wait()
}
