package idempotency

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"
)

// Memory is a [Store] in memory, for tests and for a server that is alone and
// may forget its keys when it ends. It has no transactions. The zero value is
// not ready: see [NewMemory].
type Memory struct {
	limit int

	mu      sync.Mutex
	records map[ID]*memoryRecord
	expiry  expiryHeap // the same records, the first to expire first
}

type memoryRecord struct {
	id          ID
	index       int // in the heap
	fingerprint Fingerprint
	owner       *memoryReservation // nil: done
	lease       time.Time
	expires     time.Time
	answer      []byte
}

// NewMemory returns a store for at most limit records, at least 1. When it is
// full of records that have not expired, Begin of a new key returns ErrFull: to
// forget an answer early would be to run a call twice.
func NewMemory(limit int) *Memory {
	return &Memory{limit: max(1, limit), records: make(map[ID]*memoryRecord)}
}

// Len returns the number of records that the store holds.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// Begin implements [Store].
func (m *Memory) Begin(_ context.Context, call Call) (Begun, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purge(now)
	rec := m.records[call.ID]
	if rec != nil && now.Before(rec.expires) {
		switch {
		case rec.fingerprint != call.Fingerprint:
			return Begun{State: Mismatch}, nil
		case rec.owner == nil:
			return Begun{State: Done, Answer: bytes.Clone(rec.answer)}, nil
		case now.Before(rec.lease):
			return Begun{State: Running}, nil
		}
	}
	if rec == nil {
		if len(m.records) >= m.limit {
			return Begun{}, fmt.Errorf("begin: %d records: %w", m.limit, ErrFull)
		}
		rec = &memoryRecord{id: call.ID}
		m.records[call.ID] = rec
		heap.Push(&m.expiry, rec)
	}
	res := &memoryReservation{store: m, call: call}
	rec.fingerprint, rec.owner, rec.answer = call.Fingerprint, res, nil
	rec.lease, rec.expires = now.Add(call.Lease), now.Add(call.TTL)
	heap.Fix(&m.expiry, rec.index)
	return Begun{State: Granted, Reservation: res}, nil
}

// purge deletes a few expired records; each Begin adds at most one.
func (m *Memory) purge(now time.Time) {
	const most = 4
	for range most {
		if len(m.expiry) == 0 || now.Before(m.expiry[0].expires) {
			return
		}
		delete(m.records, heap.Pop(&m.expiry).(*memoryRecord).id)
	}
}

type memoryReservation struct {
	store *Memory
	call  Call
}

func (r *memoryReservation) Context(ctx context.Context) context.Context { return ctx }

func (r *memoryReservation) Extend(_ context.Context, lease time.Duration) error {
	return r.change("extend", func(rec *memoryRecord) {
		rec.lease = time.Now().Add(lease)
		if rec.expires.Before(rec.lease) {
			rec.expires = rec.lease
		}
		heap.Fix(&r.store.expiry, rec.index)
	})
}

func (r *memoryReservation) Finish(_ context.Context, answer []byte) error {
	return r.change("finish", func(rec *memoryRecord) {
		rec.owner, rec.answer, rec.expires = nil, bytes.Clone(answer), time.Now().Add(r.call.TTL)
		heap.Fix(&r.store.expiry, rec.index)
	})
}

func (r *memoryReservation) Refuse(ctx context.Context, answer []byte) error {
	return r.Finish(ctx, answer)
}

func (r *memoryReservation) Release(context.Context) error {
	return r.change("release", func(rec *memoryRecord) {
		heap.Remove(&r.store.expiry, rec.index)
		delete(r.store.records, rec.id)
	})
}

// change applies f to the record of the reservation if it is still its own.
func (r *memoryReservation) change(op string, f func(*memoryRecord)) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	rec := r.store.records[r.call.ID]
	if rec == nil || rec.owner != r {
		return fmt.Errorf("%s: %w", op, ErrLost)
	}
	f(rec)
	return nil
}

type expiryHeap []*memoryRecord

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }

func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *expiryHeap) Push(x any) {
	rec := x.(*memoryRecord)
	rec.index = len(*h)
	*h = append(*h, rec)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	rec := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return rec
}
