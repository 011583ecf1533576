package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// Flags adds a flag for each setting to a command and returns what collects
// those that were given, for Input.
func Flags(f *pflag.FlagSet, base *Config) map[string]string {
	given := map[string]string{}
	for _, s := range daemonSettings {
		f.Var(&flagValue{name: s.Flag(), kind: s.Kind, value: s.get(base), given: given}, s.Flag(), s.describe())
	}
	for _, s := range serviceSettings {
		f.Var(&flagValue{name: s.Flag(), kind: s.Kind, value: s.get(&base.service), given: given}, s.Flag(), s.describe())
	}
	return given
}

// flagValue is a pflag.Value that only remembers: Load judges all sources alike.
type flagValue struct {
	name, kind, value string
	given             map[string]string
}

func (f *flagValue) String() string { return f.value }
func (f *flagValue) Type() string   { return strings.ReplaceAll(f.kind, " ", "-") }

func (f *flagValue) Set(s string) error {
	f.value = s
	f.given[f.name] = s
	return nil
}
