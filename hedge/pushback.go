package hedge

import (
	"strconv"
	"time"
)

// PushbackKey is the trailer by which a server asks for a call's next attempt to
// come later, or not at all (gRFC A6).
const PushbackKey = "grpc-retry-pushback-ms"

// Pushback is a server's wish about the further attempts of the call that it has
// failed. The zero value is no wish.
type Pushback struct {
	present bool
	stop    bool
	delay   time.Duration
}

// ParsePushback reads the values of the trailer PushbackKey. It fails safe: what
// it cannot read, two values included, asks for no more attempts.
//
// A6: "The value is to be an ASCII encoded signed 32-bit integer with no
// unnecessary leading zeros that represents how many milliseconds to wait [...]
// If the value for pushback is negative or unparseble, then it will be seen as
// the server asking the client not to retry at all."
func ParsePushback(values []string) Pushback {
	if len(values) == 0 {
		return Pushback{}
	}
	stop := Pushback{present: true, stop: true}
	if len(values) > 1 {
		return stop
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	// Only "0" may start with a zero, and a plus is no part of the format.
	if err != nil || ms < 0 || strconv.FormatInt(ms, 10) != values[0] {
		return stop
	}
	return Pushback{present: true, delay: time.Duration(ms) * time.Millisecond}
}

// Stops reports whether no more attempts are wanted, which Throttle counts as a
// failure.
func (p Pushback) Stops() bool { return p.stop }

// PushbackAfter is the wish of a server, told in another way than by the trailer,
// for the next attempt to come no sooner than after wait, which is not negative.
func PushbackAfter(wait time.Duration) Pushback { return Pushback{present: true, delay: wait} }

// PushbackStop is the wish for no more attempts.
func PushbackStop() Pushback { return Pushback{present: true, stop: true} }
