package hedge

import (
	"strconv"
	"time"
)

// PushbackKey is the trailer by which a server asks for its attempts to come
// later, or not at all (gRFC A6).
const PushbackKey = "grpc-retry-pushback-ms"

// Pushback is a server's wish about further attempts of the call. The zero
// value is no wish.
type Pushback struct {
	present bool
	stop    bool
	delay   time.Duration
}

// ParsePushback reads the values of the trailer PushbackKey.
func ParsePushback(values []string) Pushback {
	if len(values) == 0 {
		return Pushback{}
	}
	if len(values) > 1 {
		return Pushback{present: true, stop: true}
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || ms < 0 {
		return Pushback{present: true, stop: true}
	}
	return Pushback{present: true, delay: time.Duration(ms) * time.Millisecond}
}

// Stops reports whether no more attempts are wanted.
func (p Pushback) Stops() bool { return p.stop }
