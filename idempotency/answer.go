package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A kept answer begins with one byte that says what follows.
const (
	formNotKept = 0 // nothing: the call was carried out, the answer was too large
	formGRPC    = 1 // status, header, trailer, type of the reply, reply
	formHTTP    = 2 // status, header, trailer, body
)

// alwaysWithheld are for one recipient at one time; a repetition may come from
// another connection or process of the same caller.
var alwaysWithheld = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization",
	"Authentication-Info", "Proxy-Authentication-Info", "WWW-Authenticate", "Proxy-Authenticate",
}

func withheldNames(further []string) map[string]bool {
	names := make(map[string]bool)
	for _, name := range slices.Concat(alwaysWithheld, further) {
		names[strings.ToLower(name)] = true
	}
	return names
}

func notKept() []byte { return []byte{formNotKept} }

var errDamaged = errors.New("the kept answer is damaged")

// appendPart appends bytes with their length.
func appendPart[T []byte | string](b []byte, part T) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// appendFields appends names with their values: the names sorted, the values in
// their order, none joined or split. What is withheld is left out whole.
func appendFields(b []byte, fields map[string][]string, withheld map[string]bool) []byte {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(fields)), func(name string) bool {
		return withheld[strings.ToLower(name)]
	})
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendPart(b, name)
		b = binary.AppendUvarint(b, uint64(len(fields[name])))
		for _, value := range fields[name] {
			b = appendPart(b, value)
		}
	}
	return b
}

// reader reads an answer part by part. After the first fault it returns nothing
// more, and err says so.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, with %d bytes left", errDamaged, what, len(r.rest))
	}
	r.rest = nil
}

func (r *reader) number(most uint64) int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.fail(fmt.Sprintf("a number is not within 0 to %d", most))
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// count reads how many parts follow, of at least one byte each.
func (r *reader) count() int { return r.number(uint64(len(r.rest))) }

func (r *reader) part() []byte {
	n := r.count()
	if n > len(r.rest) {
		r.fail(fmt.Sprintf("a part of %d bytes is cut", n))
		return nil
	}
	part := r.rest[:n:n]
	r.rest = r.rest[n:]
	return part
}

func (r *reader) fields() map[string][]string {
	fields := make(map[string][]string)
	for range r.count() {
		name := string(r.part())
		values := []string{}
		for range r.count() {
			values = append(values, string(r.part()))
		}
		if _, twice := fields[name]; twice {
			r.fail("a name comes twice")
		}
		fields[name] = values
	}
	return fields
}

// end fails if anything is left.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("there is more than an answer")
	}
	return r.err
}
