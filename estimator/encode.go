package estimator

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxEncoded is the longest wire form that is read, in bytes. No histogram that
// can be encoded is longer.
const MaxEncoded = 16 << 10

// MaxEncodedCount is the largest total of a wire form: one interval of one
// client never comes near it, and sums of many cannot overflow.
const MaxEncodedCount = 1 << 40

const (
	wireVersion  = 1
	versionShift = 5 // of the first byte; the scale is below it
	scaleMask    = 1<<versionShift - 1
	maxWireScale = 20 // OpenTelemetry's largest
)

// Tokens of the wire form: see doc.go.
const (
	tokenWide = 0x60 // first of the two-byte counts
	tokenNear = 0x80 // first of those with a short gap and a count of 1 to 4
	tokenFar  = 0xc0 // first of those with a longer gap and a count of 1
	tokenSkip = 0xfe
	tokenLong = 0xff

	minWide = tokenWide + 1
	maxWide = minWide + (tokenNear-tokenWide)<<8 - 1
	nearGap = 16 // longest gap and
	nearN   = 4  // count of the near tokens
	farGap  = nearGap + tokenSkip - tokenFar
)

var (
	errTruncated = errors.New("ends inside a number")
	errOpenGap   = errors.New("ends with a gap, want a count after it")
	errNoCount   = errors.New("has a count or gap of 0, want at least 1")
)

// AppendBinary appends the wire form of h, which is nothing if h is empty. It
// fails if h holds more than MaxEncodedCount latencies.
func (h *Histogram) AppendBinary(b []byte) ([]byte, error) {
	if h.total > MaxEncodedCount {
		return b, fmt.Errorf("histogram: total is %d, want at most %d", h.total, uint64(MaxEncodedCount))
	}
	return h.appendWire(b), nil
}

// appendWire is AppendBinary for any total.
func (h *Histogram) appendWire(b []byte) []byte {
	if h.total == 0 {
		return b
	}
	b = append(b, wireVersion<<versionShift|Scale)
	b = binary.AppendUvarint(b, h.zeros)
	next := 0
	started := false
	for k := range h.octaves {
		if h.octaves[k].n == 0 {
			continue
		}
		first := (h.low + k) * perOctave
		for j, n := range h.octaves[k].counts {
			if n == 0 {
				continue
			}
			if !started {
				next = first + j
				b = binary.AppendVarint(b, int64(next))
				started = true
			}
			b = appendToken(b, uint64(first+j-next), n)
			next = first + j + 1
		}
	}
	return b
}

// appendToken appends a count that follows a gap of empty buckets.
func appendToken(b []byte, gap, n uint64) []byte {
	if gap > 0 {
		switch {
		case gap <= nearGap && n <= nearN:
			return append(b, byte(tokenNear+(gap-1)*nearN+n-1))
		case gap > nearGap && gap <= farGap && n == 1:
			return append(b, byte(tokenFar+gap-nearGap-1))
		}
		b = binary.AppendUvarint(append(b, tokenSkip), gap)
	}
	switch {
	case n < minWide:
		return append(b, byte(n-1))
	case n <= maxWide:
		return append(b, byte(tokenWide+(n-minWide)>>8), byte(n-minWide))
	}
	return binary.AppendUvarint(append(b, tokenLong), n)
}

// UnmarshalBinary replaces h by the histogram of a wire form. It reads any scale
// from Scale to 20 and converts it without loss of counts. On an error, which
// says what is wrong with b, h is as it was.
func (h *Histogram) UnmarshalBinary(b []byte) error {
	w, err := parseWire(b)
	if err != nil {
		return err
	}
	h.Reset()
	h.apply(w, 1)
	return nil
}

// MergeBinary adds the histogram of a wire form to h: UnmarshalBinary and Merge
// in one. On an error h is as it was.
func (h *Histogram) MergeBinary(b []byte) error {
	w, err := parseWire(b)
	if err != nil {
		return err
	}
	if h.room(w.total) < w.total {
		var o Histogram
		o.apply(w, 1)
		h.Merge(&o)
		return nil
	}
	h.apply(w, 1)
	return nil
}

// wire is a checked wire form.
type wire struct {
	total  uint64 // set by check
	zeros  uint64
	first  int  // index of the first token's bucket, before a gap, at the form's scale
	shift  uint // from the form's scale to Scale
	tokens []byte
}

// parseWire checks all of b, so that apply need not.
func parseWire(b []byte) (wire, error) {
	if len(b) > MaxEncoded {
		return wire{}, fmt.Errorf("histogram: length is %d bytes, want at most %d", len(b), MaxEncoded)
	}
	w, err := parseHeader(b)
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return wire{}, fmt.Errorf("histogram: %w", err)
	}
	return w, nil
}

func parseHeader(b []byte) (w wire, err error) {
	if len(b) == 0 {
		return w, nil
	}
	version, scale := b[0]>>versionShift, int(b[0]&scaleMask)
	if version != wireVersion {
		return w, fmt.Errorf("version is %d, want %d", version, wireVersion)
	}
	if scale < Scale || scale > maxWireScale {
		return w, fmt.Errorf("scale is %d, want %d to %d", scale, Scale, maxWireScale)
	}
	w.shift = uint(scale - Scale)
	zeros, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return w, errTruncated
	}
	w.zeros = zeros
	if b = b[1+n:]; len(b) == 0 {
		return w, nil
	}
	first, n := binary.Varint(b)
	if n <= 0 {
		return w, errTruncated
	}
	if i := first >> w.shift; i < MinIndex || i > MaxIndex {
		return w, fmt.Errorf("first bucket is %d at scale %d, want %d to %d at scale %d", first, scale, MinIndex, MaxIndex, Scale)
	}
	w.first, w.tokens = int(first), b[n:]
	if len(w.tokens) == 0 {
		return w, errOpenGap
	}
	return w, nil
}

// single describes the tokens of one byte: empty buckets before the count, and
// the count, 0 for a token that has more bytes.
var single = func() (t [256]struct{ gap, n uint8 }) {
	for b := range tokenWide {
		t[b].n = uint8(b + 1)
	}
	for b := tokenNear; b < tokenFar; b++ {
		t[b].gap, t[b].n = uint8((b-tokenNear)/nearN+1), uint8((b-tokenNear)%nearN+1)
	}
	for b := tokenFar; b < tokenSkip; b++ {
		t[b].gap, t[b].n = uint8(b-tokenFar+nearGap+1), 1
	}
	return t
}()

// check walks the tokens, sums their counts in w.total and returns what is wrong.
// Neither sum can overflow: b is short, and long counts and gaps are bounded.
func (w *wire) check() error {
	if w.zeros > MaxEncodedCount {
		return fmt.Errorf("zero count is %d, want at most %d", w.zeros, uint64(MaxEncodedCount))
	}
	w.total = w.zeros
	next, end := w.first, (MaxIndex+1)<<w.shift
	open := false
	for p := 0; p < len(w.tokens); {
		t := single[w.tokens[p]]
		if t.n > 0 {
			next += int(t.gap) + 1
			w.total += uint64(t.n)
			open = false
			p++
			continue
		}
		gap, n, size := long(w.tokens[p:])
		switch {
		case size == 0:
			return errTruncated
		case gap|n == 0:
			return errNoCount
		case n > MaxEncodedCount:
			return fmt.Errorf("count is %d, want at most %d", n, uint64(MaxEncodedCount))
		case gap > uint64(end-w.first):
			return fmt.Errorf("gap is %d, want at most %d", gap, end-w.first)
		}
		next += int(gap)
		w.total += n
		if open = n == 0; !open {
			next++
		}
		p += size
	}
	switch {
	case open:
		return errOpenGap
	case next > end:
		return fmt.Errorf("last bucket is %d, want at most %d", next-1, end-1)
	case w.total > MaxEncodedCount:
		return fmt.Errorf("total is %d, want at most %d", w.total, uint64(MaxEncodedCount))
	}
	return nil
}

// apply adds the counts of a checked form, times sign modulo 2^64: 1 adds and
// ^0 subtracts what was added before. The caller made sure that the total fits.
func (h *Histogram) apply(w wire, sign uint64) {
	h.zeros += w.zeros * sign
	h.total += w.zeros * sign
	if len(w.tokens) == 0 {
		return
	}
	var added uint64
	next, number := w.first, w.first>>w.shift>>Scale
	o := h.octave(number)
	sum := o.n
	for p := 0; p < len(w.tokens); next++ {
		t := single[w.tokens[p]]
		gap, n, size := uint64(t.gap), uint64(t.n), 1
		if n == 0 {
			if gap, n, size = long(w.tokens[p:]); n == 0 {
				next += int(gap) - 1
				p += size
				continue
			}
		}
		p += size
		next += int(gap)
		i := next >> w.shift
		if i>>Scale != number {
			o.n = sum
			number = i >> Scale
			o = h.octave(number)
			sum = o.n
		}
		added += n
		sum += n * sign
		o.counts[i&(perOctave-1)] += n * sign
	}
	o.n = sum
	h.total += added * sign
}

// applyOwn is apply for a form that appendWire wrote, which needs no check.
func (h *Histogram) applyOwn(b []byte, sign uint64) {
	if w, err := parseHeader(b); err == nil {
		h.apply(w, sign)
	}
}

// long reads a token of several bytes: n is 0 for one that only skips, size is 0
// for a truncated one. A number of 0, which no encoder writes, reads as neither.
func long(b []byte) (gap, n uint64, size int) {
	t := b[0]
	if t < tokenNear {
		if len(b) < 2 {
			return 0, 0, 0
		}
		return 0, minWide + uint64(t-tokenWide)<<8 + uint64(b[1]), 2
	}
	v, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return 0, 0, 0
	}
	if t == tokenSkip {
		return v, 0, 1 + size
	}
	return 0, v, 1 + size
}
