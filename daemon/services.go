package daemon

import (
	"fmt"
	"strings"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

// Services says how services are configured. The zero Services does not
// validate: Default must.
type Services struct {
	// Default is for services that no rule matches: control.DefaultConfig, which
	// keeps them in shadow.
	Default control.Config
	// Rules configure the services that they match. The order counts only
	// where two patterns match equally well.
	Rules []ServiceRule
}

// ServiceRule configures the services whose name Pattern matches.
type ServiceRule struct {
	// Pattern is "tenant/service", or "service" of the default tenant. In either
	// part * stands for any characters, none included; in the tenant for no slash.
	Pattern string
	Config  control.Config
}

// For returns the configuration of a service: that of the rule that names it;
// else of the matching rule with the most characters besides *, the first of equals; else
// Default.
func (s *Services) For(key policy.Key) control.Config {
	best, most := -1, -1
	for i, r := range s.Rules {
		literal, ok := match(r.Pattern, key)
		if ok && literal > most {
			best, most = i, literal
		}
	}
	if best < 0 {
		return s.Default
	}
	return s.Rules[best].Config
}

// Named returns the services that rules name without a *, in the rules' order.
func (s *Services) Named() []policy.Key {
	var keys []policy.Key
	for _, r := range s.Rules {
		if key, err := policy.ParseKey(r.Pattern); err == nil && !strings.Contains(r.Pattern, "*") {
			keys = append(keys, key)
		}
	}
	return keys
}

// Validate reports the first rule, or field of one, that is out of bounds.
func (s *Services) Validate() error {
	if err := s.Default.Validate(); err != nil {
		return err
	}
	seen := make(map[policy.Key]bool, len(s.Rules))
	for _, r := range s.Rules {
		key, err := policy.ParseKey(r.Pattern)
		if err != nil {
			return fmt.Errorf("service %q: %w", r.Pattern, err)
		}
		if seen[key] {
			return fmt.Errorf("service %q: is configured twice", r.Pattern)
		}
		seen[key] = true
		if err := r.Config.Validate(); err != nil {
			return fmt.Errorf("service %q: %w", r.Pattern, err)
		}
	}
	return nil
}

// configured is what became of the configuration that was read last.
type configured struct {
	at  time.Time // when the configuration in force was read
	err error     // why a later one is not in force; nil: there is none
}

// Configure replaces the configuration of all services by s, which the caller
// writes to no more, and returns when every service was decided by it. An s that does not validate changes nothing. It may
// be called while the daemon runs, by one goroutine at a time.
func (d *Daemon) Configure(s Services) error {
	if err := s.Validate(); err != nil {
		return err
	}
	d.services.Store(&s)
	d.configured.Store(&configured{at: time.Now()})
	d.review(false)
	for _, key := range s.Named() {
		if _, err := d.owner(key); err != nil {
			return err
		}
	}
	return nil
}

// RefuseConfig says that a configuration was read that is not in force because of
// err: the one before holds. Status, health metrics and the log tell it.
func (d *Daemon) RefuseConfig(err error) {
	before := d.configured.Load()
	d.configured.Store(&configured{at: before.at, err: err})
	d.logger.Error("configuration refused; the one before stays in force", "file", d.cfg.File, "error", err)
}

// match reports whether a pattern matches a service, and how many characters it
// names; an exact name counts for more than any pattern.
func match(pattern string, key policy.Key) (literal int, ok bool) {
	p, err := policy.ParseKey(pattern)
	if err != nil {
		return 0, false
	}
	if p == key {
		return len(pattern) + 2*policy.MaxNameLen, true
	}
	literal = len(pattern) - strings.Count(pattern, "*")
	return literal, glob(p.Tenant, key.Tenant) && glob(p.Service, key.Service)
}

// glob reports whether name is pattern with each * replaced by some characters.
func glob(pattern, name string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	for ok && more {
		first, rest, more = strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, first)
		}
		_, name, ok = strings.Cut(name, first)
	}
	return ok
}
