package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
)

const (
	// MetadataKey is the gRPC metadata that carries the key, as it is. A hedging
	// client takes a call that has it for safe to repeat.
	MetadataKey = "idempotency-key"
	// Header is the HTTP header that carries the key, as a string in double
	// quotes: "Idempotency-Key is an Item Structured Header. Its value MUST be a
	// String." (draft-ietf-httpapi-idempotency-key-header). A server takes a key
	// without quotes too, for that is what many clients send.
	Header = "Idempotency-Key"
	// Replayed is the HTTP header and, in lower case, the gRPC header metadata
	// that marks an answer as the repetition of an earlier one: "true".
	Replayed = "Idempotency-Replayed"

	// MaxKeyLen is the length of the longest key, in bytes.
	MaxKeyLen = 255
)

// NewKey returns a random key of 128 bits, as 32 hexadecimal digits.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ValidateKey checks a key: 1 to [MaxKeyLen] characters of printable ASCII,
// without the space. The error names value and bound.
func ValidateKey(key string) error {
	if key == "" || len(key) > MaxKeyLen {
		return fmt.Errorf("%s is %d bytes long, want 1 to %d", MetadataKey, len(key), MaxKeyLen)
	}
	for i := range len(key) {
		if c := key[i]; c < '!' || c > '~' {
			return fmt.Errorf("%s has byte %#02x at %d, want printable ASCII (0x21 to 0x7e)", MetadataKey, c, i)
		}
	}
	return nil
}

type keyContext struct{}

// WithKey gives all calls made with the returned context the key. It is for one
// logical call: a second call with other data is refused by the server. A key
// that [ValidateKey] refuses makes the call fail before it is sent.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, key)
}

// KeyFromContext returns the key that WithKey put into the context.
func KeyFromContext(ctx context.Context) (string, bool) {
	key, ok := ctx.Value(keyContext{}).(string)
	return key, ok
}

type incomingContext struct{}

// IncomingKey returns the key of the call that a guarded handler serves. It is
// not what [KeyFromContext] returns, and so does not spread to the calls the
// handler makes: two of them under one key would be a mismatch.
func IncomingKey(ctx context.Context) (string, bool) {
	key, ok := ctx.Value(incomingContext{}).(string)
	return key, ok
}

var errQuoting = errors.New(Header + ` is not a string in double quotes, with \ before " and \ only`)

// formatHeader writes a key as a Structured Field string (RFC 9651, 4.1.6).
func formatHeader(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// parseHeader reads the value of the HTTP header, with or without quotes, and
// validates the key.
func parseHeader(value string) (string, error) {
	// Every character of the longest key escaped, and the quotes.
	const longest = 2*MaxKeyLen + 2
	if len(value) > longest {
		return "", fmt.Errorf("%s is %d bytes long, want at most %d with its quotes", Header, len(value), longest)
	}
	key, quoted := strings.CutPrefix(value, `"`)
	if quoted {
		var b strings.Builder
		closed := false
		for i := 0; i < len(key); i++ {
			c := key[i]
			if c == '"' {
				closed = i == len(key)-1
				break
			}
			if c == '\\' {
				i++
				if i == len(key) || key[i] != '"' && key[i] != '\\' {
					return "", errQuoting
				}
				c = key[i]
			}
			b.WriteByte(c)
		}
		if !closed {
			return "", errQuoting
		}
		key = b.String()
	}
	return key, ValidateKey(key)
}

// newID hashes who sent a key, and the key. What was sent is not part of it: the
// same key for something else must find the record, and be refused.
func newID(caller, key string) (id ID) {
	h := sha256.New()
	hashPart(h, []byte(caller))
	hashPart(h, []byte(key))
	h.Sum(id[:0])
	return id
}

// newFingerprint hashes what was sent.
func newFingerprint(parts ...[]byte) (f Fingerprint) {
	h := sha256.New()
	for _, p := range parts {
		hashPart(h, p)
	}
	h.Sum(f[:0])
	return f
}

// hashPart writes a part with its length, so that no two lists of parts are the
// same bytes.
func hashPart(h hash.Hash, part []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(part)))
	h.Write(n[:])
	h.Write(part)
}
