package client

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Waits between attempts to reach the daemon. Each is varied at random by up to
// a half, so that clients do not come back together.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
	retryPace  = 1.6
)

// daemonOptions shape the connection; the caller's come after and win.
//
// A daemon that went without a word is noticed by a ping after 75 s of silence.
// The daemon answers a report at least once a minute, so a ping is never sent to
// one that lives, and no server finds them too many.
func daemonOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: retryPace, Jitter: .5, MaxDelay: lastRetry * 2 / 3},
			MinConnectTimeout: lastRetry,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 75 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("hedged/" + Version),
	}
}

// daemon is the Controller at the other end of a gRPC connection: policies come by
// delta xDS, reports go by a stream for each source. What is to be sent or was
// received outlives a stream; a broken one is opened again, with the next of several
// daemons where one does not answer. Reports of a service that another daemon owns
// go where the answer says (redirect.go).
type daemon struct {
	addresses []string // of daemons that serve alike
	dial      []grpc.DialOption
	node      report.Source // the client
	log       *slog.Logger
	policy    *subscriber

	mu     sync.Mutex
	home   int // of addresses: whom the streams talk to
	conns  map[string]*grpc.ClientConn
	boxes  map[boxKey]*outbox
	routes map[string]route         // by service: those that were redirected
	lost   map[report.Source]uint64 // observations that redirects gave up
	serve  func(*outbox)            // starts a box's stream; nil while Run does not
}

type boxKey struct {
	source  report.Source
	address string
}

// maxDaemons is how many addresses Options.Daemon may name.
const maxDaemons = 16

func newDaemon(o Options, node report.Source) (*daemon, error) {
	d := &daemon{
		dial:   append(daemonOptions(), o.DialOptions...),
		node:   node,
		log:    o.Logger.With("daemon", o.Daemon),
		policy: newSubscriber(node),
		conns:  map[string]*grpc.ClientConn{},
		boxes:  map[boxKey]*outbox{},
		routes: map[string]route{},
		lost:   map[report.Source]uint64{},
	}
	for address := range strings.SplitSeq(o.Daemon, ",") {
		address = strings.TrimSpace(address)
		if address == "" || len(d.addresses) == maxDaemons {
			d.close()
			return nil, fmt.Errorf("want 1 to %d addresses with commas between them", maxDaemons)
		}
		if _, err := d.connect(address); err != nil {
			d.close()
			return nil, err
		}
		d.addresses = append(d.addresses, address)
	}
	d.home = rand.IntN(len(d.addresses)) // clients spread
	return d, nil
}

// connect returns the connection to an address; d.mu is held, or nobody else knows d.
func (d *daemon) connect(address string) (*grpc.ClientConn, error) {
	if conn := d.conns[address]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient(address, d.dial...)
	if err == nil {
		d.conns[address] = conn
	}
	return conn, err
}

func (d *daemon) close() {
	for _, conn := range d.conns {
		_ = conn.Close() // fails only when closed before
	}
}

// at returns the daemon that streams talk to now.
func (d *daemon) at() (home int, conn *grpc.ClientConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.home, d.conns[d.addresses[d.home]]
}

// leave goes on to the next daemon, unless another stream has done so already.
func (d *daemon) leave(home int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.home == home {
		d.home = (home + 1) % len(d.addresses)
	}
}

// Run implements Controller.
func (d *daemon) Run(ctx context.Context, l Listener) {
	var streams sync.WaitGroup
	d.mu.Lock()
	d.serve = func(b *outbox) {
		streams.Go(func() {
			if b.address != "" {
				d.follow(ctx, b, l)
				return
			}
			d.repeat(ctx, "report", func(conn *grpc.ClientConn, wait bool) (bool, error) {
				return b.deliver(ctx, d, conn, wait, l)
			})
		})
	}
	for _, b := range d.boxes {
		d.serve(b)
	}
	d.mu.Unlock()

	if d.policy.await(ctx) {
		d.repeat(ctx, "policy", func(conn *grpc.ClientConn, wait bool) (bool, error) {
			return d.policy.follow(ctx, conn, wait, l, d.log)
		})
	}

	d.mu.Lock()
	d.serve = nil
	d.mu.Unlock()
	streams.Wait()
	d.close()
}

// Subscribe implements Controller.
func (d *daemon) Subscribe(service policy.Key) {
	d.policy.add(service.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.box(d.node, "") // whose stream is up when the first report comes
}

// Report implements Controller.
func (d *daemon) Report(r *report.Report) (dropped uint64) {
	f := wire.FrameToProto(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	dropped = d.lost[r.Source]
	delete(d.lost, r.Source)
	return dropped + d.box(r.Source, d.routes[f.Service].address).add(f)
}

// box returns the frames of a source for an address; d.mu is held.
func (d *daemon) box(source report.Source, address string) *outbox {
	key := boxKey{source, address}
	b := d.boxes[key]
	if b == nil {
		b = newOutbox(source, address)
		d.boxes[key] = b
		if d.serve != nil {
			d.serve(b)
		}
	}
	return b
}

// Flush implements Controller.
func (d *daemon) Flush(ctx context.Context) error {
	d.mu.Lock()
	boxes := slices.Collect(maps.Values(d.boxes))
	d.mu.Unlock()
	for _, b := range boxes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// repeat opens a stream again and again until ctx ends. The first attempt after
// one that was answered comes fast, later ones at growing intervals. It does not
// wait for a connection, so that its error tells what is wrong; later ones do, or go
// on to the next daemon where there are several.
func (d *daemon) repeat(ctx context.Context, name string, stream func(conn *grpc.ClientConn, wait bool) (answered bool, err error)) {
	pause := firstRetry
	logged := codes.OK
	for {
		home, conn := d.at()
		answered, err := stream(conn, logged != codes.OK && len(d.addresses) == 1)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause, logged = firstRetry, codes.OK
		} else {
			d.leave(home)
		}
		if code := status.Code(err); code != logged {
			d.log.Warn("no stream to the daemon; trying again", "stream", name, "error", err)
			logged = code
		}
		if !pauseFor(ctx, pause) {
			return
		}
		pause = min(time.Duration(float64(pause)*retryPace), lastRetry)
	}
}

// pauseFor waits for d or, at random, as little as half of it; false: ctx ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
