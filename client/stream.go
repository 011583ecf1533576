package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
)

// framesPerAnswer is how many frames one answer of the daemon may stand for: to
// write and to read an answer costs about as much as a frame. At the usual cadence
// of 1 s the daemon is still heard of every 4 s.
const framesPerAnswer = 4

// deliver sends the frames of the outbox on one report stream until it breaks
// or ctx ends; answered tells whether the daemon sent anything.
func (b *outbox) deliver(ctx context.Context, d *daemon, conn *grpc.ClientConn, wait bool, l Listener) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := hedgedv1.NewReportServiceClient(conn).Report(ctx, grpc.WaitForReady(wait))
	if err != nil {
		return false, err
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				cancel(err)
				return
			}
			answered = true
			b.answer(answer, d, l)
		}
	})
	b.connect()
	err = b.send(ctx, stream)
	b.disconnect()
	if !errors.Is(err, io.EOF) { // that is: Recv knows the error
		cancel(err)
	}
	receiving.Wait()
	if err = context.Cause(ctx); errors.Is(err, io.EOF) {
		err = nil // the end that it was asked for
	}
	return answered, err
}

// send sends the source, and frames as they come, until sending fails or ctx ends.
func (b *outbox) send(ctx context.Context, stream grpc.BidiStreamingClient[hedgedv1.ReportRequest, hedgedv1.ReportResponse]) error {
	source := &hedgedv1.ReportRequest_Source{Source: wire.SourceToProto(b.source)}
	source.Source.FramesPerAnswer = framesPerAnswer
	if err := stream.Send(&hedgedv1.ReportRequest{Message: source}); err != nil {
		return err
	}
	for {
		f, changed, last := b.next()
		if last {
			if err := stream.CloseSend(); err != nil {
				return err
			}
			<-ctx.Done() // Recv knows what comes
			return io.EOF
		}
		if f == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: f}}); err != nil {
			return err
		}
	}
}

func (b *outbox) answer(a *hedgedv1.ReportResponse, d *daemon, l Listener) {
	l.Heard()
	if a.Cadence != nil {
		l.SetCadence(a.Cadence.AsDuration())
	}
	if a.Refused != "" {
		l.Refused(a.Refused)
	}
	if a.Redirect != "" {
		d.redirect(b, a.Acknowledged, a.Redirect)
	}
	b.acknowledge(a.Acknowledged)
}
