package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// ingest serves ReportService: it decodes, validates and de-duplicates each
// frame once, and posts it to the owner of its service.
type ingest struct {
	hedgedv1.UnimplementedReportServiceServer

	ctx     context.Context // of the daemon: streams end with it
	cadence time.Duration
	post    func(context.Context, *report.Report) error
	logger  *slog.Logger

	mu      sync.Mutex
	sources map[sourceKey]*source

	stats ingestStats
}

// ingestStats are counts since the start, but for open.
type ingestStats struct {
	open       atomic.Int64
	frames     atomic.Uint64
	early      atomic.Uint64
	duplicates atomic.Uint64
	refused    atomic.Uint64
	dropped    atomic.Uint64 // observations that sources say they could not keep
}

// errStopping ends the streams of a daemon that shuts down; clients retry on it.
var errStopping = status.Error(codes.Unavailable, "the daemon is shutting down")

// Report implements ReportService.
func (in *ingest) Report(stream hedgedv1.ReportService_ReportServer) error {
	in.stats.open.Add(1)
	defer in.stats.open.Add(-1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(in.ctx, cancel)()

	next := receive(ctx, stream)
	first, err := next()
	if err != nil {
		return in.end(err)
	}
	info, err := wire.SourceFromProto(first.GetSource())
	if err != nil {
		in.stats.refused.Add(1)
		return status.Errorf(codes.InvalidArgument, "source: %v", err)
	}
	src, err := in.open(info)
	if err != nil {
		return err
	}
	defer in.close(src)
	if err := stream.Send(&hedgedv1.ReportResponse{
		Acknowledged: src.sequence(),
		Cadence:      durationpb.New(in.cadence),
	}); err != nil {
		return err
	}
	for {
		req, err := next()
		if err != nil {
			return in.end(err)
		}
		answer, err := in.handle(ctx, src, req)
		if err != nil {
			return in.end(err)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// receive returns a Recv that ends with ctx: the stream's own cannot be
// interrupted, so it has a goroutine that ends with the stream.
func receive(ctx context.Context, stream hedgedv1.ReportService_ReportServer) func() (*hedgedv1.ReportRequest, error) {
	requests := make(chan *hedgedv1.ReportRequest)
	ended := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() (*hedgedv1.ReportRequest, error) {
		select {
		case r := <-requests:
			return r, nil
		case err := <-ended:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// end is the status with which a stream ends.
func (in *ingest) end(err error) error {
	switch {
	case in.ctx.Err() != nil:
		return errStopping
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return err
}

// handle takes one frame. What is wrong with a frame is said in its answer; an
// error ends the stream, and the frame was not taken: it may come again.
func (in *ingest) handle(ctx context.Context, src *source, req *hedgedv1.ReportRequest) (*hedgedv1.ReportResponse, error) {
	f := req.GetFrame()
	if f == nil {
		return nil, status.Error(codes.InvalidArgument, "message: want a frame after the first request")
	}
	select {
	case src.handling <- struct{}{}:
		defer func() { <-src.handling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	seq := f.GetSequence()
	if last := src.sequence(); seq > 0 && seq <= last {
		in.stats.duplicates.Add(1)
		return &hedgedv1.ReportResponse{Acknowledged: last}, nil
	}
	r, err := wire.FrameFromProto(src.info, f)
	if err == nil {
		err = src.admit(r.Service)
	}
	if err == nil {
		err = in.post(ctx, r)
	}
	if ctx.Err() != nil && err != nil {
		return nil, err
	}
	if err != nil {
		in.stats.refused.Add(1)
		if src.refuse(seq) { // the first; a broken client is told of each, the log is not
			in.logger.Warn("frame refused", "client", src.info.ID, "sequence", seq, "error", err)
		}
		return &hedgedv1.ReportResponse{Acknowledged: src.sequence(), Refused: err.Error()}, nil
	}
	src.accept(time.Now(), r)
	in.stats.frames.Add(1)
	in.stats.dropped.Add(r.Dropped)
	if r.Early {
		in.stats.early.Add(1)
	}
	return &hedgedv1.ReportResponse{Acknowledged: seq}, nil
}

// errTooManyServices refuses a report for one service too many.
func errTooManyServices(key policy.Key) error {
	return fmt.Errorf("service: %s would be one more than %d", key, maxServices)
}
