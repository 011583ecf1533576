package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hedged-project/hedged/policy"
)

// stream measures a connection's server streams and hedges those that may run
// twice. Streams that the client may write to for long pass by it.
func (in *interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, fullMethod string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if desc.ClientStreams || !desc.ServerStreams {
		return streamer(ctx, desc, cc, fullMethod, opts...)
	}
	s := &serverStream{desc: desc, streamer: streamer}
	s.request = request{fullMethod: fullMethod, cc: cc, opts: opts}
	s.ctx, s.service, s.alarms, s.carrier = unmarked(ctx), in.service, &in.alarms, s
	s.safe = in.safety.safe(fullMethod) || keyed(ctx)
	s.primary.call = &s.call
	if s.begin(fullMethod) {
		return s, nil
	}
	s.primary.Context = s.ctx
	plain, err := streamer(&s.primary, desc, cc, fullMethod, opts...)
	if err != nil {
		s.measured(&s.primary.try, outcomeOf(s.law, err), err)
		return nil, err
	}
	return &measuredStream{ClientStream: plain, call: &s.call}, nil
}

// measuredStream is a stream that is not hedged. Its latency counts up to its
// header, or its end, as its caller first sees it.
type measuredStream struct {
	grpc.ClientStream
	call *call
	once sync.Once
}

// Header is part of grpc.ClientStream.
func (s *measuredStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if md != nil || err != nil {
		s.seen(err)
	}
	return md, err
}

// RecvMsg is part of grpc.ClientStream.
func (s *measuredStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.seen(err)
	return err
}

func (s *measuredStream) seen(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.once.Do(func() { s.call.measured(&s.call.primary.try, outcomeOf(s.call.law, err), err) })
}

// serverStream is a call with one request and many replies, the carrier of its own
// race. It begins when the request is sent, and each attempt has a goroutine until
// its header has come or it has ended without. What happens before the header,
// the streamer's own errors included, the caller learns from Header and RecvMsg.
//
// gRFC A6: "An RPC becomes committed [when] the client receives Response-Headers."
// "If the application code closes the stream with an error before sending headers
// or any response messages, gRPC servers should send the error in Trailers-Only":
// that is an end before the header, and another attempt may do better.
type serverStream struct {
	call
	desc     *grpc.StreamDesc
	streamer grpc.Streamer

	begun    sync.Once
	started  bool // guarded by race.mu, like what follows
	reported bool // the caller's OnFinish options have run
}

// flow is what an attempt of a stream has beside a call's.
type flow struct {
	cancel context.CancelFunc
	stream grpc.ClientStream // written before the attempt's end in the race
	header metadata.MD       // likewise; nil: it ended without

	finished bool // as grpc says; guarded by race.mu, like its error
	failure  error
}

// SendMsg is part of grpc.ClientStream. It sends the one request.
func (s *serverStream) SendMsg(m any) error {
	err := status.Error(codes.Internal, "hedged: a server stream takes one request")
	s.begun.Do(func() {
		err = nil
		s.req = copyRequest(m) // "It is not safe to modify the message", but a caller may
		s.mu.Lock()
		s.started = true
		s.mu.Unlock()
		s.primary.Context, s.primary.flow, s.primary.received = s.attemptContext()
		s.run()
		go s.attempt(&s.primary)
	})
	return err
}

func (s *serverStream) attemptContext() (context.Context, *flow, *received) {
	ctx, cancel := context.WithCancel(s.ctx)
	return ctx, &flow{cancel: cancel}, &received{}
}

// CloseSend is part of grpc.ClientStream. Each attempt closes its own direction.
func (s *serverStream) CloseSend() error { return nil }

// attempt is the goroutine of an attempt, until the race knows its end.
func (s *serverStream) attempt(a *attempt) {
	a.err = s.open(a)
	o, err := outcome{answered: true}, a.err // and whether it succeeds will show
	if a.flow.header == nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		o = outcomeOf(s.law, err)
	}
	s.ended(a, o, err)
	s.finish()
}

// open makes the attempt, up to its header: an error, io.EOF included, is its
// end without one.
func (s *serverStream) open(a *attempt) (err error) {
	opts := append(a.options(s.opts), grpc.OnFinish(func(err error) { s.finished(a, err) }))
	f := a.flow
	if f.stream, err = s.streamer(a, s.desc, s.cc, s.fullMethod, opts...); err != nil {
		s.finished(a, err)
		return err
	}
	// An error of either is of the stream, and what follows tells it.
	if f.stream.SendMsg(s.req) == nil {
		_ = f.stream.CloseSend()
	}
	if f.header, err = f.stream.Header(); err == nil && f.header == nil {
		// "the stream was terminated without headers, and the status can be
		// discovered by calling RecvMsg" (grpc.ClientStream).
		err = f.stream.RecvMsg(new(emptypb.Empty))
	}
	return err
}

// finished is grpc's OnFinish of an attempt.
func (s *serverStream) finished(a *attempt, err error) {
	s.mu.Lock()
	a.flow.finished, a.flow.failure = true, err
	s.mu.Unlock()
	s.finish()
}

// finish runs the caller's OnFinish options once the call's end is known.
func (s *serverStream) finish() {
	s.mu.Lock()
	winner, _ := s.winner.(*attempt)
	done := s.over && !s.reported && (winner == nil || winner.flow.finished)
	s.reported = s.reported || done
	s.mu.Unlock()
	if !done {
		return
	}
	err := status.FromContextError(s.ctx.Err()).Err()
	if winner != nil {
		err = s.callersError(winner.flow.failure)
		s.judgeEnd(winner, err)
		winner.flow.cancel()
	}
	s.noteHedges()
	finish(s.opts, err)
}

// judgeEnd counts the end of a stream whose header has come: until then, nobody
// knew whether it would succeed.
func (s *serverStream) judgeEnd(winner *attempt, err error) {
	if winner.flow.header == nil {
		return
	}
	o := outcomeOf(s.law, err)
	o.cancelled = o.torn && s.ctx.Err() != nil
	s.mu.Lock()
	winner.tell(s.service.throttle, o)
	s.mu.Unlock()
	if o.counts() {
		s.method.failures.Add(1)
	}
}

// decided waits for the attempt whose stream is the call's.
func (s *serverStream) decided() (*attempt, error) {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if !started {
		return nil, status.Error(codes.Internal, "hedged: a server stream has nothing to read before its request is sent")
	}
	winner, ok := s.await().(*attempt)
	if !ok {
		s.finish()
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
	return winner, nil
}

// Header is part of grpc.ClientStream.
func (s *serverStream) Header() (metadata.MD, error) {
	winner, err := s.decided()
	if err != nil || winner.flow.header != nil {
		return winner.headers(), err
	}
	return nil, nil // the status is for RecvMsg to tell
}

func (a *attempt) headers() metadata.MD {
	if a == nil {
		return nil
	}
	return a.flow.header
}

// RecvMsg is part of grpc.ClientStream.
func (s *serverStream) RecvMsg(m any) error {
	winner, err := s.decided()
	if err != nil {
		return err
	}
	if err = winner.err; err == nil {
		err = winner.flow.stream.RecvMsg(m)
	}
	if err != nil {
		winner.deliver(nil, s.opts)
	}
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.callersError(err)
}

// Trailer is part of grpc.ClientStream.
func (s *serverStream) Trailer() metadata.MD {
	s.mu.Lock()
	winner, ok := s.winner.(*attempt)
	s.mu.Unlock()
	if !ok || winner.flow.stream == nil {
		return nil
	}
	return winner.flow.stream.Trailer()
}

// Context is part of grpc.ClientStream.
func (s *serverStream) Context() context.Context {
	s.mu.Lock()
	winner, ok := s.winner.(*attempt)
	s.mu.Unlock()
	if !ok || winner.flow.stream == nil {
		return s.ctx
	}
	return winner.flow.stream.Context()
}

// ready is part of carrier.
func (s *serverStream) ready() (policy.Suppression, bool) {
	switch {
	case !s.untried():
		return policy.SuppressedReplica, false
	case !s.fits():
		return policy.SuppressedUnsafe, false
	}
	return 0, true
}

// launch is part of carrier.
func (s *serverStream) launch(t try) runner {
	a := &attempt{call: &s.call, try: t}
	a.Context, a.flow, a.received = s.attemptContext()
	a.Context = hedgeContext(a.Context, t.index)
	go s.attempt(a)
	return a
}

// settle is part of carrier. The winner goes on, to its stream's end.
func (s *serverStream) settle() {
	if !s.primary.ended {
		s.primary.flow.cancel()
	}
	for _, h := range s.hedges {
		if a := h.(*attempt); !a.ended {
			a.flow.cancel()
		}
	}
}

// discard is part of carrier.
func (s *serverStream) discard(a runner) { a.(*attempt).flow.cancel() }
