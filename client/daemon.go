package client

import (
	"context"
	"log/slog"
	"math/rand/v2"
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

// daemon is the Controller at the other end of one gRPC connection: policies
// come by delta xDS, reports go by a stream for each source. What is to be sent
// or was received outlives a stream; a broken one is opened again.
type daemon struct {
	conn   *grpc.ClientConn
	node   report.Source // the client
	log    *slog.Logger
	policy *subscriber

	mu    sync.Mutex
	boxes map[report.Source]*outbox
	serve func(*outbox) // starts a box's stream; nil while Run does not
}

func newDaemon(o Options, node report.Source) (*daemon, error) {
	conn, err := grpc.NewClient(o.Daemon, append(daemonOptions(), o.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	return &daemon{
		conn:   conn,
		node:   node,
		log:    o.Logger.With("daemon", o.Daemon),
		policy: newSubscriber(node),
		boxes:  map[report.Source]*outbox{},
	}, nil
}

// Run implements Controller.
func (d *daemon) Run(ctx context.Context, l Listener) {
	var streams sync.WaitGroup
	d.mu.Lock()
	d.serve = func(b *outbox) {
		streams.Go(func() {
			d.repeat(ctx, "report", func(wait bool) (bool, error) { return b.deliver(ctx, d.conn, wait, l) })
		})
	}
	for _, b := range d.boxes {
		d.serve(b)
	}
	d.mu.Unlock()

	if d.policy.await(ctx) {
		d.repeat(ctx, "policy", func(wait bool) (bool, error) { return d.policy.follow(ctx, d.conn, wait, l, d.log) })
	}

	d.mu.Lock()
	d.serve = nil
	d.mu.Unlock()
	streams.Wait()
	_ = d.conn.Close() // fails only when closed before
}

// Subscribe implements Controller.
func (d *daemon) Subscribe(service policy.Key) {
	d.policy.add(service.String())
	d.box(d.node) // whose stream is up when the first report comes
}

// Report implements Controller.
func (d *daemon) Report(r *report.Report) (dropped uint64) {
	return d.box(r.Source).add(wire.FrameToProto(r))
}

func (d *daemon) box(source report.Source) *outbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[source]
	if b == nil {
		b = newOutbox(source)
		d.boxes[source] = b
		if d.serve != nil {
			d.serve(b)
		}
	}
	return b
}

// Flush implements Controller.
func (d *daemon) Flush(ctx context.Context) error {
	d.mu.Lock()
	boxes := make([]*outbox, 0, len(d.boxes))
	for _, b := range d.boxes {
		boxes = append(boxes, b)
	}
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
// wait for a connection, so that its error tells what is wrong; later ones do.
func (d *daemon) repeat(ctx context.Context, name string, stream func(wait bool) (answered bool, err error)) {
	pause := firstRetry
	logged := codes.OK
	for {
		answered, err := stream(logged != codes.OK)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause, logged = firstRetry, codes.OK
		}
		if code := status.Code(err); code != logged {
			d.log.Warn("no stream to the daemon; trying again", "stream", name, "error", err)
			logged = code
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(time.Duration(float64(pause)*retryPace), lastRetry)
	}
}
