package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
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

	ctx     context.Context // of the daemon: streams end after it
	drain   time.Duration   // within which they do
	cadence time.Duration
	post    func(context.Context, *report.Report) error
	logger  *slog.Logger

	tasks sync.WaitGroup // what receives; ends with the streams

	mu      sync.Mutex
	sources map[sourceKey]*source

	stats ingestStats
}

// maxFramesPerAnswer bounds what a source may let wait for an answer, and so what
// it sends again after a broken stream.
const maxFramesPerAnswer = 16

// answerWithin bounds the time without an answer of sources that report at the
// cadence: the answers tell clients that the daemon lives, and their policies
// stay valid by them.
const answerWithin = 10 * time.Second

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

// Report implements ReportService. A goroutine of the stream's own receives and
// answers, since nothing but the end of this call interrupts Recv.
func (in *ingest) Report(stream hedgedv1.ReportService_ReportServer) error {
	in.stats.open.Add(1)
	defer in.stats.open.Add(-1)
	ended := make(chan error, 1)
	in.tasks.Go(func() { ended <- in.serve(stream) })
	select {
	case err := <-ended:
		return err
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-in.ctx.Done():
	}
	// Not all streams at the same moment: each is followed by a new connection.
	timer := time.NewTimer(rand.N(in.drain + 1))
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-timer.C:
		return errStopping
	}
}

// serve receives and answers until the source closes its side or an error ends
// the stream.
func (in *ingest) serve(stream hedgedv1.ReportService_ReportServer) error {
	first, err := stream.Recv()
	if err != nil {
		return ofSource(err)
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
	mayWait := min(first.GetSource().GetFramesPerAnswer(), maxFramesPerAnswer, uint32(answerWithin/in.cadence))
	unanswered := uint32(0)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) && unanswered > 0 {
			return stream.Send(&hedgedv1.ReportResponse{Acknowledged: src.sequence()})
		}
		if err != nil {
			return ofSource(err)
		}
		answer, taken, err := in.handle(stream.Context(), src, req)
		if err != nil {
			return err
		}
		if unanswered++; taken && unanswered < mayWait {
			continue
		}
		unanswered = 0
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// ofSource is the status of a stream that its source ended.
func ofSource(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// handle takes one frame, and tells whether it was taken. What is wrong with a
// frame is said in its answer; an error ends the stream: the frame may come again.
func (in *ingest) handle(ctx context.Context, src *source, req *hedgedv1.ReportRequest) (answer *hedgedv1.ReportResponse, taken bool, err error) {
	f := req.GetFrame()
	if f == nil {
		return nil, false, status.Error(codes.InvalidArgument, "message: want a frame after the first request")
	}
	select {
	case src.handling <- struct{}{}:
		defer func() { <-src.handling }()
	case <-ctx.Done():
		return nil, false, status.FromContextError(ctx.Err()).Err()
	}
	seq := f.GetSequence()
	if last := src.sequence(); seq > 0 && seq <= last {
		in.stats.duplicates.Add(1)
		return &hedgedv1.ReportResponse{Acknowledged: last}, false, nil
	}
	r, err := wire.FrameFromProto(src.info, f)
	if err == nil {
		err = src.admit(r.Service)
	}
	if err == nil {
		err = in.post(ctx, r)
	}
	if ctx.Err() != nil && err != nil {
		return nil, false, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		in.stats.refused.Add(1)
		if src.refuse(seq) { // the first; a broken client is told of each, the log is not
			in.logger.Warn("frame refused", "client", src.info.ID, "sequence", seq, "error", err)
		}
		return &hedgedv1.ReportResponse{Acknowledged: src.sequence(), Refused: err.Error()}, false, nil
	}
	src.accept(time.Now(), r)
	in.stats.frames.Add(1)
	in.stats.dropped.Add(r.Dropped)
	if r.Early {
		in.stats.early.Add(1)
	}
	return &hedgedv1.ReportResponse{Acknowledged: seq}, true, nil
}

// errTooManyServices refuses a report for one service too many.
func errTooManyServices(key policy.Key) error {
	return fmt.Errorf("service: %s would be one more than %d", key, maxServices)
}
