package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	_ "google.golang.org/grpc/xds"

	"github.com/hedged-project/hedged/xds"
)

// role is what this binary is when it is started by its own tests.
const role = "HEDGED_PEER_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "grpc-go":
		grpcGo()
	case "delta":
		rawDelta(os.Getenv("HEDGED_PEER_SERVER"))
	default:
		os.Exit(m.Run())
	}
}

func wanted(t *testing.T) bool {
	if os.Getenv("HEDGED_PEERS") == "1" {
		return true
	}
	t.Log("HEDGED_PEERS is not 1: the tests of package xds stand in")
	return false
}

// A stock gRPC client follows us: it accepts, moves, rejects once and keeps the
// last good content, accepts again, and comes back after a restart.
func TestStockClients(t *testing.T) {
	if !wanted(t) {
		return
	}
	for name, command := range map[string]func() *exec.Cmd{
		"grpc-go": func() *exec.Cmd { return self("grpc-go") },
		"grpc-js": func() *exec.Cmd { return exec.Command("node", "node/peer.js", target) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.route(w.backends[0])
			p := start(t, command(), "GRPC_XDS_BOOTSTRAP_CONFIG="+w.bootstrap(name))
			p.hear("backend " + w.backends[0])
			w.accepted()

			w.endpoints(w.backends[1], 0)
			p.hear("backend " + w.backends[1])
			w.accepted()

			w.endpoints(w.backends[0], 7)
			w.rejected()
			p.silent()

			w.endpoints(w.backends[0], 0)
			p.hear("backend " + w.backends[0])
			w.accepted()

			w.stop()
			w.start(w.addr)
			w.route(w.backends[1])
			p.hear("backend " + w.backends[1])
			w.accepted()
			if s := w.server.Stats(); s.Nacks != 0 {
				t.Errorf("after the restart: %+v", s)
			}
		})
	}
}

// A client of a few lines, over the incremental variant.
func TestRawDeltaClient(t *testing.T) {
	if !wanted(t) {
		return
	}
	w := newWorld(t)
	w.endpoints(w.backends[0], 0)
	p := start(t, self("delta"), "HEDGED_PEER_SERVER="+w.addr)
	p.hear("endpoints version 1")
	current := func(r map[string]xds.ResourceState) bool { return r[resource.EndpointType].Current }
	w.await("accepted", current)
	w.endpoints(w.backends[1], 7)
	w.rejected()
	w.endpoints(w.backends[1], 0)
	p.hear("endpoints version 3")
	w.await("accepted", current)
	w.cache.Delete(resource.EndpointType, "endpoints")
	p.hear("endpoints removed")

	w.endpoints(w.backends[1], 0)
	p.hear("endpoints version 4")
	w.await("accepted", current)
	w.stop()
	w.number = 3
	w.start(w.addr)
	w.endpoints(w.backends[1], 0) // as it was before the restart
	w.await("held", current)
	w.endpoints(w.backends[0], 0)
	p.hear("endpoints version 5") // and 4 did not come again
}

func self(as string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(c.Env, role+"="+as)
	return c
}

// process is a peer, which prints a line whenever something changes and ends when
// its standard input does.
type process struct {
	t     *testing.T
	lines chan string
}

func start(t *testing.T, c *exec.Cmd, env ...string) *process {
	t.Helper()
	return startPeer(t, c, func() {}, env...)
}

// startKilled is start for a peer that does not end by itself.
func startKilled(t *testing.T, c *exec.Cmd) *process {
	t.Helper()
	return startPeer(t, c, func() { _ = c.Process.Kill() })
}

func startPeer(t *testing.T, c *exec.Cmd, end func(), env ...string) *process {
	t.Helper()
	c.Env = append(append(os.Environ(), c.Env...), env...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatalf("peer is missing: %v", err)
	}
	p := &process{t: t, lines: make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		end()
		timer := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		defer timer.Stop()
		for range p.lines { // until it ends
		}
		if err := c.Wait(); err != nil && c.ProcessState.Exited() {
			t.Errorf("peer: %v", err)
		}
	})
	return p
}

// hear waits for a line; others may come before.
func (p *process) hear(want string) {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var last string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the peer ended, want %q", want)
			}
			if line == want {
				return
			}
			last = line
		case <-timer.C:
			p.t.Fatalf("the peer did not say %q within %v; last it said %q", want, patience, last)
		}
	}
}

// silent checks that the peer said nothing since.
func (p *process) silent() {
	p.t.Helper()
	if len(p.lines) > 0 {
		p.t.Errorf("the peer said %q, want it to go on as before", <-p.lines)
	}
}

// grpcGo calls the target every 50 ms and prints which backend answered, whenever
// that changes.
func grpcGo() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	last := ""
	for ; ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var from peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from))
		cancel()
		text := ""
		if err != nil {
			text = "error " + err.Error()
		} else {
			text = "backend " + from.Addr.String()
		}
		if text != last {
			last = text
			fmt.Println(text)
		}
	}
}

// rawDelta follows one resource, rejects it where its priority is not 0, and tells
// what it holds when it comes back.
func rawDelta(addr string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	held := map[string]string{}
	for ; ; time.Sleep(50 * time.Millisecond) {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		_ = followEndpoints(conn, held) // ends with the server, which comes back
		conn.Close()
	}
}

func followEndpoints(conn *grpc.ClientConn, held map[string]string) error {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	if err != nil {
		return err
	}
	err = s.Send(&discovery.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "delta"}, TypeUrl: resource.EndpointType,
		ResourceNamesSubscribe: []string{"endpoints"}, InitialResourceVersions: held,
	})
	for err == nil {
		var r *discovery.DeltaDiscoveryResponse
		if r, err = s.Recv(); err != nil {
			break
		}
		answer := &discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
		for _, res := range r.Resources {
			var m endpointv3.ClusterLoadAssignment
			if err := res.Resource.UnmarshalTo(&m); err != nil || m.Endpoints[0].Priority != 0 {
				answer.ErrorDetail = &spb.Status{Code: 3, Message: "priority: 7, want 0"}
				continue
			}
			held[res.Name] = res.Version
			fmt.Println(res.Name, "version", res.Version)
		}
		for _, name := range r.RemovedResources {
			delete(held, name)
			fmt.Println(name, "removed")
		}
		err = s.Send(answer)
	}
	return err
}
