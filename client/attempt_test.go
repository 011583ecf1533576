package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/policy"
)

// A hedge wins with 512 KB: every byte reaches the caller, and the loser is
// cancelled at once.
func TestWinnersDataIsWhole(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 512<<10/16)
	cancelled := make(chan struct{}, 1)
	serve := func(ctx context.Context, _ string, hedge bool) ([]byte, error) {
		if !hedge {
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, ctx.Err()
		}
		return data, nil
	}
	c := newCluster(t, testService(t, testPolicy()), serve, "a", "b", "c")
	c.connect(t)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		got, err := c.call(ctx)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d bytes, %v, want %d as sent", len(got), err, len(data))
		}
		select {
		case <-cancelled:
		case <-time.After(5 * time.Second):
			t.Fatal("the loser was not cancelled")
		}
		cancel()
	}
}

// Header, trailer and peer that the caller gets are the winner's, OnFinish is
// called once for a call, and a hedge says which attempt it is.
func TestCallOptionsAreTheWinners(t *testing.T) {
	serve := func(ctx context.Context, replica string, hedge bool) ([]byte, error) {
		md := metadata.Pairs("replica", replica)
		if err := errors.Join(grpc.SetHeader(ctx, md), grpc.SetTrailer(ctx, md)); err != nil {
			return nil, err
		}
		if !hedge {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		in, _ := metadata.FromIncomingContext(ctx)
		if got := fmt.Sprint(in[previousAttemptsKey], in[hedgedAttemptKey], in["caller"]); got != "[1] [1] [me]" {
			return nil, status.Errorf(codes.InvalidArgument, "metadata %s", got)
		}
		return []byte(replica), nil
	}
	c := newCluster(t, testService(t, testPolicy()), serve, "a", "b", "c")
	c.connect(t)
	for range 20 {
		var header, trailer metadata.MD
		var from peer.Peer
		var ends []error
		ctx := metadata.AppendToOutgoingContext(context.Background(), "caller", "me")
		got, err := c.call(ctx, grpc.Header(&header), grpc.OnFinish(func(err error) { ends = append(ends, err) }),
			grpc.Trailer(&trailer), grpc.Peer(&from))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{string(got)}
		if fmt.Sprint(header["replica"]) != fmt.Sprint(want) || fmt.Sprint(trailer["replica"]) != fmt.Sprint(want) || from.Addr == nil {
			t.Errorf("header %v, trailer %v, peer %v, want the winner's, %v", header, trailer, from.Addr, want)
		}
		if len(ends) != 1 || ends[0] != nil {
			t.Errorf("OnFinish was called with %v, want nil, once", ends)
		}
	}
}

// A caller may use its request again as soon as its call has returned, though a
// loser may be reading it yet.
func TestRequestIsTheCallersAgain(t *testing.T) {
	serve := func(ctx context.Context, _ string, hedge bool) ([]byte, error) { return nil, sleep(ctx, ms) }
	s := testService(t, testPolicy(func(p *policy.Policy) { p.Default.Delay = ms }))
	c := newCluster(t, s, serve, "a", "b", "c")
	c.connect(t)
	req := wrapperspb.String("")
	for i := range 300 {
		req.Value = fmt.Sprint(i) // the race detector watches
		if err := c.conn.Invoke(context.Background(), testMethod, req, &wrapperspb.BytesValue{}); err != nil {
			t.Fatal(err)
		}
	}
	if s.method(testMethod).hedges.Load() == 0 {
		t.Error("no call was hedged")
	}
}

func TestMessages(t *testing.T) {
	type plain struct{ Text string }
	text := "text"
	full := wrapperspb.String(text)
	for name, pair := range map[string][2]any{
		"proto": {wrapperspb.String("old"), full},
		"other": {&plain{"old"}, &plain{text}},
		"slice": {&[]byte{1}, &[]byte{2, 3}},
	} {
		fresh, ok := newMessage(pair[0], messageType(pair[0]))
		if !ok || fmt.Sprintf("%T", fresh) != fmt.Sprintf("%T", pair[0]) {
			t.Errorf("%s: newMessage gives %T, %v, want a %T", name, fresh, ok, pair[0])
		}
		moveMessage(pair[0], pair[1])
		if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
			t.Errorf("%s: moved %v, want %v", name, pair[0], pair[1])
		}
	}
	for name, m := range map[string]any{
		"nil": nil, "nil proto": (*wrapperspb.StringValue)(nil), "nil pointer": (*plain)(nil), "value": plain{},
	} {
		if _, ok := newMessage(m, messageType(m)); ok {
			t.Errorf("%s: a copy of it is no use to the caller", name)
		}
	}
	if c := copyRequest(full); c == any(full) || !proto.Equal(c.(proto.Message), full) {
		t.Error("a proto request is not copied")
	}
}

func TestOptions(t *testing.T) {
	var header metadata.MD
	finished := 0
	opts := []grpc.CallOption{
		grpc.OnFinish(func(error) { finished++ }), grpc.Header(&header), grpc.WaitForReady(true),
		grpc.OnFinish(func(error) { finished++ }),
	}
	if got := withoutFinish(opts); len(got) != 2 {
		t.Errorf("%d options without OnFinish, want 2", len(got))
	}
	if got := withoutFinish(opts[1:3]); &got[0] != &opts[1] {
		t.Error("options without OnFinish were copied")
	}
	a := &attempt{received: &received{}}
	own := a.options(opts)
	if len(own) != 2 || own[0].(grpc.HeaderCallOption).HeaderAddr != &a.header {
		t.Errorf("own options %v, want a header of its own and WaitForReady", own)
	}
	if opts[1].(grpc.HeaderCallOption).HeaderAddr != &header {
		t.Error("the caller's options were changed")
	}
	finish(opts, nil)
	if finished != 2 {
		t.Errorf("OnFinish ran %d times, want both once", finished)
	}
}

func TestOutcomes(t *testing.T) {
	live := context.Background()
	over, cancel := context.WithCancel(live)
	cancel()
	tests := map[string]struct {
		ctx                         context.Context
		err                         error
		cancelled, counts, answered bool
	}{
		"ok":                  {live, nil, false, false, true},
		"ok, late":            {over, nil, false, false, true},
		"not found":           {live, status.Error(codes.NotFound, ""), false, false, true},
		"denied":              {live, status.Error(codes.PermissionDenied, ""), false, false, false},
		"unavailable":         {live, status.Error(codes.Unavailable, ""), false, true, false},
		"unavailable, late":   {over, status.Error(codes.Unavailable, ""), false, true, false},
		"cancelled":           {over, status.Error(codes.Canceled, ""), true, false, false},
		"server cancels":      {live, status.Error(codes.Canceled, ""), false, true, false},
		"deadline":            {over, status.Error(codes.DeadlineExceeded, ""), true, false, false},
		"server's deadline":   {live, status.Error(codes.DeadlineExceeded, ""), false, true, false},
		"bare context error":  {over, context.Canceled, true, false, false},
		"wrapped bare error":  {over, fmt.Errorf("read: %w", context.Canceled), true, false, false},
		"error with no code":  {live, errors.New("odd"), false, true, false},
		"resource exhaustion": {live, status.Error(codes.ResourceExhausted, ""), false, true, false},
	}
	for name, tt := range tests {
		o := outcomeOf(&policy.Method{}, tt.err)
		o.cancelled = o.torn && tt.ctx.Err() != nil
		if o.cancelled != tt.cancelled || o.counts() != tt.counts || o.answered != tt.answered {
			t.Errorf("%s: cancelled %v, counts %v, answered %v; want %v, %v, %v", name,
				o.cancelled, o.counts(), o.answered, tt.cancelled, tt.counts, tt.answered)
		}
	}
}
