package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/idempotency"
)

// record is what is known of a key. The zero record has expired.
type record struct {
	fingerprint idempotency.Fingerprint
	owner       [16]byte
	running     bool
	lease       int64 // Unix ms; running only
	expires     int64 // Unix ms
	answer      []byte
}

func (r record) equal(o record) bool {
	return r.fingerprint == o.fingerprint && r.owner == o.owner && r.running == o.running &&
		r.lease == o.lease && r.expires == o.expires && bytes.Equal(r.answer, o.answer)
}

// A record as bytes: version, state, fingerprint, owner, lease, expiry, answer,
// and the CRC-32C of all that, big-endian. Without the checksum a damaged page
// could be somebody's answer.
const (
	recordVersion = 1
	recordHead    = 1 + 1 + 32 + 16 + 8 + 8
	recordTail    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("the record is damaged")

func encodeRecord(r record) []byte {
	b := make([]byte, 0, recordHead+len(r.answer)+recordTail)
	state := byte(0)
	if r.running {
		state = 1
	}
	b = append(b, recordVersion, state)
	b = append(b, r.fingerprint[:]...)
	b = append(b, r.owner[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.lease))
	b = binary.BigEndian.AppendUint64(b, uint64(r.expires))
	b = append(b, r.answer...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeRecord reads a record and copies what it keeps of b.
func decodeRecord(b []byte) (record, error) {
	if len(b) < recordHead+recordTail {
		return record{}, fmt.Errorf("%w: it has %d bytes, want at least %d", errDamaged, len(b), recordHead+recordTail)
	}
	body, sum := b[:len(b)-recordTail], binary.BigEndian.Uint32(b[len(b)-recordTail:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return record{}, fmt.Errorf("%w: its checksum is %08x, want %08x", errDamaged, got, sum)
	}
	if body[0] != recordVersion {
		return record{}, fmt.Errorf("the record has version %d, want %d", body[0], recordVersion)
	}
	if body[1] > 1 {
		return record{}, fmt.Errorf("%w: its state is %d, want 0 or 1", errDamaged, body[1])
	}
	r := record{running: body[1] == 1}
	rest := body[2:]
	rest = rest[copy(r.fingerprint[:], rest):]
	rest = rest[copy(r.owner[:], rest):]
	r.lease = int64(binary.BigEndian.Uint64(rest))
	r.expires = int64(binary.BigEndian.Uint64(rest[8:]))
	r.answer = bytes.Clone(rest[16:])
	return r, nil
}

// table is the store's buckets in one transaction.
type table struct{ records, expiry *bbolt.Bucket }

func (s *Store) table(tx *bbolt.Tx) table {
	root := tx.Bucket(s.bucket)
	return table{root.Bucket(recordsBucket), root.Bucket(expiryBucket)}
}

func (t table) get(id idempotency.ID) (record, bool, error) {
	b := t.records.Get(id[:])
	if b == nil {
		return record{}, false, nil
	}
	r, err := decodeRecord(b)
	if err != nil {
		return record{}, false, fmt.Errorf("key %x: %w", id[:8], err)
	}
	return r, true, nil
}

func (t table) put(id idempotency.ID, r record) error {
	old, ok, err := t.get(id)
	if err != nil {
		return err
	}
	if ok && old.expires != r.expires {
		if err := t.expiry.Delete(expiryKey(old.expires, id)); err != nil {
			return err
		}
	}
	if err := t.expiry.Put(expiryKey(r.expires, id), nil); err != nil {
		return err
	}
	return t.records.Put(id[:], encodeRecord(r))
}

func (t table) delete(id idempotency.ID) error {
	r, ok, err := t.get(id)
	if err != nil || !ok {
		return err
	}
	if err := t.expiry.Delete(expiryKey(r.expires, id)); err != nil {
		return err
	}
	return t.records.Delete(id[:])
}

// purge deletes a few records that have expired; each new key adds one.
func (t table) purge(now time.Time) error {
	const most = 4
	for range most {
		key, _ := t.expiry.Cursor().First()
		if len(key) != 8+32 || int64(binary.BigEndian.Uint64(key)) > now.UnixMilli() {
			return nil
		}
		if err := t.records.Delete(key[8:]); err != nil {
			return err
		}
		if err := t.expiry.Delete(bytes.Clone(key)); err != nil {
			return err
		}
	}
	return nil
}

func expiryKey(expires int64, id idempotency.ID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(expires)), id[:]...)
}
