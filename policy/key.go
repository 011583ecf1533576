package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultTenant is the tenant of a name that gives none.
const DefaultTenant = "default"

// MaxNameLen is the longest tenant, service, method, replica or client name, in bytes.
const MaxNameLen = 256

// Key names a service: tenant and the logical service name that operators use.
// It is comparable; the zero Key names nothing.
type Key struct {
	Tenant  string
	Service string
}

// String returns "tenant/service", the name of the service's policy resource.
func (k Key) String() string { return k.Tenant + "/" + k.Service }

// ParseKey reads "tenant/service"; a name without a slash belongs to
// DefaultTenant. The service may itself contain slashes.
func ParseKey(name string) (Key, error) {
	tenant, service, found := strings.Cut(name, "/")
	if !found {
		tenant, service = DefaultTenant, name
	}
	k := Key{Tenant: tenant, Service: service}
	return k, k.Validate()
}

// Validate reports whether both parts are valid names.
func (k Key) Validate() error {
	if strings.Contains(k.Tenant, "/") {
		return fmt.Errorf("tenant: %s contains a slash", quote(k.Tenant))
	}
	if err := ValidateName("tenant", k.Tenant); err != nil {
		return err
	}
	return ValidateName("service", k.Service)
}

// ValidateName reports whether value can name a tenant, service, method,
// replica, client or zone: 1 to MaxNameLen bytes of valid UTF-8 in which every
// rune is printable. The error names field, value and bound.
func ValidateName(field, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%s: is empty, want 1 to %d bytes", field, MaxNameLen)
	case len(value) > MaxNameLen:
		return fmt.Errorf("%s: %s is %d bytes long, want at most %d", field, quote(value), len(value), MaxNameLen)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s: %s is not valid UTF-8", field, quote(value))
	}
	for i, r := range value {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s: %s has the unprintable character %U at byte %d", field, quote(value), r, i)
		}
	}
	return nil
}

// quote shows the start of a name that may be long or hostile.
func quote(s string) string {
	const shown = 40
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:shown]) + "..."
}
