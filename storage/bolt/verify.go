package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The layout of a bbolt file (version 2, the machine's byte order): pages of
// pageSize bytes, each with a header of id (8 bytes), flags (2), count (2) and
// overflow (4: further pages that belong to it). Pages 0 and 1 are metas.
const (
	pageHeader   = 16
	elementSize  = 16
	bucketHeader = 16
	metaSize     = 64 // with its checksum of the first 56
	boltMagic    = 0xED0CDAED
	boltVersion  = 2

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf's element

	minPageSize = 1 << 10
	maxPageSize = 64 << 10
	maxDepth    = 64 // of a tree; 4 elements a page would fill any disk
)

var order = binary.NativeEndian

// meta is what a meta page says.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // pages below this one exist
	txid     uint64
}

// verifier reads every page in use with plain reads: unlike a walk through
// mapped memory they fail with an error where a block is bad or the file ends,
// and no page is followed before it was checked, nor twice.
type verifier struct {
	r    io.ReaderAt
	meta meta
	seen map[uint64]bool
	// page, where set, sees every data page in use once.
	page func(off int64, b []byte) error
}

// verify reads the whole file and returns ErrCorrupt, or an I/O error.
func verify(f *os.File) error {
	_, err := newVerifier(f, nil)
	return err
}

// rewrite verifies the file and writes each page in use again as it was read,
// metas last, and syncs.
func rewrite(f *os.File) error {
	v, err := newVerifier(f, func(off int64, b []byte) error {
		_, err := f.WriteAt(b, off)
		return err
	})
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	metas := make([]byte, 2*v.meta.pageSize)
	if _, err := f.ReadAt(metas, 0); err != nil {
		return err
	}
	if _, err := f.WriteAt(metas, 0); err != nil {
		return err
	}
	return f.Sync()
}

func newVerifier(f *os.File, page func(off int64, b []byte) error) (*verifier, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	v := &verifier{r: f, seen: map[uint64]bool{0: true, 1: true}, page: page}
	if err := v.readMetas(info.Size()); err != nil {
		return nil, err
	}
	if err := v.walk(v.meta.root, nil, nil, 0); err != nil {
		return nil, err
	}
	return v, v.readFreelist()
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// readMetas wants both metas whole. bbolt falls back to the older one, which is
// right after a torn write; but a meta lies within one sector and is not torn,
// and where it was damaged later the older one lacks what was acknowledged.
func (v *verifier) readMetas(size int64) error {
	first, err := v.readMeta(0, size)
	if err != nil {
		return err
	}
	second, err := v.readMeta(int64(first.pageSize), size)
	if err != nil {
		return err
	}
	if second.pageSize != first.pageSize {
		return corrupt("page size is %d in one meta, %d in the other", first.pageSize, second.pageSize)
	}
	v.meta = first
	if second.txid > first.txid {
		v.meta = second
	}
	if pages := uint64(size) / uint64(v.meta.pageSize); v.meta.pages > pages || v.meta.pages < 4 {
		return corrupt("it has %d pages, want %d", pages, v.meta.pages)
	}
	return nil
}

func (v *verifier) readMeta(off, size int64) (meta, error) {
	b := make([]byte, pageHeader+metaSize)
	if size < off+int64(len(b)) {
		return meta{}, corrupt("it has %d bytes, which is no store", size)
	}
	if _, err := v.r.ReadAt(b, off); err != nil {
		return meta{}, readError(err)
	}
	if flags := order.Uint16(b[8:]); flags != flagMeta {
		return meta{}, corrupt("meta at byte %d has flags %#x", off, flags)
	}
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if order.Uint32(b) != boltMagic || order.Uint32(b[4:]) != boltVersion || sum.Sum64() != order.Uint64(b[metaSize-8:]) {
		return meta{}, corrupt("meta at byte %d is invalid", off)
	}
	m := meta{
		pageSize: order.Uint32(b[8:]), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]),
		pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, corrupt("page size is %d", m.pageSize)
	}
	return m, nil
}

// readPage reads a page with what overflows it, marks it as seen and returns
// its flags, its count and all of its bytes.
func (v *verifier) readPage(id uint64) (flags uint16, count int, b []byte, err error) {
	if id < 2 || id >= v.meta.pages {
		return 0, 0, nil, corrupt("page %d is referred to, want 2 to %d", id, v.meta.pages-1)
	}
	off := int64(id) * int64(v.meta.pageSize)
	head := make([]byte, pageHeader)
	if _, err := v.r.ReadAt(head, off); err != nil {
		return 0, 0, nil, readError(err)
	}
	over := uint64(order.Uint32(head[12:]))
	if got := order.Uint64(head); got != id {
		return 0, 0, nil, corrupt("page %d says that it is page %d", id, got)
	}
	if over >= v.meta.pages-id {
		return 0, 0, nil, corrupt("page %d overflows into %d pages, want at most %d", id, over, v.meta.pages-id-1)
	}
	for p := id; p <= id+over; p++ {
		if v.seen[p] {
			return 0, 0, nil, corrupt("page %d is used twice", p)
		}
		v.seen[p] = true
	}
	b = make([]byte, (over+1)*uint64(v.meta.pageSize))
	if _, err := v.r.ReadAt(b, off); err != nil {
		return 0, 0, nil, readError(err)
	}
	if v.page != nil {
		if err := v.page(off, b); err != nil {
			return 0, 0, nil, err
		}
	}
	return order.Uint16(b[8:]), int(order.Uint16(b[10:])), b, nil
}

// walk checks the tree below page id, whose keys lie in [lo, hi); nil: no bound.
func (v *verifier) walk(id uint64, lo, hi []byte, depth int) error {
	if depth > maxDepth {
		return corrupt("page %d lies %d deep", id, depth)
	}
	flags, count, b, err := v.readPage(id)
	if err != nil {
		return err
	}
	switch flags {
	case flagLeaf:
		return v.leaf(id, count, b, lo, hi, depth)
	case flagBranch:
		return v.branch(id, count, b, lo, hi, depth)
	}
	return corrupt("page %d has flags %#x", id, flags)
}

func (v *verifier) branch(id uint64, count int, b, lo, hi []byte, depth int) error {
	if count == 0 {
		return corrupt("branch page %d is empty", id)
	}
	keys := make([][]byte, count)
	children := make([]uint64, count)
	for i := range count {
		at := pageHeader + i*elementSize
		if at+elementSize > len(b) {
			return corrupt("page %d has no room for %d elements", id, count)
		}
		var err error
		if keys[i], err = within(id, b, at, order.Uint32(b[at:]), order.Uint32(b[at+4:])); err != nil {
			return err
		}
		if i > 0 && bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return corrupt("branch page %d: element %d is out of order", id, i)
		}
		children[i] = order.Uint64(b[at+8:])
	}
	for i, child := range children {
		from, to := keys[i], hi
		if i == 0 {
			from = lo
		}
		if i+1 < count {
			to = keys[i+1]
		}
		if err := v.walk(child, from, to, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) leaf(id uint64, count int, b, lo, hi []byte, depth int) error {
	for i := range count {
		at := pageHeader + i*elementSize
		if at+elementSize > len(b) {
			return corrupt("page %d has no room for %d elements", id, count)
		}
		pos, klen, vlen := order.Uint32(b[at+4:]), order.Uint32(b[at+8:]), order.Uint32(b[at+12:])
		key, err := within(id, b, at, pos, klen)
		if err != nil {
			return err
		}
		if c := bytes.Compare(lo, key); lo != nil && (c > 0 || i > 0 && c == 0) || hi != nil && bytes.Compare(key, hi) >= 0 {
			return corrupt("leaf page %d: element %d is out of order", id, i)
		}
		lo = key
		value, err := within(id, b, at+len(key), pos, vlen)
		if err != nil {
			return err
		}
		if order.Uint32(b[at:])&flagBucket != 0 {
			err = v.bucket(id, value, depth)
		} else {
			_, err = decodeRecord(string(key), value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket's value: its root page, or 0 and the page itself.
func (v *verifier) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHeader {
		return corrupt("page %d has a bucket of %d bytes", id, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return v.walk(root, nil, nil, depth+1)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != flagLeaf || depth > maxDepth {
		return corrupt("page %d has a bucket without a page", id)
	}
	return v.leaf(id, int(order.Uint16(inline[10:])), inline, nil, nil, depth+1)
}

// within returns size bytes at pos after the element at byte at.
func within(id uint64, b []byte, at int, pos, size uint32) ([]byte, error) {
	from := int64(at) + int64(pos)
	to := from + int64(size)
	if from < 0 || to > int64(len(b)) {
		return nil, corrupt("page %d: bytes %d to %d are referred to, want at most %d", id, from, to, len(b))
	}
	return b[from:to:to], nil
}

// readFreelist wants no page both free and in use, nor free twice.
func (v *verifier) readFreelist() error {
	flags, count, b, err := v.readPage(v.meta.freelist)
	if err != nil {
		return err
	}
	if flags != flagFreelist {
		return corrupt("freelist page %d has flags %#x", v.meta.freelist, flags)
	}
	n, at := uint64(count), pageHeader
	if count == 0xFFFF { // then the first entry is the count
		n, at = order.Uint64(b[at:]), at+8
	}
	if n > uint64(len(b)-at)/8 {
		return corrupt("freelist has %d entries in %d bytes", n, len(b)-at)
	}
	for i := range n {
		id := order.Uint64(b[at+int(i)*8:])
		if id < 2 || id >= v.meta.pages || v.seen[id] {
			return corrupt("page %d is free and in use, or free twice", id)
		}
		v.seen[id] = true
	}
	return nil
}

// readError takes the end of the file for damage, and nothing else.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("it ends early: %v", err)
	}
	return err
}
