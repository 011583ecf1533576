package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/policy"
)

// subscriber is a client of one fleet, which knows of the daemon only its address.
type subscriber struct {
	client *client.Client
	conn   *grpc.ClientConn
	moves  *moves
}

// subscribe makes a client of the fleet.
func (f *fleet) subscribe(ctx context.Context, daemonAddr, id string) (*subscriber, error) {
	s := &subscriber{moves: newMoves()}
	var err error
	s.client, err = client.New(client.Options{Daemon: daemonAddr, ID: id, OnPolicy: s.moves.note})
	if err != nil {
		return nil, err
	}
	s.conn, err = f.dial(ctx, s.client)
	if err != nil {
		s.client.Close()
		return nil, err
	}
	return s, nil
}

func (s *subscriber) close() {
	s.conn.Close()
	s.client.Close()
}

func (s *subscriber) stats() client.ServiceStats { return s.client.Stats()[0] }

// await waits until what the client knows is as wanted, for up to 10 s.
func (s *subscriber) await(ctx context.Context, wanted func(client.ServiceStats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if wanted(s.stats()) {
			return nil
		}
		select {
		case <-s.moves.changed:
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			st := s.stats()
			return fmt.Errorf("the client has no such policy: mode %v, generation %v, delay %v: %w",
				st.Mode, st.Generation, s.moves.last(), ctx.Err())
		}
	}
}

// warmUp makes calls until the client has a policy that lets it hedge.
func (s *subscriber) warmUp(ctx context.Context) error {
	l := begin(ctx, load{conn: s.conn, inFlight: 40})
	defer l.end()
	return s.await(ctx, s.hedging)
}

// hedging says whether the client may hedge.
func (s *subscriber) hedging(st client.ServiceStats) bool {
	return st.Mode == policy.ModeActive && s.moves.last() > 0
}

// firstHedge watches for the first hedge from now on; the function that it
// returns ends the watch and says when it was.
func (s *subscriber) firstHedge() func() *float64 {
	stop := make(chan struct{})
	found := make(chan *float64, 1)
	begun := time.Now()
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			if s.stats().Hedges > 0 {
				found <- new(ms(time.Since(begun)))
				return
			}
			select {
			case <-stop:
				found <- nil
				return
			case <-ticker.C:
			}
		}
	}()
	return func() *float64 {
		close(stop)
		return <-found
	}
}

// moves are the delays that came into force at a client.
type moves struct {
	begun   time.Time
	changed chan struct{} // of size 1

	mu  sync.Mutex
	all []Move
	at  time.Duration
	off time.Time // when the mode became off; zero: it is not
}

func newMoves() *moves {
	return &moves{begun: time.Now(), changed: make(chan struct{}, 1)}
}

// note is an OnPolicy hook.
func (m *moves) note(p policy.Policy) {
	law, _ := p.Method(getUser)
	m.mu.Lock()
	if law.Delay != m.at {
		m.at = law.Delay
		m.all = append(m.all, Move{At: ms(time.Since(m.begun)), Delay: ms(law.Delay)})
	}
	switch {
	case p.Mode != policy.ModeOff:
		m.off = time.Time{}
	case m.off.IsZero():
		m.off = time.Now()
	}
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *moves) last() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// offSince returns when the mode became off.
func (m *moves) offSince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
}

func (m *moves) list() []Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Move{}, m.all...)
}
