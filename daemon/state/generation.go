package state

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/hedged-project/hedged/policy"
)

const (
	// block is how many numbers are reserved at once. Half a block must
	// outlast a slow disk while every service changes: 32,768 numbers are more
	// than 3 s of 10,000 services at a change a second each.
	block = 1 << 16
	// maxEpochLead is how far ahead of our clock a reported epoch may lie: it
	// is the time at which some store was made.
	maxEpochLead = 24 * time.Hour
)

// numbering hands out generations so that none is ever handed out twice with
// different meaning. The rule: numbers of an epoch that may be on disk are used
// only up to a bound that is on disk with it; a restart continues above the
// bound. Where that cannot be had, because the disk is full or does not answer,
// a new epoch is opened in memory: it is on no disk, so no restart continues
// it, and a daemon that restarts below it is told of it by the clients that
// hold it (observe).
//
// It is a law without clock or lock; State holds the lock.
type numbering struct {
	epoch  uint64
	number uint64 // the last one used
	limit  uint64 // the last one that may be used; math.MaxUint64 while no disk may know the epoch
	saved  uint64 // the bound that is on disk for certain; 0: none
}

// reservation is what is stored: no number above Bound was used in Epoch.
type reservation struct {
	Epoch uint64 `json:"epoch"`
	Bound uint64 `json:"bound"`
}

// newNumbering opens an epoch at now, above floor.
func newNumbering(now time.Time, floor uint64) numbering {
	return numbering{epoch: max(uint64(max(now.UnixMilli(), 1)), floor+1), limit: math.MaxUint64}
}

// resume continues above what was stored; it needs a new reservation first.
func resume(r reservation) numbering {
	return numbering{epoch: r.Epoch, number: r.Bound, limit: r.Bound, saved: r.Bound}
}

func (n *numbering) next(now time.Time) policy.Generation {
	if n.number >= n.limit {
		*n = newNumbering(now, n.epoch)
	}
	n.number++
	return policy.Generation{Epoch: n.epoch, Number: n.number}
}

// observe raises the epoch above one that a client reported, and reports
// whether it did: then everything has to be published again, since clients
// ignore what is older than they hold.
func (n *numbering) observe(epoch uint64, now time.Time) bool {
	if epoch <= n.epoch || epoch > uint64(max(now.Add(maxEpochLead).UnixMilli(), 0)) {
		return false
	}
	*n = newNumbering(now, epoch)
	return true
}

// low reports whether a reservation is due.
func (n *numbering) low() bool {
	return n.saved < n.number+block/2
}

// reserve returns what to store. From here on the disk may know the epoch, even
// if storing fails.
func (n *numbering) reserve() reservation {
	r := reservation{Epoch: n.epoch, Bound: n.number + block}
	if n.limit == math.MaxUint64 {
		n.limit = r.Bound
	}
	return r
}

// reserved takes note that r is on disk.
func (n *numbering) reserved(r reservation) {
	if r.Epoch == n.epoch {
		n.saved = max(n.saved, r.Bound)
		n.limit = n.saved
	}
}

func (r reservation) encode() ([]byte, error) { return json.Marshal(r) }

func decodeReservation(b []byte) (reservation, error) {
	var r reservation
	if err := json.Unmarshal(b, &r); err != nil {
		return reservation{}, fmt.Errorf("generation: %w", err)
	}
	if r.Epoch == 0 || r.Bound == 0 || max(r.Epoch, r.Bound) > math.MaxInt64 {
		return reservation{}, fmt.Errorf("generation: epoch %d and bound %d, want 1 to %d", r.Epoch, r.Bound, math.MaxInt64)
	}
	return r, nil
}
