package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	peer "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hedged-project/hedged/bench/internal/child"
	"github.com/hedged-project/hedged/xds"
)

// typeURL is one that all three serve: SnapshotCache has a closed set.
const typeURL = resource.ExtensionConfigType

const node = "bench"

func name(i int) string { return fmt.Sprintf("service-%04d", i) }

// content is a resource of about a kilobyte, as a policy is, that says its number.
func content(i int, number int64) *corev3.TypedExtensionConfig {
	text := fmt.Sprintf("%s%012d;", numberMark, number)
	return &corev3.TypedExtensionConfig{
		Name:        name(i),
		TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/bench", Value: append([]byte(text), bytes.Repeat([]byte("p"), 1000)...)},
	}
}

const numberMark = "number="

// target is one of the servers that are compared.
type target interface {
	register(g *grpc.Server)
	publish(m *corev3.TypedExtensionConfig, number int64, urgent bool) error
}

type ours struct {
	cache  *xds.Cache
	server *xds.Server
}

func newOurs(ctx context.Context) *ours {
	c := xds.NewCache(typeURL)
	return &ours{c, xds.NewServer(ctx, c, xds.Options{})}
}

func (o *ours) register(g *grpc.Server) { o.server.Register(g) }

func (o *ours) publish(m *corev3.TypedExtensionConfig, number int64, urgent bool) error {
	set := o.cache.Set
	if urgent {
		set = o.cache.SetUrgent
	}
	return set(typeURL, m.Name, m, strconv.FormatInt(number, 10))
}

type linear struct {
	ctx   context.Context
	cache *cache.LinearCache
}

func (l *linear) register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, peer.NewServer(l.ctx, l.cache, nil))
}

func (l *linear) publish(m *corev3.TypedExtensionConfig, number int64, _ bool) error {
	return l.cache.UpdateResource(m.Name, m)
}

type snapshot struct {
	ctx       context.Context
	cache     cache.SnapshotCache
	resources map[string]types.Resource
}

func (s *snapshot) register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, peer.NewServer(s.ctx, s.cache, nil))
}

func (s *snapshot) publish(m *corev3.TypedExtensionConfig, number int64, _ bool) error {
	s.resources[m.Name] = m
	list := make([]types.Resource, 0, len(s.resources))
	for _, r := range s.resources {
		list = append(list, r)
	}
	snap, err := cache.NewSnapshot(strconv.FormatInt(number, 10), map[resource.Type][]types.Resource{typeURL: list})
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(s.ctx, node, snap)
}

// serve is the server process: one target, told by lines on standard input.
func serve(kind, addr string, resources int) {
	ctx := context.Background()
	var t target
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(4 << 20),
		grpc.ReadBufferSize(4 << 10),
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(64 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	switch kind {
	case "ours":
		t = newOurs(ctx)
		options = append(options, grpc.ForceServerCodecV2(xds.Codec()))
	case "linear":
		t = &linear{ctx, cache.NewLinearCache(typeURL)}
	case "snapshot":
		t = &snapshot{ctx: ctx, cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), resources: map[string]types.Resource{}}
	default:
		log.Fatalf("server: %q, want ours, linear or snapshot", kind)
	}
	for i := range resources {
		if err := t.publish(content(i, int64(i)), int64(i), false); err != nil {
			log.Fatal(err)
		}
	}
	g := grpc.NewServer(options...)
	t.register(g)
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(g.Serve(lis)) }()
	child.Say(lis.Addr().String())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case `"cpu"`:
			child.Say(child.CPU())
			continue
		case `"memory"`:
			child.Say(memory())
			continue
		}
		var p plan
		if err := json.Unmarshal(in.Bytes(), &p); err != nil {
			log.Fatal(err)
		}
		child.Say(carryOut(t, p, resources))
	}
}

func carryOut(t target, p plan, resources int) published {
	var out published
	for i := range p.N {
		number := p.First + int64(i)
		m := content(int(number)%resources, number)
		time.Sleep(time.Until(p.due(i)))
		began := time.Now()
		if err := t.publish(m, number, i+1 == p.Off); err != nil {
			log.Fatal(err)
		}
		took := time.Since(began)
		out.Mean += took / time.Duration(p.N)
		out.Max = max(out.Max, took)
	}
	return out
}

func memory() child.Memory {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out := child.Resident()
	out.InUse = int64(m.HeapInuse + m.StackInuse)
	return out
}
