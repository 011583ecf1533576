// Package estimator estimates latency distributions from streams: histograms
// that add exactly over clients, replicas and time, windows of them, the
// distribution that cancelled attempts hide, and the moment it changed.
//
// It is not a metrics library: one resolution, no names, no clock, no goroutine.
// Times come in as arguments; only Recorder is safe for concurrent use. An
// estimate that does not exist is (0, false), never zero alone.
//
// Read histogram.go first. index.go says which bucket holds a latency,
// recorder.go is the histogram that calls record into, sample.go and lifetable.go
// estimate with cancelled attempts (Kaplan-Meier), window.go keeps the last
// seconds, change.go notices that the older of them no longer count, encode.go
// is the wire form and convert.go speaks to OpenTelemetry and Prometheus.
//
// # Buckets
//
// The scale is 6: 64 buckets an octave, from 1 ns to 4,096 s, in seconds and
// with the upper bound included, as OpenTelemetry and Prometheus have them. A
// quantile is at most 0.542% off, and half a nanosecond for the rounding. What is not positive (a stepped
// clock) is counted as zero, what is longer goes to the top bucket; Zeros and
// Clamped count them.
//
// # Wire form
//
// An empty histogram is no bytes. Otherwise:
//
//	byte     version (1) in the upper 3 bits, scale in the lower 5
//	uvarint  zero count
//	varint   index of the first bucket that holds something (zigzag)
//	tokens   until the end, at least one
//
// The last two are missing if all are zeros. uvarint and varint are those of
// encoding/binary. Tokens name the buckets in ascending order; "next" is the
// bucket after the last one counted or skipped, at first that of the index:
//
//	00-5f          next holds 1 to 96: the byte + 1
//	60-7f, byte    next holds 97 to 8,288: 97 + 256 (first byte - 0x60) + second byte
//	80-bf          skip 1 to 16 buckets: (byte - 0x80) / 4 + 1; then next holds
//	               1 to 4: (byte - 0x80) mod 4 + 1
//	c0-fd          skip 17 to 78 buckets: byte - 0xc0 + 17; then next holds 1
//	fe, uvarint    skip as many buckets, at least 1; a token with a count follows
//	ff, uvarint    next holds as many, at least 1
//
// A reader takes scales from 6 to 20 and shifts the index right by scale - 6,
// which joins buckets and loses no count. It refuses the whole form, and changes
// nothing, for another version or scale, more than 16 KiB, a bucket outside
// [-1920, 767] at scale 6, a total over 2^40, a count or gap of zero, and an end
// inside a token or after a gap. Latencies of one service take about 90 bytes at
// 100 samples and 560 at 10,000.
package estimator
