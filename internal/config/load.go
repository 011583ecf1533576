package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/internal/suggest"
)

// EnvPrefix begins the name of every environment variable that is read.
const EnvPrefix = "HEDGED_"

// Input is where settings come from, the least weighty first.
type Input struct {
	Path  string            // of the YAML file; empty: none
	Env   []string          // "NAME=value", as os.Environ gives it; only HEDGED_... is looked at
	Flags map[string]string // those that were given, by Flag
}

// Problem is one thing that is wrong, and where.
type Problem struct {
	Place string // "FILE:LINE", "$VARIABLE" or "--flag"
	Err   error  // names the setting, the value and the bound
}

func (p Problem) Error() string {
	text := p.Err.Error()
	if p.Place[0] == '$' || p.Place[0] == '-' { // the place is the setting
		if _, rest, ok := strings.Cut(text, ": "); ok {
			text = rest
		}
	}
	return p.Place + ": " + text
}

func (p Problem) Unwrap() error { return p.Err }

// Problems is everything that is wrong with an Input.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single problems.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Default is what a daemon does that is told nothing. stateDir is where its
// state is then.
func Default(stateDir string) *Config {
	c := &Config{Daemon: daemon.DefaultConfig(), LogLevel: slog.LevelInfo, service: control.DefaultConfig()}
	c.Daemon.StateDir = stateDir
	return c
}

// Load reads all of in on top of base, which is left as it is. The error is a
// Problems, or says that the file cannot be read; then there is no Config.
func Load(base *Config, in Input) (*Config, error) {
	c := *base
	l := &loader{c: &c, daemon: map[string]string{}, defaults: map[string]string{}}
	if in.Path != "" {
		c.Daemon.File = in.Path
		blob, err := os.ReadFile(in.Path)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		l.file(in.Path, blob)
	}
	l.environment(in.Env)
	for _, name := range slices.Sorted(maps.Keys(in.Flags)) {
		l.flag(name, in.Flags[name])
	}
	l.whole()
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, byPlace)
		return nil, l.problems
	}
	return l.c, nil
}

// loader is one Load.
type loader struct {
	c        *Config
	problems Problems

	// Where each setting was set last, by its name; absent: nowhere.
	daemon, defaults map[string]string
	rules            []rule
}

// rule is a service of the file, whose settings apply on top of the defaults.
type rule struct {
	pattern string
	place   string
	values  []placed
}

type placed struct{ name, value, place string }

func (l *loader) bad(place string, format string, args ...any) {
	l.problems = append(l.problems, Problem{place, fmt.Errorf(format, args...)})
}

// environment takes variables in. One that looks like ours but is not may be
// another program's, as are those that orchestrators make for a service of
// our name; so it is a warning only.
func (l *loader) environment(env []string) {
	slices.Sort(env)
	var names []string
	for _, s := range daemonSettings {
		names = append(names, s.Variable())
	}
	for _, s := range serviceSettings {
		names = append(names, s.Variable())
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		if !slices.Contains(names, name) {
			if hint := suggest.For(name, names); strings.Contains(hint, "did you mean") {
				l.c.Warnings = append(l.c.Warnings, "$"+name+": is unknown and has no effect"+hint)
			}
			continue
		}
		l.scalar("$"+name, strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), value)
	}
}

func (l *loader) flag(name, value string) {
	l.scalar("--"+name, strings.ReplaceAll(name, "-", "_"), value)
}

// scalar sets a setting of the daemon, or a default of services.
func (l *loader) scalar(place, name, value string) {
	if s := find(daemonSettings, name); s != nil {
		l.set(place, name, s.set(l.c, value), l.daemon)
		return
	}
	if s := find(serviceSettings, name); s != nil {
		l.set(place, name, check(s, value, &l.c.service), l.defaults)
		return
	}
	l.bad(place, "%s: is no setting", name)
}

func (l *loader) set(place, name string, err error, places map[string]string) {
	if err != nil {
		l.problems = append(l.problems, Problem{place, err})
		return
	}
	places[name] = place
}

// check sets a setting of a service if its value is within its own bounds.
func check(s *setting[control.Config], value string, into *control.Config) error {
	alone := control.DefaultConfig()
	if err := s.set(&alone, value); err != nil {
		return err
	}
	if err := alone.Validate(); err != nil && about(err) == s.Name {
		return plain(err)
	}
	return s.set(into, value)
}

// whole checks what concerns several settings, and puts the services together.
func (l *loader) whole() {
	c := l.c
	if err := c.Daemon.Validate(); err != nil {
		if place, set := l.daemon[about(err)]; set || len(l.problems) == 0 {
			l.problems = append(l.problems, Problem{cmp.Or(place, "defaults"), plain(err)})
		}
	}
	valid := func(cfg control.Config, places map[string]string, otherwise string) bool {
		err := cfg.Validate()
		if err == nil {
			return true
		}
		place := otherwise
		if p, ok := places[about(err)]; ok {
			place = p
		} else {
			for name, p := range places { // it is the other of two that was set
				if strings.Contains(err.Error(), name) {
					place = p
				}
			}
		}
		l.problems = append(l.problems, Problem{place, plain(err)})
		return false
	}
	if !valid(c.service, l.defaults, "defaults") {
		return // each rule would repeat it
	}
	services := daemon.Services{Default: c.service}
	for _, r := range l.rules {
		cfg, places := c.service, map[string]string{}
		for name, place := range l.defaults {
			places[name] = place
		}
		cfg.Configured = true
		good := true
		for _, v := range r.values {
			err := check(find(serviceSettings, v.name), v.value, &cfg)
			l.set(v.place, v.name, err, places)
			good = good && err == nil
		}
		if good && valid(cfg, places, r.place) {
			services.Rules = append(services.Rules, daemon.ServiceRule{Pattern: r.pattern, Config: cfg})
			if err := services.Validate(); err != nil { // the same service by another name
				l.problems = append(l.problems, Problem{r.place, err})
			}
		}
	}
	c.Daemon.Services = services
}

// about returns the name of the setting that an error of a Validate begins with.
func about(err error) string {
	field, _, _ := strings.Cut(err.Error(), ":")
	field = field[strings.LastIndex(field, ".")+1:]
	switch field {
	case "grpc address", "http address":
		return field[:4]
	case "state directory":
		return "state_dir"
	}
	return strings.ReplaceAll(field, " ", "_")
}

// plain is err about the setting by the name that operators know.
func plain(err error) error {
	if _, rest, ok := strings.Cut(err.Error(), ":"); ok {
		return errors.New(about(err) + ":" + rest)
	}
	return err
}

// Flag is the name of the command-line flag.
func (s *setting[T]) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Variable is the name of the environment variable.
func (s *setting[T]) Variable() string { return EnvPrefix + strings.ToUpper(s.Name) }

func find[T any](list []setting[T], name string) *setting[T] {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// byPlace orders problems of a file by line, and leaves others as they were found.
func byPlace(a, b Problem) int {
	file, line := cut(a.Place)
	otherFile, other := cut(b.Place)
	if file != otherFile {
		return 0
	}
	return line - other
}

func cut(place string) (file string, line int) {
	i := strings.LastIndexByte(place, ':')
	if i < 0 {
		return place, 0
	}
	line, _ = strconv.Atoi(place[i+1:]) // not a number: the whole file is meant
	return place[:i], line
}

// Changeable reports the first setting of next that a running daemon cannot take
// over from c: it needs a restart.
func (c *Config) Changeable(next *Config) error {
	for _, s := range daemonSettings {
		if was, is := s.get(c), s.get(next); was != is && s.Name != "log_level" {
			return fmt.Errorf("%s: a change from %s to %s needs a restart", s.Name, was, is)
		}
	}
	return nil
}
