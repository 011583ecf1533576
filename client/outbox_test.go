package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/report"
)

// While the daemon is away, memory is bounded, callers are not held up, and
// what had to be given up is counted: nothing is lost in silence.
func TestReportsOfALongOutageAreBoundedAndAccountedFor(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.stop()
		m := s.method(get)
		const seconds = 300
		time.Sleep(500 * time.Millisecond) // between two reports
		for range seconds {
			s.noteCall(m, true)
			s.noteCall(m, true)
			time.Sleep(time.Second)
		}
		b := c.controller.(*daemon).boxes[boxKey{source: c.source}]
		b.mu.Lock()
		kept := len(b.frames)
		b.mu.Unlock()
		if kept != maxFrames {
			t.Errorf("%d frames are kept, want %d", kept, maxFrames)
		}
		d.start()
		time.Sleep(10 * time.Second)
		synctest.Wait()

		var dropped, last uint64
		for _, f := range d.reported() {
			dropped += f.Dropped
			if f.Sequence <= last {
				t.Errorf("frame %d came after %d", f.Sequence, last)
			}
			last = f.Sequence
		}
		if got := calls(d.reported(), get); got != 2*maxFrames {
			t.Errorf("%d calls were reported, want those of the last %d s", got, maxFrames)
		}
		if got := calls(d.reported(), get) + dropped; got != 2*seconds {
			t.Errorf("reported and dropped calls are %d, want all %d", got, 2*seconds)
		}
	})
}

// An empty frame is a sign of life: it never takes the place of one that counts.
func TestEmptyFrameGoesAtOnceOrNotAtAll(t *testing.T) {
	b := newOutbox(report.Source{ID: "a"}, "")
	b.add(&hedgedv1.Frame{Service: "s", Sequence: 1, Dropped: 7})
	if len(b.frames) != 0 {
		t.Error("an empty frame is kept without a stream")
	}
	b.connect()
	if lost := b.add(&hedgedv1.Frame{Service: "s", Sequence: 2, Dropped: 7}); lost != 0 || len(b.frames) != 1 {
		t.Errorf("lost %d, keeps %d frames; want an empty frame to go on a live stream", lost, len(b.frames))
	}
	if lost := b.add(&hedgedv1.Frame{Service: "s", Sequence: 3, Dropped: 7}); lost != 7 || len(b.frames) != 1 {
		t.Errorf("lost %d, keeps %d frames; want the empty one given up, its losses passed on", lost, len(b.frames))
	}
}

// A frame that gRPC would not carry would break every stream it is sent on.
func TestFrameThatIsTooLargeIsGivenUp(t *testing.T) {
	b := newOutbox(report.Source{ID: "a"}, "")
	huge := &hedgedv1.Frame{Service: "s", Sequence: 1, Methods: map[string]*hedgedv1.MethodReport{
		get: {Calls: 9, Replicas: map[string]*hedgedv1.ReplicaReport{"a": {PrimaryCompleted: make([]byte, maxFrameBytes)}}},
	}}
	if lost := b.add(huge); lost != 9 || len(b.frames) != 0 {
		t.Errorf("lost %d, keeps %d frames; want the 9 calls counted and the frame gone", lost, len(b.frames))
	}
}

func TestOneServiceDoesNotCrowdOutAnother(t *testing.T) {
	b := newOutbox(report.Source{ID: "a"}, "")
	counted := map[string]*hedgedv1.MethodReport{get: {Calls: 1}}
	b.add(&hedgedv1.Frame{Service: "quiet", Sequence: 1, Methods: counted})
	for i := range uint64(1000) {
		b.add(&hedgedv1.Frame{Service: "busy", Sequence: 2 + i, Methods: counted})
	}
	if first := b.frames[0].frame; first.Service != "quiet" || len(b.frames) != maxFrames+1 {
		t.Errorf("the oldest of %d frames is of %q, want the quiet service's frame kept", len(b.frames), first.Service)
	}
}

func TestOutboxIsBoundedInBytes(t *testing.T) {
	b := newOutbox(report.Source{ID: "a"}, "")
	for i := range uint64(20) {
		b.add(&hedgedv1.Frame{Service: "s", Sequence: i + 1, Methods: map[string]*hedgedv1.MethodReport{
			get: {Calls: 1, Replicas: map[string]*hedgedv1.ReplicaReport{"a": {PrimaryCompleted: make([]byte, 1<<20)}}},
		}})
	}
	if b.bytes > maxBoxBytes || len(b.frames) != 7 {
		t.Errorf("%d frames of %d bytes are kept, want the 7 that fit into %d", len(b.frames), b.bytes, maxBoxBytes)
	}
}

// Only what was sent on this stream can be acknowledged on it.
func TestAcknowledgementOfTheUnsentIsIgnored(t *testing.T) {
	b := newOutbox(report.Source{ID: "a"}, "")
	b.connect()
	for i := range uint64(3) {
		b.add(&hedgedv1.Frame{Service: "s", Sequence: i + 1, Methods: map[string]*hedgedv1.MethodReport{get: {Calls: 1}}})
	}
	b.next()
	b.acknowledge(99)
	if len(b.frames) != 2 || b.frames[0].frame.Sequence != 2 {
		t.Errorf("%d frames are left, want the 2 unsent", len(b.frames))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("flush: %v, want it to wait for the unsent frames", err)
	}
}
