package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// ServerOption returns the option for grpc.NewServer that counts what a replica
// of a service sees: attempts, hedges among them, those that their callers
// cancelled, and the time that handlers spent on these. The counts are reported
// like a client's. The service is named as for DialOptions; replica is this
// replica's name as its clients' resolvers have it, by default the address that
// they dial. Like http.ServeMux.Handle it panics on names that are not valid.
//
// Servers of one service and replica in one process share their counts.
func (c *Client) ServerOption(service, replica string) grpc.ServerOption {
	key, err := policy.ParseKey(service)
	if err == nil {
		err = policy.ValidateName("replica", replica)
	}
	if err != nil {
		panic(fmt.Sprintf("client: server option: %v", err))
	}
	return grpc.StatsHandler(c.server(serverKey{key, replica}))
}

// serverKey names a replica of a service.
type serverKey struct {
	service policy.Key
	replica string
}

// server counts the calls that reach one replica of one service. It counts at
// the stats handler, since an interceptor would not see an attempt that was
// cancelled before it was dispatched.
type server struct {
	key    serverKey
	source report.Source

	methods atomic.Pointer[map[string]*served] // copied on write
	rest    served                             // other
	growing sync.Mutex                         // held to change the map

	draining sync.Mutex // guards what follows and served.reported
	drained  time.Time
}

// served is what was counted of one method since the start; it only grows.
type served struct {
	attempts, hedges, cancelled atomic.Uint64
	wasted                      atomic.Int64 // ns

	reported report.Served // what drains have taken; guarded by server.draining
}

// server returns the counter of a replica.
func (c *Client) server(key serverKey) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[key]
	if s == nil {
		source := c.source
		source.ID, source.Kind, source.Replica = key.replica, report.Server, key.replica
		s = &server{key: key, source: source, drained: time.Now()}
		s.methods.Store(&map[string]*served{})
		c.servers[key] = s
	}
	return s
}

func (c *Client) allServers() []*server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.servers))
}

// ServerStats returns what was counted by every server that ServerOption or
// HTTPHandler was asked for, in the order of service and replica.
func (c *Client) ServerStats() []ServerStats {
	var out []ServerStats
	for _, s := range c.allServers() {
		out = append(out, s.stats())
	}
	slices.SortFunc(out, func(a, b ServerStats) int {
		return strings.Compare(a.Key.String()+" "+a.Replica, b.Key.String()+" "+b.Replica)
	})
	return out
}

func (s *server) stats() ServerStats {
	out := ServerStats{Key: s.key.service, Replica: s.key.replica}
	for _, m := range s.all() {
		out.Add(m.counts())
	}
	return out
}

// all returns the counters of every method by name, other included.
func (s *server) all() map[string]*served {
	all := maps.Clone(*s.methods.Load())
	all[other] = &s.rest
	return all
}

// method returns the counters of a full method, or those of other. Any caller
// can make up names, so only the bound limits what is kept.
func (s *server) method(fullMethod string) *served {
	all := *s.methods.Load()
	if m := all[fullMethod]; m != nil {
		return m
	}
	if len(all) >= maxMethods || fullMethod == other || policy.ValidateName("method", fullMethod) != nil {
		return &s.rest
	}
	s.growing.Lock()
	defer s.growing.Unlock()
	all = *s.methods.Load()
	if m := all[fullMethod]; m != nil {
		return m
	}
	if len(all) >= maxMethods {
		return &s.rest
	}
	next := make(map[string]*served, len(all)+1)
	maps.Copy(next, all)
	m := &served{}
	next[strings.Clone(fullMethod)] = m
	s.methods.Store(&next)
	return m
}

// drain moves what was counted since the last drain into a report.
func (s *server) drain(now time.Time) *report.Report {
	s.draining.Lock()
	defer s.draining.Unlock()
	out := &report.Report{Service: s.key.service, Interval: min(max(now.Sub(s.drained), 0), maxInterval)}
	s.drained = now
	for name, m := range s.all() {
		seen := m.counts()
		if seen == m.reported {
			continue
		}
		if out.Methods == nil {
			out.Methods = map[string]*report.Method{}
		}
		out.Methods[name] = &report.Method{Served: report.Served{
			Attempts:  seen.Attempts - m.reported.Attempts,
			Hedges:    seen.Hedges - m.reported.Hedges,
			Cancelled: seen.Cancelled - m.reported.Cancelled,
			Wasted:    seen.Wasted - m.reported.Wasted,
		}}
		m.reported = seen
	}
	return out
}

// counts reads parts before wholes, so that no part looks larger than its whole.
func (m *served) counts() report.Served {
	wasted := time.Duration(m.wasted.Load())
	cancelled := m.cancelled.Load()
	hedges := m.hedges.Load()
	return report.Served{Attempts: m.attempts.Load(), Hedges: hedges, Cancelled: cancelled, Wasted: wasted}
}

// serving is one attempt at the server, kept in its context.
type serving struct {
	method   *served
	start    time.Time
	answered bool // a status was sent, so the caller was still there
}

type servingKey struct{}

// TagRPC implements stats.Handler.
func (s *server) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, servingKey{}, &serving{method: s.method(info.FullMethodName), start: time.Now()})
}

// HandleRPC implements stats.Handler.
func (s *server) HandleRPC(ctx context.Context, event stats.RPCStats) {
	a, _ := ctx.Value(servingKey{}).(*serving)
	if a == nil {
		return
	}
	switch event := event.(type) {
	case *stats.InHeader:
		a.method.attempts.Add(1)
		if isHedge(event.Header) {
			a.method.hedges.Add(1)
		}
	case *stats.OutTrailer:
		a.answered = true
	case *stats.End:
		if a.cancelled(ctx) {
			a.method.cancelled.Add(1)
			a.method.wasted.Add(int64(time.Since(a.start)))
		}
	}
}

func isHedge(md metadata.MD) bool { return len(md[hedgedAttemptKey]) > 0 }

// cancelled reports whether the attempt ended by its caller's cancellation:
// then grpc had nobody left to send the status to. A caller whose deadline
// passed gave up too, but by the clock: that is not a loser's end.
func (a *serving) cancelled(ctx context.Context) bool {
	if a.answered || ctx.Err() != context.Canceled {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Now().Before(deadline)
}

// TagConn implements stats.Handler.
func (s *server) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (s *server) HandleConn(context.Context, stats.ConnStats) {}
