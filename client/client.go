package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Version of this library, as reports carry it.
const Version = "0.1.0"

// closeTimeout is how long Close waits for the last reports to be delivered.
const closeTimeout = time.Second

// Options say who a Client is and what it may do. Only Daemon, or Controller in
// its place, is required.
type Options struct {
	// Daemon is the address of the daemon's gRPC port as grpc.NewClient takes
	// it, such as "127.0.0.1:7946"; of several daemons, all of them with commas
	// between: the client talks to one, and to the next when it does not answer. It
	// need not be up: without it there is no hedging, and calls go on. Empty only
	// where Controller is set.
	Daemon string

	// ID is the name of this client in status and metrics: 1 to 256 bytes of
	// printable UTF-8. Empty: host name, process id and a few random digits.
	ID string

	// Zone is where this client runs; at most 256 bytes. Empty: not told.
	Zone string

	// Logger gets what operators should know: a rejected policy, a refused
	// report, a daemon that is away. Nil: nothing is logged.
	Logger *slog.Logger

	// Hedgeable lists full methods ("/pkg.Service/Method") that the application
	// says are safe to run twice, beside those whose protos declare
	// idempotency_level NO_SIDE_EFFECTS and calls that carry the metadata
	// idempotency-key. Empty: those alone.
	Hedgeable []string

	// AllowIdempotent trusts idempotency_level IDEMPOTENT as well: such methods
	// may write, and a hedge writes twice. Default: not trusted.
	AllowIdempotent bool

	// Acceptable says whether a reply over gRPC is the answer. When it is not, any
	// other attempt's reply is preferred, and the next attempt is due at once; if
	// none is acceptable, the last one is the answer. It is called for every reply,
	// from any goroutine, and must not block, keep the reply or write to it. Nil:
	// every reply is. Which failures are the answer, the policy says.
	Acceptable func(fullMethod string, reply any) bool

	// DialOptions are for the connection to the daemon, such as TLS credentials
	// for one that is not on this machine. Empty: no transport security.
	DialOptions []grpc.DialOption

	// OnPolicy is called with every policy that comes into force, in order, on
	// the goroutine that receives them: while it runs, later ones wait. It must
	// not write to the policy's maps. Nil: nothing is called.
	OnPolicy func(policy.Policy)

	// OnAttempt is called with every attempt that has ended, losers and calls that
	// were not hedged included, on the goroutine that made it: its caller waits
	// while it runs. The context has the values of the call's, for a trace, and no
	// end. Nil: nothing is called, and nothing is paid.
	OnAttempt func(context.Context, Attempt)

	// Controller decides in the daemon's place, such as one of package
	// client/local, inside this process. Nil: the daemon does.
	Controller Controller
}

// Client measures the calls of one process and hedges them by the policies it
// is given. Its methods may be called from any goroutine. Whoever made it closes
// it, after the connections that use it.
type Client struct {
	opts       Options
	source     report.Source
	controller Controller
	safety     *safety
	log        *slog.Logger
	cadence    chan time.Duration // size 1: the newest wish
	early      chan struct{}      // size 1: a service's eligibility ran away
	refused    atomic.Uint64      // reports

	mu       sync.Mutex // guards the maps; held while one report is handed over
	services map[policy.Key]*service
	servers  map[serverKey]*server
	sources  map[report.Source]*sequence
	refusals map[string]bool // kinds of refusal that were logged
	closed   bool

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a Client that runs until Close. It does not wait for the daemon.
func New(o Options) (*Client, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &Client{
		opts: o,
		source: report.Source{
			ID:          o.ID,
			Incarnation: uint64(time.Now().UnixNano()),
			Zone:        o.Zone,
			Version:     Version,
			Kind:        report.Client,
		},
		controller: o.Controller,
		safety: &safety{
			listed:     func(m string) bool { return slices.Contains(o.Hedgeable, m) },
			idempotent: o.AllowIdempotent,
			files:      protoregistry.GlobalFiles,
		},
		log:      o.Logger,
		cadence:  make(chan time.Duration, 1),
		early:    make(chan struct{}, 1),
		services: map[policy.Key]*service{},
		servers:  map[serverKey]*server{},
		sources:  map[report.Source]*sequence{},
		refusals: map[string]bool{},
	}
	if c.controller == nil {
		d, err := newDaemon(o, c.source)
		if err != nil {
			return nil, fmt.Errorf("client: daemon %q: %w", o.Daemon, err)
		}
		c.controller = d
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.done.Go(func() { c.controller.Run(ctx, c) })
	c.done.Go(func() { c.report(ctx) })
	return c, nil
}

// complete fills in defaults and reports the first field that is out of bounds.
func (o *Options) complete() error {
	if o.Daemon == "" && o.Controller == nil {
		return errors.New(`Daemon: is empty, want the address of the daemon, such as "127.0.0.1:7946", or a Controller`)
	}
	if o.Daemon != "" && o.Controller != nil {
		return fmt.Errorf("Daemon: %q is given beside Controller, want one of them", o.Daemon)
	}
	if o.ID == "" {
		host, err := os.Hostname()
		if err != nil || policy.ValidateName("host", host) != nil || len(host) > 200 {
			host = "client"
		}
		o.ID = fmt.Sprintf("%s-%d-%04x", host, os.Getpid(), rand.N(1<<16))
	}
	if err := policy.ValidateName("ID", o.ID); err != nil {
		return err
	}
	if o.Zone != "" {
		if err := policy.ValidateName("Zone", o.Zone); err != nil {
			return err
		}
	}
	for i, m := range o.Hedgeable {
		if err := policy.ValidateName(fmt.Sprintf("Hedgeable[%d]", i), m); err != nil {
			return err
		}
		service, method, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		if !strings.HasPrefix(m, "/") || !ok || service == "" || method == "" || strings.Contains(method, "/") {
			return fmt.Errorf(`Hedgeable[%d]: %q, want "/package.Service/Method"`, i, m)
		}
	}
	o.Hedgeable = slices.Clone(o.Hedgeable)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// DialOptions returns what makes a connection's unary calls and server streams
// hedged, followed by more: pass it to grpc.NewClient. The service is named "tenant/service", or
// "service" in the default tenant, as operators know it; all connections of this
// Client to one service share its policy, budget and counts.
//
// They come first in the connection's chain of interceptors: those in more are
// called once for each attempt, those given before once for a call. OpenTelemetry
// is one to give before, so that it sees a call, and its attempts as it sees gRPC's
// own retries:
//
//	append([]grpc.DialOption{opentelemetry.DialOption(o)}, c.DialOptions("orders")...)
//
// Calls that were hedged are recorded as grpc.client.call.hedges, as gRFC A96 names
// it; opentelemetry.MetricsOptions may leave it out.
//
// The options replace the connection's load balancing and refuse the resolver's
// service config, whose balancer would switch hedging off: one that comes all the
// same is logged and shown by Stats. A service that is not
// a valid name makes grpc.NewClient fail with an error that says why.
func (c *Client) DialOptions(service string, more ...grpc.DialOption) []grpc.DialOption {
	key, err := policy.ParseKey(service)
	if err != nil {
		return append([]grpc.DialOption{failingDial(err)}, more...)
	}
	in := c.interceptor(c.service(key))
	return append([]grpc.DialOption{
		grpc.WithChainUnaryInterceptor(in.unary),
		grpc.WithChainStreamInterceptor(in.stream),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + balancerName + `":{}}]}`),
		grpc.WithDisableServiceConfig(),
	}, more...)
}

// failingDial makes grpc.NewClient fail and quote err: dial options have no
// other way to say that they are wrong.
func failingDial(err error) grpc.DialOption {
	name, _ := json.Marshal("hedged: " + err.Error()) // a string always has a JSON form
	return grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{` + string(name) + `:{}}]}`)
}

// service returns the one state of a service, and subscribes to its policies.
func (c *Client) service(key policy.Key) *service {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[key]
	if s == nil {
		s = newService(key, c.wake)
		s.onAttempt, s.log = c.opts.OnAttempt, c.log
		c.services[key] = s
		if c.closed {
			s.close()
		} else {
			c.controller.Subscribe(key)
		}
	}
	return s
}

// Stats returns a snapshot of every service that DialOptions or Transport was
// asked for, in the order of their keys.
func (c *Client) Stats() []ServiceStats {
	var out []ServiceStats
	for _, s := range c.all() {
		out = append(out, s.stats())
	}
	slices.SortFunc(out, func(a, b ServiceStats) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// RefusedReports returns how many reports the controller found out of bounds
// and did not use. The first of each kind is logged.
func (c *Client) RefusedReports() uint64 { return c.refused.Load() }

// all returns the services of this client.
func (c *Client) all() []*service {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*service, 0, len(c.services))
	for _, s := range c.services {
		out = append(out, s)
	}
	return out
}

// Close sends what was counted and not yet reported, waits up to a second for
// its delivery, and ends everything that New started. Calls may go on; they are
// not hedged any more. Closing again does nothing. The error says that the last
// reports were not delivered.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()

	for _, s := range c.all() {
		s.close()
	}
	c.flush(0, time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := c.controller.Flush(ctx)
	c.stop()
	c.done.Wait()
	if err != nil {
		return fmt.Errorf("client: last reports: %w", err)
	}
	return nil
}
