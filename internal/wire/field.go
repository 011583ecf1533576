package wire

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hedged-project/hedged/policy"
)

// serviceKey reads the "tenant/service" of a message. Unlike an operator's
// input, the wire form always gives the tenant: a policy's name equals its
// resource's name, letter by letter.
func serviceKey(name string) (policy.Key, error) {
	// Validated first, so that what the second message quotes is short.
	key, err := policy.ParseKey(name)
	if err != nil {
		return policy.Key{}, err
	}
	if !strings.Contains(name, "/") {
		return policy.Key{}, fmt.Errorf("%q has no tenant, want \"tenant/service\"", name)
	}
	return key, nil
}

// duration reads a duration of 0 to limit; an absent one is 0.
func duration(field string, d *durationpb.Duration, limit time.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	// AsDuration saturates instead of wrapping, so that one comparison finds all
	// that is too long; CheckValid finds what is no duration at all.
	v := d.AsDuration()
	if d.CheckValid() != nil || v < 0 || v > limit {
		return 0, fmt.Errorf("%s: %d s %d ns, want 0 to %v", field, d.GetSeconds(), d.GetNanos(), limit)
	}
	return v, nil
}

// optionalName checks a name that may be empty.
func optionalName(field, value string) error {
	if value == "" {
		return nil
	}
	return policy.ValidateName(field, value)
}
