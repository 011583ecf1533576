package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// Bounds of what a daemon's redirects may cause.
const (
	maxHops      = 3 // of one service within hopTime: beyond, its owners disagree
	hopTime      = time.Minute
	maxRedirects = 16 // daemons beside the ones that the application named
)

// route is where the reports of one service go.
type route struct {
	address string
	hops    int
	since   time.Time // of the first hop
}

// redirect does what the answer to a frame says: the frame, and the later ones of
// its service, go to another daemon. What cannot follow is given up and counted,
// and the service's reports go home again.
func (d *daemon) redirect(b *outbox, sequence uint64, address string) {
	frames := b.divert(sequence)
	if len(frames) == 0 {
		return
	}
	service := frames[0].Service
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.routes[service]
	if now := time.Now(); now.Sub(r.since) > hopTime {
		r = route{since: now}
	}
	r.address, r.hops = address, r.hops+1
	if !d.reachable(address) || r.hops > maxHops {
		d.log.Warn("reports cannot follow a redirect", "service", service, "to", shownAddress(address), "hops", r.hops)
		r.address = ""
		d.routes[service] = r
		d.giveUp(b, frames)
		return
	}
	d.routes[service] = r
	to := d.box(b.source, address)
	for _, f := range frames {
		// It gets a number of that stream's, and this one may still be sent.
		d.lost[b.source] += to.add(proto.CloneOf(f))
	}
}

// reachable reports whether there is, or may be, a connection to an address that a
// daemon named; d.mu is held.
func (d *daemon) reachable(address string) bool {
	if policy.ValidateName("redirect", address) != nil {
		return false
	}
	if d.conns[address] == nil && len(d.conns) >= len(d.addresses)+maxRedirects {
		return false
	}
	_, err := d.connect(address)
	return err == nil
}

func (d *daemon) giveUp(b *outbox, frames []*hedgedv1.Frame) {
	for _, f := range frames {
		d.lost[b.source] += observations(f)
	}
}

// follow delivers the frames of a box to the daemon that it is for, while that one
// answers. When it does not, whoever is home may know better.
func (d *daemon) follow(ctx context.Context, b *outbox, l Listener) {
	d.mu.Lock()
	conn := d.conns[b.address]
	d.mu.Unlock()
	for ctx.Err() == nil {
		if answered, err := b.deliver(ctx, d, conn, false, l); !answered && ctx.Err() == nil {
			d.log.Warn("no stream to the daemon that owns services; asking again", "to", shownAddress(b.address), "error", err)
			d.retire(b)
			return
		}
		_ = pauseFor(ctx, firstRetry)
	}
}

// retire sends the services of a box home. A frame may have been taken without an
// answer, so none is sent to another daemon: they are given up and counted.
func (d *daemon) retire(b *outbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.boxes, boxKey{b.source, b.address})
	for service, r := range d.routes {
		if r.address == b.address {
			r.address = ""
			d.routes[service] = r
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.frames {
		d.lost[b.source] += f.observations
	}
	b.frames, b.unsent, b.bytes = nil, 0, 0
	b.signal()
}

func shownAddress(address string) string { return address[:min(len(address), policy.MaxNameLen)] }
