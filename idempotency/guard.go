package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Guard runs handlers once for each key. It may be used from any goroutine and
// has nothing to close; the store belongs to the caller.
type Guard struct {
	store    Store
	o        Options
	withheld map[string]bool // lower case
}

// New returns a guard on the store. The error names the options that are out of
// their bounds.
func New(store Store, o Options) (*Guard, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("idempotency options: %w", err)
	}
	return &Guard{store: store, o: o.withDefaults(), withheld: withheldNames(o.Withhold)}, nil
}

// How long the end of a reservation may take. It is not the caller's time: the
// answer of a call whose caller is gone is kept too.
const endTimeout = 5 * time.Second

// Between two looks at a call that another copy runs, doubled from the first to
// the last. Copies of a call come to different processes, so nobody tells.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// result is what a handler came to.
type result struct {
	verdict verdict
	answer  []byte
}

// call names a call by who sent it, its key, and its fingerprint.
func (g *Guard) call(ctx context.Context, key string, fingerprint Fingerprint) (Call, error) {
	var caller string
	if g.o.Caller != nil {
		var err error
		if caller, err = g.o.Caller(ctx); err != nil {
			return Call{}, fmt.Errorf("%w: %w", errUnknown, err)
		}
		if caller == "" {
			return Call{}, fmt.Errorf("%w: its identity is empty", errUnknown)
		}
	}
	return Call{ID: newID(caller, key), Fingerprint: fingerprint, Lease: g.o.Lease, TTL: g.o.TTL}, nil
}

// do carries a call out unless it was carried out before. It returns ran with
// what handle did, or else the kept answer; an error is what the caller is to be
// told instead, ran or not.
func (g *Guard) do(ctx context.Context, call Call, handle func(context.Context) result) (kept []byte, ran bool, err error) {
	begun, err := g.begin(ctx, call)
	if err != nil {
		return nil, false, err
	}
	switch begun.State {
	case Granted:
		return nil, true, g.run(ctx, begun.Reservation, handle)
	case Done:
		return begun.Answer, false, nil
	case Mismatch:
		return nil, false, errMismatch
	case Running:
		return nil, false, errInProgress
	}
	return nil, false, fmt.Errorf("%w: it answered with state %d", errStore, begun.State)
}

// begin asks the store, and asks again while another copy runs.
func (g *Guard) begin(ctx context.Context, call Call) (Begun, error) {
	started := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun, err := g.store.Begin(ctx, call)
		if err != nil {
			g.o.Logger.ErrorContext(ctx, "idempotency: begin", "error", err)
			return Begun{}, fmt.Errorf("%w: %w", errStore, err)
		}
		left := g.o.Wait - time.Since(started)
		if begun.State != Running || left <= 0 {
			return begun, nil
		}
		timer := time.NewTimer(min(left, pause/2+rand.N(pause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return begun, nil
		}
	}
}

// run runs the handler under a reservation and ends that, also when the handler
// panics.
func (g *Guard) run(ctx context.Context, res Reservation, handle func(context.Context) result) error {
	handling, cancel := context.WithCancelCause(res.Context(ctx))
	defer cancel(nil)
	beat := startHeartbeat(res, g.o.Lease, func() { cancel(ErrLost) })
	returned := false
	defer func() {
		if !returned {
			beat.stop()
			g.release(ctx, res)
		}
	}()
	out := handle(handling)
	returned = true
	beat.stop()

	ending, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer done()
	var err error
	switch out.verdict {
	case release:
		g.release(ctx, res)
		if errors.Is(context.Cause(handling), ErrLost) {
			return fmt.Errorf("%w: %w", errInProgress, ErrLost)
		}
		return nil
	case refuse:
		err = res.Refuse(ending, out.answer)
	case commit:
		err = res.Finish(ending, out.answer)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("%w: %w", errInProgress, err)
	}
	g.o.Logger.ErrorContext(ctx, "idempotency: end", "error", err)
	if errors.Is(err, ErrNotCommitted) {
		g.release(ctx, res)
		return fmt.Errorf("%w: %w", errStore, err)
	}
	// The effect has happened and cannot be taken back: the caller gets the true
	// answer, and has no reason to come again. A copy that comes all the same
	// runs when the lease has ended.
	return nil
}

// release frees the key. Should that fail, the end of the lease will.
func (g *Guard) release(ctx context.Context, res Reservation) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer done()
	if err := res.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		g.o.Logger.ErrorContext(ctx, "idempotency: release", "error", err)
	}
}

// heartbeat extends a lease while a handler runs.
type heartbeat struct {
	res    Reservation
	lease  time.Duration
	lost   func()
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex // held while extending
	timer *time.Timer
	last  time.Time // of the last success
}

// startHeartbeat extends the lease three times in its length until stop. lost is
// called if the reservation is another's, or must be taken for it because the
// store did not answer for a whole lease.
func startHeartbeat(res Reservation, lease time.Duration, lost func()) *heartbeat {
	h := &heartbeat{res: res, lease: lease, lost: lost, last: time.Now()}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(lease/3, h.extend)
	return h
}

func (h *heartbeat) extend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	asked := time.Now()
	ctx, done := context.WithTimeout(h.ctx, h.lease/3)
	err := h.res.Extend(ctx, h.lease)
	done()
	switch {
	case err == nil:
		h.last = asked
	case h.ctx.Err() != nil:
		return
	case errors.Is(err, ErrLost) || time.Since(h.last) >= h.lease:
		h.lost()
		return
	}
	h.timer.Reset(h.lease / 3)
}

// stop returns when no extension is under way and none will come.
func (h *heartbeat) stop() {
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
}
