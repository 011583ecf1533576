package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// load reads a file of that text, with more sources.
func load(t testing.TB, text string, in Input) (*Config, error) {
	t.Helper()
	in.Path = filepath.Join(t.TempDir(), "hedged.yaml")
	if err := os.WriteFile(in.Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Default("/state"), in)
	return c, stripped(err, in.Path)
}

type shortened string

func (s shortened) Error() string { return string(s) }

// stripped is err with the file called f.
func stripped(err error, path string) error {
	if err == nil {
		return nil
	}
	return shortened(strings.ReplaceAll(err.Error(), path, "f"))
}

func TestLaterSourcesOutweigh(t *testing.T) {
	c, err := load(t, `
cadence: 2s
log_level: warn
defaults:
  target: 4%
  min_delay: 2ms
services:
  checkout:
    target: 3%
    non_fatal: [UNAVAILABLE, 10]
  acme/search-*:
    mode: shadow
`, Input{
		Env:   []string{"HEDGED_CADENCE=3s", "HEDGED_TARGET=2%", "HEDGED_LOG_LEVEL=error", "PATH=/bin"},
		Flags: map[string]string{"log-level": "debug", "max-attempts": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Daemon.Cadence; got != 3*time.Second {
		t.Errorf("cadence %v, want the environment's 3s", got)
	}
	if got := c.LogLevel.String(); got != "DEBUG" {
		t.Errorf("log level %v, want the flag's debug", got)
	}
	for _, s := range []struct {
		name       string
		configured bool
		mode       policy.Mode
		target     float64
		nonFatal   int
	}{
		{"default/checkout", true, policy.ModeActive, .03, 2},
		{"acme/search-eu", true, policy.ModeShadow, .02, 0},
		{"default/search-eu", false, policy.ModeActive, .02, 0},
	} {
		key, err := policy.ParseKey(s.name)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Daemon.Services.For(key)
		if got.Configured != s.configured || got.Mode != s.mode || got.Target != s.target || len(got.NonFatal) != s.nonFatal {
			t.Errorf("%s: %+v, want configured %v, mode %v, target %v, %d codes", s.name, got, s.configured, s.mode, s.target, s.nonFatal)
		}
		if got.MinDelay != 2*time.Millisecond || got.MaxAttempts != 2 {
			t.Errorf("%s: min_delay %v and max_attempts %d, want the defaults' 2ms and 2", s.name, got.MinDelay, got.MaxAttempts)
		}
	}
}

func TestNothingSaidIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "defaults:\nservices: {}\n"} {
		c, err := load(t, text, Input{})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := c.Daemon.Services.For(policy.Key{Tenant: "default", Service: "any"}); got.Configured {
			t.Errorf("%q: a service that nobody named is configured", text)
		}
	}
}

// Whatever is printed is read back as the same.
func TestPrintIsAFile(t *testing.T) {
	before, err := load(t, `
state_dir: "/var/lib/a b: c"
defaults: {target: 7.5%, mode: 'off'}
services:
  "*": {mode: shadow}
  checkout:
    default_delay: 9s
    non_fatal: UNAVAILABLE,ABORTED
    max_tokens: 0
  plain:
`, Input{})
	if err != nil {
		t.Fatal(err)
	}
	first := printed(t, before)
	after, err := load(t, first, Input{})
	if err != nil {
		t.Fatalf("what was printed is refused: %v\n%s", err, first)
	}
	if second := printed(t, after); second != first {
		t.Errorf("printed\n%s\nread and printed again\n%s", first, second)
	}
	if !reflect.DeepEqual(before.Daemon.Services, after.Daemon.Services) {
		t.Errorf("services %+v became %+v", before.Daemon.Services, after.Daemon.Services)
	}
}

func printed(t *testing.T, c *Config) string {
	t.Helper()
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVariablesOfOthers(t *testing.T) {
	c, err := Load(Default("/state"), Input{Env: []string{
		"HEDGED_PORT=tcp://127.0.0.1:80", "HEDGED_SERVICE_HOST=127.0.0.1", "HEDGED_TARGT=3%",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := `$HEDGED_TARGT: is unknown and has no effect; did you mean "HEDGED_TARGET"?`
	if len(c.Warnings) != 1 || c.Warnings[0] != want {
		t.Errorf("warnings %q, want only %q", c.Warnings, want)
	}
}

func TestChangeable(t *testing.T) {
	a, err := load(t, "cadence: 1s", Input{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := load(t, "log_level: debug\nservices: {x: {}}", Input{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Changeable(b); err != nil {
		t.Errorf("another log level and service: %v, want no restart", err)
	}
	c, err := load(t, "cadence: 2s", Input{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Changeable(c); err == nil || err.Error() != "cadence: a change from 1s to 2s needs a restart" {
		t.Errorf("another cadence: %v, want that it needs a restart", err)
	}
}
