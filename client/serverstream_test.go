package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/policy"
)

// listing opens a server stream and sends its request.
func (c *cluster) listing(ctx context.Context, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, listMethod, opts...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(wrapperspb.String("key")); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}

// readStream reads a stream to its end; the error is nil where that is io.EOF.
func readStream(stream grpc.ClientStream) (got []string, err error) {
	for {
		m := &wrapperspb.BytesValue{}
		switch err := stream.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil:
			return got, err
		}
		got = append(got, string(m.Value))
	}
}

func streamCluster(t testing.TB, s *service, list listFunc) *cluster {
	c := newCluster(t, s, nil, "a", "b", "c")
	c.list = list
	c.connect(t)
	return c
}

// list sends a header that names the replica, three messages and a trailer.
func list(stream grpc.ServerStream, replica string) error {
	md := metadata.Pairs("replica", replica)
	if err := stream.SendHeader(md); err != nil {
		return err
	}
	for i := range 3 {
		if err := stream.SendMsg(wrapperspb.Bytes(fmt.Append(nil, replica, i))); err != nil {
			return err
		}
	}
	stream.SetTrailer(md)
	return nil
}

// A hedge of a stream wins: all that the caller sees is the hedge's, the loser is
// cancelled at once, and nothing is outstanding at the end.
func TestStreamHedgeWins(t *testing.T) {
	arrived, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 }))
	c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, hedge bool) error {
		if !hedge {
			arrived <- struct{}{}
			<-stream.Context().Done()
			cancelled <- struct{}{}
			return stream.Context().Err()
		}
		<-arrived
		if err := list(stream, replica); err != nil {
			return err
		}
		<-cancelled // long before the winner's end
		return nil
	})
	for range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var header, trailer metadata.MD
		var from peer.Peer
		ends := make(chan error, 10)
		stream, err := c.listing(ctx, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from),
			grpc.OnFinish(func(err error) { ends <- err }))
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Header()
		got, end := readStream(stream)
		if err != nil || end != nil {
			t.Fatalf("header %v, %v, messages %v, %v", first, err, got, end)
		}
		replica := first.Get("replica")[0]
		if want := []string{replica + "0", replica + "1", replica + "2"}; !slices.Equal(got, want) {
			t.Errorf("messages %v, want %v", got, want)
		}
		if header.Get("replica")[0] != replica || stream.Trailer().Get("replica")[0] != replica ||
			trailer.Get("replica")[0] != replica || from.Addr == nil {
			t.Errorf("header %v, trailers %v and %v, peer %v; want %s's", header, stream.Trailer(), trailer, from.Addr, replica)
		}
		if err := <-ends; err != nil || len(ends) != 0 {
			t.Errorf("OnFinish was called with %v, and %d times more, want nil, once", err, len(ends))
		}
		cancel()
	}
	if got := s.method(listMethod).counts(); got.Calls != 10 || got.Hedges != 10 || got.Wins != 10 || got.Failures != 0 {
		t.Errorf("counts %+v, want 10 calls, hedges and wins", got)
	}
	eventually(t, func() (string, bool) {
		var outstanding int64
		for _, seen := range c.balancer.Load().current.Load().replicas {
			outstanding += seen.outstanding.Load()
		}
		return fmt.Sprintf("%d attempts outstanding", outstanding), outstanding == 0
	})
}

// A stream commits on its header: however slow its messages are then, it has no
// hedge, and an error is the caller's.
func TestStreamCommitsOnItsHeader(t *testing.T) {
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.NonFatal = []uint32{uint32(codes.Unavailable)} }))
	c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, _ bool) error {
		if err := stream.SendHeader(metadata.Pairs("replica", replica)); err != nil {
			return err
		}
		time.Sleep(3 * s.policy().Default.Delay)
		if err := stream.SendMsg(wrapperspb.Bytes([]byte("data"))); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "gone")
	})
	s.throttle.Set(policy.Throttle{MaxTokens: 10, TokenRatio: .1})
	stream, err := c.listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := readStream(stream)
	if status.Code(err) != codes.Unavailable || !slices.Equal(got, []string{"data"}) {
		t.Errorf("got %v, %v, want data and then Unavailable", got, err)
	}
	eventually(t, func() (string, bool) {
		want := Counts{Calls: 1, Safe: 1, Failures: 1}
		got := s.method(listMethod).counts()
		return fmt.Sprintf("counts %+v, want %+v", got, want), got == want
	})
}

// What ends before its header is followed by the next attempt where the code is
// not fatal, and ends the call where it is.
func TestStreamFailsBeforeItsHeader(t *testing.T) {
	for code, attempts := range map[codes.Code]int64{codes.Unavailable: 2, codes.PermissionDenied: 1} {
		s := testService(t, testPolicy(func(p *policy.Policy) {
			p.Default.NonFatal = []uint32{uint32(codes.Unavailable)}
			p.Default.Delay = time.Minute
		}))
		c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, hedge bool) error {
			if !hedge {
				return status.Error(code, "no")
			}
			return list(stream, replica)
		})
		ends := make(chan error, 10)
		stream, err := c.listing(t.Context(), grpc.OnFinish(func(err error) { ends <- err }))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readStream(stream)
		if seen := c.seen.Load(); seen != attempts || (err == nil) != (attempts == 2) || (len(got) == 3) != (attempts == 2) {
			t.Errorf("%v: %d attempts, %v, %v, want %d", code, seen, got, err, attempts)
		}
		if end := <-ends; status.Code(end) != status.Code(err) || len(ends) > 0 {
			t.Errorf("%v: OnFinish was called with %v, want %v, once", code, end, err)
		}
	}
}

// An end that is OK without header or message is an answer.
func TestEmptyStream(t *testing.T) {
	c := streamCluster(t, testService(t, testPolicy()), func(grpc.ServerStream, string, bool) error { return nil })
	stream, err := c.listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readStream(stream); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v, want a stream without messages", got, err)
	}
}

// A caller that leaves, before or after the header, leaves nothing behind, and
// its OnFinish is called once.
func TestStreamsThatAreLeft(t *testing.T) {
	const calls, workers = 200, 20
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
	var served atomic.Int64
	c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, _ bool) error {
		if served.Add(1)%3 == 0 {
			if err := list(stream, replica); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	})
	before := runtime.NumGoroutine()
	var running sync.WaitGroup
	var ends atomic.Int64
	for range workers {
		running.Go(func() {
			for range calls / workers {
				ctx, cancel := context.WithTimeout(context.Background(), 5*ms)
				stream, err := c.listing(ctx, grpc.OnFinish(func(err error) {
					if code := status.Code(err); code != codes.DeadlineExceeded {
						t.Errorf("OnFinish was called with %v, want the deadline's error", err)
					}
					ends.Add(1)
				}))
				if err != nil {
					t.Error(err)
				}
				if _, err := readStream(stream); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("got %v, want the deadline's error", err)
				}
				cancel()
			}
		})
	}
	running.Wait()
	eventually(t, func() (string, bool) {
		n := runtime.NumGoroutine()
		return fmt.Sprintf("%d goroutines, %d before; OnFinish called %d times", n, before, ends.Load()),
			n <= before+3 && ends.Load() == calls
	})
}

// What a client streams passes by: it is never hedged. Nor is a server stream that
// may not run twice, which is measured all the same.
func TestStreamsThatAreNotHedged(t *testing.T) {
	s := testService(t, testPolicy())
	c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, _ bool) error {
		time.Sleep(2 * s.policy().Default.Delay)
		return list(stream, replica)
	})
	stream, err := c.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, putMethod)
	if err != nil {
		t.Fatal(err)
	}
	reply := &wrapperspb.BytesValue{}
	if err := errors.Join(stream.SendMsg(wrapperspb.String("data")), stream.CloseSend(), stream.RecvMsg(reply)); err != nil || len(reply.Value) == 0 {
		t.Errorf("got %q, %v, want an answer", reply.Value, err)
	}

	c.safety = &safety{listed: func(string) bool { return false }, files: new(noFiles)}
	stream, err = c.listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readStream(stream); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v, want 3 messages", got, err)
	}
	want := Counts{Calls: 1}
	want.Suppressed[policy.SuppressedUnsafe] = 1
	if got := s.method(listMethod).counts(); got != want || c.seen.Load() != 2 {
		t.Errorf("counts %+v of %d attempts, want %+v of 2", got, c.seen.Load(), want)
	}
}

// A stream that is used out of order says so and does not hang.
func TestStreamOutOfOrder(t *testing.T) {
	c := streamCluster(t, testService(t, testPolicy()), func(stream grpc.ServerStream, replica string, _ bool) error {
		return list(stream, replica)
	})
	stream, err := c.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, listMethod)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readStream(stream); status.Code(err) != codes.Internal {
		t.Errorf("read before the request was sent: %v, want Internal", err)
	}
	if err := stream.SendMsg(wrapperspb.String("key")); err != nil {
		t.Error(err)
	}
	if err := stream.SendMsg(wrapperspb.String("key")); status.Code(err) != codes.Internal {
		t.Errorf("a second request: %v, want Internal", err)
	}
	if got, err := readStream(stream); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v, want 3 messages", got, err)
	}
}

// The primary's header comes while a hedge runs: the hedge is cancelled.
func TestStreamPrimaryWins(t *testing.T) {
	arrived, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.MaxAttempts = 2 }))
	c := streamCluster(t, s, func(stream grpc.ServerStream, replica string, hedge bool) error {
		if hedge {
			arrived <- struct{}{}
			<-stream.Context().Done()
			cancelled <- struct{}{}
			return stream.Context().Err()
		}
		<-arrived
		if err := list(stream, replica); err != nil {
			return err
		}
		select {
		case <-cancelled:
			return nil
		case <-time.After(5 * time.Second):
			return status.Error(codes.Aborted, "the hedge was not cancelled")
		}
	})
	stream, err := c.listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readStream(stream); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v, want 3 messages", got, err)
	}
	if got := s.method(listMethod).counts(); got.Hedges != 1 || got.Wins != 0 {
		t.Errorf("counts %+v, want a hedge that did not win", got)
	}
}
