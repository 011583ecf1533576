package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hedged-project/hedged/bench/internal/child"
)

// fleet is the client process: streams of one connection each, which acknowledge
// what they get and remember its numbers.
type fleet struct {
	addr      string
	delta     bool
	resources int
	clients   []*client
	initial   atomic.Int64 // names that clients wait for at first

	ready   chan struct{} // closed when all have what was there
	current atomic.Pointer[watchList]
	resent  atomic.Int64 // deliveries of content that a client had
}

// client is one stream. Its goroutine alone touches it.
type client struct {
	fleet    *fleet
	names    []int          // none: the wildcard
	held     []int64        // number held, by name; -1: none
	versions map[int]string // of what is held
	messages atomic.Int64   // responses of the present plan
}

// watchList follows one plan.
type watchList struct {
	plan      plan
	resources int
	left      []atomic.Int64 // clients that have not got publish i
	took      []time.Duration
	all       sync.WaitGroup
}

func (w *watchList) got(name int, before, now int64, at time.Time) {
	// Publishes of this name are resources apart.
	i := (int64(name) - w.plan.First%int64(w.resources) + int64(w.resources)) % int64(w.resources)
	for ; i < int64(w.plan.N); i += int64(w.resources) {
		number := w.plan.First + i
		if number > before && number <= now && w.left[i].Add(-1) == 0 {
			w.took[i] = at.Sub(w.plan.due(int(i)))
			w.all.Done()
		}
	}
}

// commonAndOne, as a number of names, stands for name 0 and one of the others.
const commonAndOne = -1

// follow is the client process.
func follow(addr string, streams, resources, names int, delta bool) {
	f := &fleet{addr: addr, delta: delta, resources: resources, ready: make(chan struct{})}
	perClient := names
	switch names {
	case 0:
		perClient = resources
	case commonAndOne:
		perClient = 2
	}
	f.initial.Store(int64(streams * perClient))
	for i := range streams {
		c := &client{fleet: f, held: make([]int64, resources), versions: map[int]string{}}
		for j := range c.held {
			c.held[j] = -1
		}
		for j := range names {
			c.names = append(c.names, (i*names+j)%resources)
		}
		if names == commonAndOne {
			c.names = []int{0, 1 + i%(resources-1)}
		}
		f.clients = append(f.clients, c)
	}
	// Not all dial at once: the machine is small.
	dial := make(chan struct{}, 64)
	for _, c := range f.clients {
		go c.run(dial)
	}
	<-f.ready
	child.Say("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == `"again"` { // the server is restarted: wait until all have everything
			f.ready = make(chan struct{})
			f.initial.Store(int64(streams))
			child.Say("again")
			select {
			case <-f.ready:
			case <-time.After(30 * time.Second):
			}
			child.Say(f.resent.Load())
			continue
		}
		var p plan
		if err := json.Unmarshal(in.Bytes(), &p); err != nil {
			log.Fatal(err)
		}
		f.expect(p)
	}
}

func (f *fleet) expect(p plan) {
	w := &watchList{plan: p, resources: f.resources, left: make([]atomic.Int64, p.N), took: make([]time.Duration, p.N)}
	followers := make([]int64, f.resources)
	for _, c := range f.clients {
		c.messages.Store(0)
		for i := range followers {
			if len(c.names) == 0 {
				followers[i]++
			}
		}
		for _, i := range c.names {
			followers[i]++
		}
	}
	for i := range w.left {
		n := followers[(p.First+int64(i))%int64(f.resources)]
		w.left[i].Store(n)
		if n > 0 {
			w.all.Add(1)
		}
	}
	f.current.Store(w)
	child.Say("expecting")
	w.all.Wait() // each client has the newest number of each of its names
	var out received
	for i, d := range w.took {
		if followers[(p.First+int64(i))%int64(f.resources)] > 0 {
			out.Latencies = append(out.Latencies, d)
		}
	}
	for _, c := range f.clients {
		n := c.messages.Load()
		out.Deliveries += n
		out.Most = max(out.Most, n)
	}
	child.Say(out)
}

// run keeps a stream, and comes back as our client library does.
func (c *client) run(dial chan struct{}) {
	pause := 50 * time.Millisecond
	for {
		began := time.Now()
		err := c.stream(dial)
		if time.Since(began) > 5*time.Second {
			pause = 50 * time.Millisecond
		}
		if os.Getenv("BENCH_DEBUG") != "" {
			log.Print(err)
		}
		time.Sleep(pause/2 + rand.N(pause/2+1))
		pause = min(pause*8/5, 5*time.Second)
	}
}

func (c *client) stream(dial chan struct{}) error {
	dial <- struct{}{}
	var once sync.Once
	done := func() { once.Do(func() { <-dial }) }
	defer done()
	conn, err := grpc.NewClient("passthrough:///"+c.fleet.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ads := discovery.NewAggregatedDiscoveryServiceClient(conn)
	if c.fleet.delta {
		return c.followDelta(ctx, ads, done)
	}
	return c.followSotW(ctx, ads, done)
}

func (c *client) subscription() []string {
	if len(c.names) == 0 {
		return []string{"*"}
	}
	names := make([]string, len(c.names))
	for i, n := range c.names {
		names[i] = name(n)
	}
	return names
}

func (c *client) followDelta(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, connected func()) error {
	s, err := ads.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	first := &discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: typeURL, ResourceNamesSubscribe: c.subscription()}
	back := len(c.versions) > 0
	if back {
		first.InitialResourceVersions = map[string]string{}
		for i, v := range c.versions {
			first.InitialResourceVersions[name(i)] = v
		}
		// A name that nobody publishes: its answer, as removed, says that the
		// stream is served, although nothing else is to be sent.
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, "probe")
	}
	if err := s.Send(first); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		connected()
		at := time.Now()
		c.messages.Add(1)
		for _, res := range r.Resources {
			i, number := parse(res.GetResource().GetValue())
			c.take(i, number, at)
			c.versions[i] = res.Version
		}
		if len(r.RemovedResources) > 0 && c.fleet.initial.Add(-1) == 0 {
			close(c.fleet.ready)
		}
		if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.Nonce}); err != nil {
			return err
		}
	}
}

func (c *client) followSotW(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, connected func()) error {
	s, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	names := c.subscription()
	if err := s.Send(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: typeURL, ResourceNames: names}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		connected()
		at := time.Now()
		c.messages.Add(1)
		for _, res := range r.Resources {
			i, number := parse(res.GetValue())
			c.take(i, number, at)
		}
		if err := s.Send(&discovery.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo, ResourceNames: names}); err != nil {
			return err
		}
	}
}

// take notes the content of a name.
func (c *client) take(i int, number int64, at time.Time) {
	before := c.held[i]
	if number == before {
		c.fleet.resent.Add(1)
		return
	}
	c.held[i] = number
	if before < 0 && c.fleet.initial.Add(-1) == 0 {
		close(c.fleet.ready)
	}
	if w := c.fleet.current.Load(); w != nil {
		w.got(i, before, number, at)
	}
}

// parse reads name and number out of the bytes of a content, without decoding it.
func parse(b []byte) (i int, number int64) {
	at := bytes.Index(b, []byte("service-"))
	i, err := strconv.Atoi(string(b[at+8 : at+12]))
	if err != nil {
		log.Fatal(err)
	}
	at = bytes.Index(b, []byte(numberMark)) + len(numberMark)
	number, err = strconv.ParseInt(string(b[at:at+12]), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return i, number
}
