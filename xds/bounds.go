package xds

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// What one stream may say; see account for what it may hold.
const (
	maxText  = 1024 // bytes of a type URL, a name, a version, a node id or a nonce
	maxTypes = 100  // types of one stream
	// maxReason is how much of a rejection's reason is kept, in bytes.
	maxReason = 1024
)

// checkText reports whether value is 1 to maxText bytes of UTF-8 without
// control characters. The error names field, value and bound.
func checkText(field, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%s: is empty, want 1 to %d bytes", field, maxText)
	case len(value) > maxText:
		return fmt.Errorf("%s: %s is %d bytes long, want at most %d", field, quote(value), len(value), maxText)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s: %s is not valid UTF-8", field, quote(value))
	}
	for i, r := range value {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return fmt.Errorf("%s: %s has the control character %U at byte %d", field, quote(value), r, i)
		}
	}
	return nil
}

// checkOptional is checkText for a field that may be empty.
func checkOptional(field, value string) error {
	if value == "" {
		return nil
	}
	return checkText(field, value)
}

// errTooMany says that value would be more than limit of what.
func errTooMany(field, value string, limit int, what string) error {
	return fmt.Errorf("%s: %s is too many, want at most %d %s on a stream", field, quote(value), limit, what)
}

// quote shows the start of a text that may be long or hostile.
func quote(s string) string {
	const shown = 40
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:shown]) + "..."
}
