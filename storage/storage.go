// Package storage is the contract between hedged and the place where it keeps
// what must outlive the process: small opaque values under string keys, with
// compare-and-swap. It knows nothing of policies, overrides or encodings, and
// it is no database: there is no transaction over several keys, and no callback
// runs inside one, so no caller can nest one in another.
//
// Implementations: storage/bolt, one file of one process. storagetest holds the
// suite that each of them has to pass. This file is the whole contract.
package storage

import (
	"context"
	"errors"
)

// Errors that callers branch on. Implementations wrap them with the object they
// concern.
var (
	ErrNotFound = errors.New("key not found")
	ErrConflict = errors.New("revision conflict")
	ErrClosed   = errors.New("store is closed")
)

// Limits of a store. A key or value outside them is refused by Put.
const (
	MaxKeyLen   = 1024     // bytes; a key has at least one
	MaxValueLen = 16 << 20 // bytes
)

// Revision says which write of a key a value comes from. Revisions of one store
// only grow, over all of its keys and over restarts; a key that was deleted and
// written again never meets an old one. Zero means that the key is absent.
type Revision uint64

// Record is one key with its value.
type Record struct {
	Key      string
	Value    []byte
	Revision Revision
}

// Event is a change of one key. Where Deleted is true, Record has no value, and
// its Revision is that of the deletion.
type Event struct {
	Record  Record
	Deleted bool
}

// Store keeps records. All methods may be called concurrently, and all of them
// return ErrClosed after Close.
//
// Durability: when Put or Delete returns nil, the change is on disk and
// survives the loss of power. When it returns an error other than ErrConflict,
// ErrNotFound or ErrClosed, the change may or may not be there later: read the
// key to find out.
//
// Failure: any method may fail at any time, for example because a disk is full
// or a peer is away. A failing write leaves reads working where the medium
// allows it, and a later write succeeds once its cause is gone. A store that has
// seen a sync fail verifies itself before it accepts another write.
//
// Memory: bytes that a store returns belong to the caller, who may keep and
// change them; bytes given to a store are copied before the method returns.
//
// Context: a method returns ctx's error if ctx has ended before it starts work.
// A write that has started is carried through.
type Store interface {
	// Get returns the record of key, or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)

	// List returns the records whose keys begin with prefix, in the order of
	// their keys, as they were at one moment. An empty prefix lists all.
	List(ctx context.Context, prefix string) ([]Record, error)

	// Put writes value if the key's revision is still prev (0: absent), and
	// returns the new revision; otherwise ErrConflict.
	Put(ctx context.Context, key string, value []byte, prev Revision) (Revision, error)

	// Delete removes key if its revision is still prev; otherwise it returns
	// ErrConflict, or ErrNotFound if the key is absent.
	Delete(ctx context.Context, key string, prev Revision) error

	// Watch returns the changes that are made to keys beginning with prefix
	// after it has returned: call it first, then List. Of several changes of
	// one key that the receiver has not taken yet only the newest is kept, so a
	// slow receiver never blocks a writer, and holds at most one event a key.
	// The channel is closed when ctx ends or the store is closed.
	Watch(ctx context.Context, prefix string) (<-chan Event, error)

	// Close ends all watches and releases the medium. A second call returns
	// ErrClosed.
	Close() error
}
