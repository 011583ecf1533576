package client

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/report"
)

// Bounds of an outbox while the daemon is away. Older frames give way: the
// daemon asks what is, and a minute ago is history.
const (
	maxFrames     = 60      // of one service
	maxBoxBytes   = 8 << 20 // of all
	maxFrameBytes = 3 << 20 // of one; gRPC's limit for a message is 4 MiB
)

// outbox holds the frames of one source until the daemon acknowledges them, in
// the order of their sequence. All methods may be called from any goroutine.
type outbox struct {
	source  report.Source
	address string // of the daemon that they are for; empty: of whichever is home

	mu      sync.Mutex
	frames  []boxed
	last    uint64 // sequence number given
	unsent  int    // frames[unsent:] were not sent on the present stream
	bytes   int
	open    bool          // a stream is up
	ending  bool          // what is here is the last
	changed chan struct{} // closed and replaced when frames come or go
}

type boxed struct {
	frame        *hedgedv1.Frame // never written to again: it may be sent twice
	bytes        int
	observations uint64
}

func newOutbox(source report.Source, address string) *outbox {
	return &outbox{source: source, address: address, changed: make(chan struct{})}
}

// add takes a frame in under the next sequence number, and returns the observations of those that had to go. A
// frame without observations is only a sign of life: it goes at once or not at all.
func (b *outbox) add(f *hedgedv1.Frame) (dropped uint64) {
	in := boxed{frame: f, bytes: proto.Size(f), observations: observations(f)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(f.Methods) == 0 && (!b.open || b.unsent < len(b.frames)) || in.bytes > maxFrameBytes {
		return in.observations
	}
	b.last++
	f.Sequence = b.last
	b.frames = append(b.frames, in)
	b.bytes += in.bytes
	if i, n := b.oldest(f.Service); n > maxFrames {
		dropped += b.remove(i)
	}
	for b.bytes > maxBoxBytes {
		dropped += b.remove(0)
	}
	b.signal()
	return dropped
}

// oldest returns where the oldest frame of a service is, and how many it has.
func (b *outbox) oldest(service string) (at, n int) {
	for i := len(b.frames) - 1; i >= 0; i-- {
		if b.frames[i].frame.Service == service {
			at = i
			n++
		}
	}
	return at, n
}

func (b *outbox) remove(i int) (observations uint64) {
	gone := b.frames[i]
	b.frames = append(b.frames[:i], b.frames[i+1:]...)
	b.bytes -= gone.bytes
	if i < b.unsent {
		b.unsent--
	}
	return gone.observations
}

// connect says that a new stream is up: all frames are to be sent on it.
func (b *outbox) connect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open, b.unsent = true, 0
}

// disconnect says that the stream has ended.
func (b *outbox) disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = false
}

// next returns the next frame for the present stream; nil when there is none
// until changed is closed, or at all, which last tells.
func (b *outbox) next() (f *hedgedv1.Frame, changed <-chan struct{}, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unsent == len(b.frames) {
		return nil, b.changed, b.ending && b.unsent > 0
	}
	b.unsent++
	return b.frames[b.unsent-1].frame, nil, false
}

// acknowledge forgets the frames up to and including a sequence number. Those
// that were not sent yet stay, whatever the daemon says.
func (b *outbox) acknowledge(sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < b.unsent && b.frames[n].frame.Sequence <= sequence {
		b.bytes -= b.frames[n].bytes
		b.frames[n] = boxed{}
		n++
	}
	if n == 0 {
		return
	}
	b.frames = b.frames[n:]
	b.unsent -= n
	b.signal()
}

// divert takes the frame of a sequence number out, with the later ones of its
// service, in their order; none when it is not there.
func (b *outbox) divert(sequence uint64) (out []*hedgedv1.Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := 0; i < len(b.frames); {
		f := b.frames[i].frame
		if f.Sequence != sequence && (len(out) == 0 || f.Service != out[0].Service) {
			i++
			continue
		}
		out = append(out, f)
		b.remove(i)
	}
	if len(out) > 0 {
		b.signal()
	}
	return out
}

// flush waits until the outbox is empty, or until ctx ends. Nothing may be added
// after it: it has the stream's side closed, which the daemon answers at once.
func (b *outbox) flush(ctx context.Context) error {
	b.mu.Lock()
	b.ending = true
	b.signal()
	b.mu.Unlock()
	for {
		b.mu.Lock()
		left, changed := len(b.frames), b.changed
		b.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *outbox) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// observations is how much is lost with a frame: calls or attempts, and what
// the frame itself reports as lost.
func observations(f *hedgedv1.Frame) uint64 {
	n := f.Dropped
	for _, m := range f.Methods {
		n += m.Calls + m.GetServer().GetAttempts()
	}
	return n
}
