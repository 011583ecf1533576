package daemon

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Bounds of what sources may make the daemon remember.
const (
	maxSources = 100_000
	// A source is forgotten this long after its last stream. Until then a frame
	// that it sends again is known for what it is.
	sourceMemory = 10 * time.Minute
	// Services of one source: one that puts ids into the names of services must
	// not take all the places that there are.
	maxSourceServices = 1000
)

type sourceKey struct {
	id          string
	incarnation uint64
	kind        report.Kind
}

// source is what is remembered of one life of one client or server. It is safe
// for concurrent use.
type source struct {
	info report.Source

	// Of size 1, and full while a frame is taken in: where a broken stream is not
	// noticed yet, the frame that comes again on the next one must wait for it.
	handling chan struct{}

	mu          sync.Mutex
	last        uint64 // highest sequence handled
	streams     int    // open now
	frameAt     time.Time
	closedAt    time.Time // end of the last stream
	refused     uint64
	generations map[policy.Key]policy.Generation // in force there, by its last reports
}

// sequence returns the highest sequence handled.
func (s *source) sequence() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// admit refuses one service too many.
func (s *source) admit(key policy.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.generations[key]; !known && len(s.generations) >= maxSourceServices {
		return fmt.Errorf("service: %s would be one more than %d of one source", key, maxSourceServices)
	}
	return nil
}

// accept takes note of a frame that was taken in.
func (s *source) accept(now time.Time, r *report.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = r.Sequence
	s.frameAt = now
	s.generations[r.Service] = r.Generation
}

// refuse takes note of a frame that was refused, and reports whether it is the first.
func (s *source) refuse(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, seq)
	s.refused++
	return s.refused == 1
}

// sourceView is a source at one moment.
type sourceView struct {
	info        report.Source
	streaming   bool
	frameAt     time.Time
	refused     uint64
	generations map[policy.Key]policy.Generation
}

func (s *source) view() sourceView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sourceView{
		info:        s.info,
		streaming:   s.streams > 0,
		frameAt:     s.frameAt,
		refused:     s.refused,
		generations: maps.Clone(s.generations),
	}
}

// open remembers a source, or finds it again when its stream was broken.
func (in *ingest) open(info report.Source) (*source, error) {
	key := sourceKey{info.ID, info.Incarnation, info.Kind}
	in.mu.Lock()
	defer in.mu.Unlock()
	src := in.sources[key]
	if src == nil {
		if len(in.sources) >= maxSources {
			return nil, status.Errorf(codes.ResourceExhausted, "source: %d are known already, want at most %d", len(in.sources), maxSources)
		}
		src = &source{
			info:        info,
			handling:    make(chan struct{}, 1),
			generations: map[policy.Key]policy.Generation{},
		}
		in.sources[key] = src
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	src.streams++
	return src, nil
}

// close takes note that a stream ended. A source that sent no frame has nothing
// to be remembered for.
func (in *ingest) close(src *source) {
	in.mu.Lock()
	defer in.mu.Unlock()
	src.mu.Lock()
	defer src.mu.Unlock()
	src.streams--
	src.closedAt = time.Now()
	if src.streams == 0 && src.last == 0 {
		delete(in.sources, sourceKey{src.info.ID, src.info.Incarnation, src.info.Kind})
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
			in.forget(now)
		}
	}
}

func (in *ingest) forget(now time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for key, src := range in.sources {
		src.mu.Lock()
		gone := src.streams == 0 && now.Sub(src.closedAt) > sourceMemory
		src.mu.Unlock()
		if gone {
			delete(in.sources, key)
		}
	}
}

// counts returns how many sources are remembered, and how many of them are
// clients with a stream.
func (in *ingest) counts() (sources, clients int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, src := range in.sources {
		src.mu.Lock()
		if src.info.Kind == report.Client && src.streams > 0 {
			clients++
		}
		src.mu.Unlock()
	}
	return len(in.sources), clients
}

// all returns the sources that are remembered.
func (in *ingest) all() []sourceView {
	in.mu.Lock()
	defer in.mu.Unlock()
	views := make([]sourceView, 0, len(in.sources))
	for _, src := range in.sources {
		views = append(views, src.view())
	}
	return views
}
