package xds

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stream is the loop around the watches of one client. One goroutine receives
// and sends what requests call for; its shard sends what changes; the goroutine
// of the gRPC handler waits for the end. All take mu, and none holds it while it
// sends or waits.
type stream struct {
	server  *Server
	shard   *shard
	account *account
	kind    StreamKind
	only    string // type URL of a type's own service; empty: aggregated
	since   time.Time

	send func(*reply) error
	end  chan error // of size 1: how the stream ends

	mu      sync.Mutex
	node    string
	legacy  bool // no names stand for all names
	watches []*watch
	queued  bool // its shard is about to send
	sending bool // a goroutine sends; it looks again before it stops
	closed  bool
}

// serve runs a stream until the client, a request out of bounds or the server
// ends it. Whoever still sends or receives then is ended by the transport.
func (s *stream) serve(ctx context.Context, recv func() (*request, error)) error {
	s.server.tasks.Go(func() { s.finish(s.receive(recv)) })
	select {
	case err := <-s.end:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.server.ctx.Done():
	}
	// Not all streams at the same moment: each is followed by a new connection.
	timer := time.NewTimer(rand.N(s.server.drain + 1))
	defer timer.Stop()
	select {
	case err := <-s.end:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return errStopped
	}
}

// errStopped ends the streams of a server that stops; clients retry on it.
var errStopped = status.Error(codes.Unavailable, "xds: the server is stopping")

// finish says how the stream ends; the first to say it is right.
func (s *stream) finish(err error) {
	select {
	case s.end <- err:
	default:
	}
}

// receive applies requests until there are no more; nil is the client's end.
func (s *stream) receive(recv func() (*request, error)) error {
	for {
		r, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.apply(r); err != nil {
			s.server.refused(s, err)
			return err
		}
		s.flush(maxInt)
	}
}

// apply takes one request into the state of its type.
func (s *stream) apply(r *request) error {
	s.server.stats.requests.Add(1)
	if s.only != "" {
		// "In singleton xDS APIs such as CDS, LDS, etc. [the type URL] is implicit"
		// (envoy.service.discovery.v3.DiscoveryRequest.type_url)
		if r.typeURL == "" {
			r.typeURL = s.only
		} else if r.typeURL != s.only {
			return status.Errorf(codes.InvalidArgument, "xds: type_url: %s, want %s: this service has one type", quote(r.typeURL), quote(s.only))
		}
	}
	if err := r.check(); err != nil {
		return status.Error(codes.InvalidArgument, "xds: "+err.Error())
	}
	v, err := s.update(r)
	s.server.answered(s, r, v)
	if err != nil {
		return status.Error(codes.ResourceExhausted, "xds: "+err.Error())
	}
	return nil
}

func (s *stream) update(r *request) (verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return silent, nil // received behind the end of the stream
	}
	// "Only the first request on a stream is guaranteed to carry the node
	// identifier." (xDS protocol, "Streaming gRPC subscriptions")
	if s.node == "" && r.node != "" {
		s.node, s.legacy = r.node, !r.byGRPC
	}
	w := s.watch(r.typeURL)
	if w == nil {
		if len(s.watches) == maxTypes {
			return silent, errTooMany("type_url", r.typeURL, maxTypes, "types")
		}
		w = newWatch(r.typeURL, s.kind, s.legacy, s.server.spread)
		s.watches = append(s.watches, w)
	}
	v := w.answer(r, time.Now())
	added, removed := w.subscribe(r)
	if len(added)+len(removed) == 0 {
		return v, nil
	}
	// Before anything is read from the cache for the new names: what is
	// published from here on is marked.
	s.shard.update(s, r.typeURL, added, removed)
	return v, s.account.take(added, removed)
}

// watch returns the watch of a type, or nil.
func (s *stream) watch(typeURL string) *watch {
	for _, w := range s.watches {
		if w.typeURL == typeURL {
			return w
		}
	}
	return nil
}

// mark notes a change of content, and reports whether that makes a push due.
func (s *stream) mark(typeURL string, ch change, byWildcard bool) (due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watch(typeURL)
	switch {
	case w == nil || byWildcard && w.all == nil || !byWildcard && w.names[ch.name] == nil: // no more
		if ch.content != nil && ch.content.spread.answered() {
			s.server.spread(ch.content)
		}
		return false
	case byWildcard:
		w.changedAny(ch)
	default:
		w.changed(ch)
	}
	due = w.ready() && !s.sending && !s.queued
	s.queued = s.queued || due
	return due
}

// push sends what is due, without waiting for the client: where the client may
// not have read what it was sent before, a goroutine of the stream's own sends.
//
// A client that answered a reply has read it, for its nonce cannot be guessed;
// so all that the stream was sent is gone from the transport's buffer, which
// takes one message of any size without waiting.
func (s *stream) push() {
	s.mu.Lock()
	s.queued = false
	read := true
	for _, w := range s.watches {
		read = read && len(w.unanswered) == 0
	}
	s.mu.Unlock()
	if read {
		s.flush(1)
	} else {
		s.server.tasks.Go(func() { s.flush(maxInt) })
	}
}

// flush sends up to limit replies that are due, and has the rest sent aside. One
// goroutine at a time does so; another leaves it to that one.
func (s *stream) flush(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending {
		return
	}
	s.sending = true
	for ; ; limit-- {
		rep, err := s.next(limit > 0)
		if err != nil {
			s.finish(status.Error(codes.ResourceExhausted, "xds: "+err.Error()))
			return // nothing is sent any more
		}
		if rep == nil {
			break
		}
		s.mu.Unlock()
		err = s.send(rep)
		s.mu.Lock()
		if err != nil {
			s.finish(err)
			return
		}
		s.server.stats.responses.Add(1)
	}
	s.sending = false
}

// next returns the first reply that is due, or nil. Where it may not be taken
// here, it starts a goroutine that does.
func (s *stream) next(take bool) (*reply, error) {
	for _, w := range s.watches {
		if !take && w.ready() {
			s.server.tasks.Go(func() { s.flush(maxInt) })
			return nil, nil
		}
		// No client can answer what it has not read, nor what another stream sent:
		// the generator is cryptographically strong.
		rep, err := w.next(s.server.cache, strconv.FormatUint(rand.Uint64(), 36), time.Now())
		if rep != nil || err != nil {
			return rep, err
		}
	}
	return nil, nil
}

// close takes the stream out of the index.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.forget()
		names := w.subscribed()
		s.shard.update(s, w.typeURL, nil, names)
		_ = s.account.take(nil, names) // fails for what is added only
	}
	s.watches, s.closed = nil, true
}

func (s *stream) state() ClientState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := ClientState{Node: s.node, Peer: s.account.addr, Kind: s.kind, Since: s.since}
	for _, w := range s.watches {
		state.Resources = append(state.Resources, w.state(s.server.cache)...)
	}
	return state
}

// unanswered returns when the oldest reply was sent that has no answer, or the
// zero time.
func (s *stream) unanswered() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if len(w.unanswered) > 0 && (at.IsZero() || w.unanswered[0].at.Before(at)) {
			at = w.unanswered[0].at
		}
	}
	return at
}
