package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/storage"
)

// A value in the file: CRC-32C of everything after it and of the key (4 bytes),
// revision (8 bytes), value; big endian. bbolt's pages have no checksum.
const recordHeader = 4 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeRecord(rec storage.Record) []byte {
	b := make([]byte, recordHeader, recordHeader+len(rec.Value))
	binary.BigEndian.PutUint64(b[4:], uint64(rec.Revision))
	b = append(b, rec.Value...)
	binary.BigEndian.PutUint32(b, recordSum(rec.Key, b[4:]))
	return b
}

// decodeRecord copies the value: b may be mapped memory.
func decodeRecord(key string, b []byte) (storage.Record, error) {
	if len(b) < recordHeader {
		return storage.Record{}, fmt.Errorf("%w: record %q has %d bytes, want at least %d", ErrCorrupt, key, len(b), recordHeader)
	}
	if got, want := recordSum(key, b[4:]), binary.BigEndian.Uint32(b); got != want {
		return storage.Record{}, fmt.Errorf("%w: record %q has checksum %08x, want %08x", ErrCorrupt, key, got, want)
	}
	return storage.Record{
		Key:      key,
		Revision: storage.Revision(binary.BigEndian.Uint64(b[4:])),
		Value:    bytes.Clone(b[recordHeader:]),
	}, nil
}

func recordSum(key string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, rest)
}

func readRecord(b *bbolt.Bucket, key string) (storage.Record, error) {
	v := b.Get([]byte(key))
	if v == nil {
		return storage.Record{}, storage.ErrNotFound
	}
	return decodeRecord(key, v)
}
