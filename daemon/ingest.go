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

// Bounds of what all sources together may make the daemon remember.
const (
	maxSources = 100_000
	// A source is forgotten this long after its last frame. Until then a frame
	// that it sends again is known for what it is.
	sourceMemory = 10 * time.Minute
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

type sourceKey struct {
	id          string
	incarnation uint64
	kind        report.Kind
}

// source is what is remembered of one life of one client or server.
type source struct {
	info report.Source

	mu          sync.Mutex
	last        uint64 // highest sequence handled
	streams     int    // open now
	frameAt     time.Time
	refused     uint64
	generations map[policy.Key]policy.Generation // in force there, by its last reports
}

// Report implements ReportService.
func (in *ingest) Report(stream hedgedv1.ReportService_ReportServer) error {
	in.stats.open.Add(1)
	defer in.stats.open.Add(-1)

	first, err := stream.Recv()
	if err != nil {
		return endOfStream(err)
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

	// Recv cannot be interrupted, so the stream's own goroutine waits for it and
	// for the daemon's end, whichever is first.
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
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case <-in.ctx.Done():
			return status.Error(codes.Unavailable, "the daemon is shutting down")
		case err := <-ended:
			return endOfStream(err)
		case r := <-requests:
			answer, err := in.handle(stream.Context(), src, r)
			if err != nil {
				return err
			}
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	}
}

func endOfStream(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// handle takes one frame. What is wrong with a frame is said in its answer; an
// error ends the stream.
func (in *ingest) handle(ctx context.Context, src *source, req *hedgedv1.ReportRequest) (*hedgedv1.ReportResponse, error) {
	f := req.GetFrame()
	if f == nil {
		return nil, status.Error(codes.InvalidArgument, "message: want a frame after the first request")
	}
	seq := f.GetSequence()
	src.mu.Lock()
	seen := seq <= src.last
	if !seen {
		src.last = seq
	}
	src.mu.Unlock()
	if seen {
		in.stats.duplicates.Add(1)
		return &hedgedv1.ReportResponse{Acknowledged: src.sequence()}, nil
	}

	r, err := wire.FrameFromProto(src.info, f)
	if err == nil {
		err = in.post(ctx, r)
	}
	if err != nil {
		in.stats.refused.Add(1)
		src.mu.Lock()
		src.refused++
		src.mu.Unlock()
		in.logger.Warn("frame refused", "client", src.info.ID, "sequence", seq, "error", err)
		return &hedgedv1.ReportResponse{Acknowledged: seq, Refused: err.Error()}, nil
	}
	in.stats.frames.Add(1)
	in.stats.dropped.Add(r.Dropped)
	if r.Early {
		in.stats.early.Add(1)
	}
	src.mu.Lock()
	src.frameAt = time.Now()
	src.generations[r.Service] = r.Generation
	src.mu.Unlock()
	return &hedgedv1.ReportResponse{Acknowledged: seq}, nil
}

// open remembers a source, or finds it again when its stream was broken.
func (in *ingest) open(info report.Source) (*source, error) {
	key := sourceKey{info.ID, info.Incarnation, info.Kind}
	in.mu.Lock()
	defer in.mu.Unlock()
	src := in.sources[key]
	if src == nil {
		if len(in.sources) >= maxSources {
			in.forget(time.Now())
		}
		if len(in.sources) >= maxSources {
			return nil, status.Errorf(codes.ResourceExhausted, "source: %d are known already, want at most %d", len(in.sources), maxSources)
		}
		src = &source{info: info, generations: map[policy.Key]policy.Generation{}}
		in.sources[key] = src
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	src.streams++
	return src, nil
}

func (in *ingest) close(src *source) {
	src.mu.Lock()
	defer src.mu.Unlock()
	src.streams--
	src.frameAt = time.Now()
}

// forget drops the sources that have been gone for long. The caller holds mu.
func (in *ingest) forget(now time.Time) {
	for key, src := range in.sources {
		src.mu.Lock()
		gone := src.streams == 0 && now.Sub(src.frameAt) > sourceMemory
		src.mu.Unlock()
		if gone {
			delete(in.sources, key)
		}
	}
}

// forgetLoop drops sources that have been gone for long, until ctx ends.
func (in *ingest) forgetLoop(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			in.mu.Lock()
			in.forget(now)
			in.mu.Unlock()
		}
	}
}

// sequence returns the highest sequence handled.
func (s *source) sequence() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// snapshot returns the sources known now.
func (in *ingest) snapshot() []*source {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := make([]*source, 0, len(in.sources))
	for _, src := range in.sources {
		all = append(all, src)
	}
	return all
}

// errTooManyServices refuses a report for one service too many.
func errTooManyServices(key policy.Key) error {
	return fmt.Errorf("service: %s would be one more than %d", key, maxServices)
}
