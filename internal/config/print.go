package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/hedged-project/hedged/control"
)

// Print writes the configuration in force as a file that Load reads: every
// setting with its value, and of each service what differs from the defaults.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
	for _, s := range daemonSettings {
		fmt.Fprintf(&b, "# %s\n%s: %s\n", s.describe(), s.Name, scalar(s.get(c)))
	}
	fmt.Fprintf(&b, "\n# Of every service below, where it says nothing else.\n%s:\n", sectionDefaults)
	for _, s := range serviceSettings {
		fmt.Fprintf(&b, "  # %s\n  %s: %s\n", s.describe(), s.Name, scalar(s.get(&c.service)))
	}
	b.WriteString("\n# By name, \"service\" or \"tenant/service\"; * stands for any characters.\n" +
		"# A service that is not named here is in shadow: it is measured, not hedged.\n")
	rules := c.Daemon.Services.Rules
	if len(rules) == 0 {
		fmt.Fprintf(&b, "%s: {}\n", sectionServices)
	} else {
		fmt.Fprintf(&b, "%s:\n", sectionServices)
	}
	for _, r := range rules {
		b.WriteString("  " + scalar(r.Pattern) + ":" + differences(&r.Config, &c.service) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func differences(cfg, defaults *control.Config) string {
	var b strings.Builder
	for _, s := range serviceSettings {
		if v := s.get(cfg); v != s.get(defaults) {
			b.WriteString("\n    " + s.Name + ": " + scalar(v))
		}
	}
	if b.Len() == 0 {
		return " {}"
	}
	return b.String()
}

func (s *setting[T]) describe() string {
	if s.Bounds == "" {
		return s.Doc
	}
	return s.Doc + " (" + s.Bounds + ")"
}

// scalar writes a value such that YAML reads the same text.
func scalar(s string) string {
	if s == "" || strings.ContainsAny(s, "*&!{}[],#|>@`\"'%\\: ") || s == "off" || s == "null" || s == "~" {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return s
}
