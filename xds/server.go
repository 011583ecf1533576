package xds

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options configure a Server. The zero value is ready.
type Options struct {
	// Logger gets a warning for each rejected response and each refused stream. Nil: none.
	Logger *slog.Logger
	// Drain is the time over which streams end, at random, once the server's
	// context has ended, so that their clients do not come back together. 0: at once.
	Drain time.Duration
}

// Server is the xDS service over one Cache. It is safe for concurrent use.
type Server struct {
	ctx      context.Context
	cache    *Cache
	logger   *slog.Logger
	drain    time.Duration
	shards   []*shard
	stats    counters
	tasks    sync.WaitGroup // the shards and the streams
	accounts accounts

	mu      sync.Mutex
	stopped bool
	streams map[*stream]struct{}
}

type counters struct {
	opened, refused, requests, responses, acks, nacks atomic.Uint64
	spreads                                           spreads
}

// NewServer starts to serve cache until ctx ends; then every stream ends with
// the status Unavailable, which clients retry.
func NewServer(ctx context.Context, cache *Cache, opts Options) *Server {
	s := &Server{
		ctx:      ctx,
		cache:    cache,
		logger:   opts.Logger,
		drain:    opts.Drain,
		accounts: accounts{byAddr: map[string]*account{}},
		streams:  map[*stream]struct{}{},
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	// Half of the processors: to write a response to its socket, which is the
	// transport's part, takes about as long as to hand it over.
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		f, revs := cache.attach()
		x := newShard(s, f)
		s.shards = append(s.shards, x)
		s.tasks.Go(func() { x.run(revs) })
	}
	s.tasks.Go(func() {
		<-ctx.Done()
		for _, x := range s.shards {
			cache.detach(x.feed)
		}
		s.mu.Lock()
		s.stopped = true // from here on nothing joins tasks
		s.mu.Unlock()
	})
	return s
}

// Wait returns when the context of NewServer has ended and all streams with it.
func (s *Server) Wait() { s.tasks.Wait() }

// serve runs one stream from its first message to its last.
func (s *Server) serve(ctx context.Context, kind StreamKind, only string, recv func() (*request, error), send func(*reply) error) error {
	account, err := s.accounts.open(address(ctx))
	if err != nil {
		s.stats.refused.Add(1)
		return status.Error(codes.ResourceExhausted, "xds: "+err.Error())
	}
	defer s.accounts.close(account)
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errStopped
	}
	s.tasks.Add(1)
	st := &stream{
		server:  s,
		shard:   s.shards[s.stats.opened.Add(1)%uint64(len(s.shards))],
		account: account,
		kind:    kind,
		only:    only,
		since:   time.Now(),
		send:    send,
		end:     make(chan error, 1),
		legacy:  true,
	}
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		st.close()
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
		s.tasks.Done()
	}()
	return st.serve(ctx, recv)
}

// refused counts and logs a stream that a request out of bounds ends.
func (s *Server) refused(st *stream, err error) {
	s.stats.refused.Add(1)
	s.logger.Warn("xds stream refused", "peer", st.account.addr, "kind", st.kind.String(), "error", err)
}

// answered counts and logs what r says about a response.
func (s *Server) answered(st *stream, r *request, v verdict) {
	switch v {
	case accepted:
		s.stats.acks.Add(1)
	case rejected:
		s.stats.nacks.Add(1)
		s.logger.Warn("xds response rejected", "peer", st.account.addr, "kind", st.kind.String(), "type", r.typeURL, "reason", r.reason)
	}
}

// spread counts a publish whose last client has answered.
func (s *Server) spread(r *resource) { s.stats.spreads.observe(time.Since(r.spread.published)) }
