package config

import (
	"strings"
	"testing"
)

// Every mistake is named with its place, its value and what is wanted instead,
// and gives no configuration at all.
func TestMistakesInFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// Keys.
		{"tagret: 5%", `f:1: "tagret": is no setting of the file, want defaults,`},
		{"target: 5%", `f:1: "target": is no setting of the file: put it under "defaults" or a service of "services"`},
		{"gprc: x", `f:1: "gprc": is no setting of the file; did you mean "grpc"?`},
		{"service: {}", `f:1: "service": is no setting of the file; did you mean "services"?`},
		{"Grpc: x", `f:1: "Grpc": is no setting of the file; did you mean "grpc"?`},
		{"state-dir: x", `f:1: "state-dir": is no setting of the file; did you mean "state_dir"?`},
		{"\n\ndefaults:\n  mod: off", `f:4: "mod": is no setting of defaults; did you mean "mode"?`},
		{"defaults:\n  grpc: 127.0.0.1:1", `f:2: "grpc": is no setting of defaults, want mode,`},
		{"services:\n  a:\n    targt: 1%", `f:3: "targt": is no setting of service "a"; did you mean "target"?`},
		{"services:\n  a:\n    services: {}", `f:3: "services": is no setting of service "a"`},
		{"cadence: 1s\ncadence: 2s", `f:2: cadence: is set already in line 1`},
		{"services:\n  a: {}\n  b: {}\n  a: {}", `f:4: a: is set already in line 2`},
		{"defaults:\n  mode: shadow\n  mode: active", `f:3: mode: is set already in line 2`},
		{"[a, b]: c", `f:1: the file: a key is a list, want a name`},
		{"? {a: b}\n: c", `f:1: the file: a key is a mapping, want a name`},
		{"\"\": x", `f:1: "": is no setting of the file`},
		{"<<: {mode: shadow}", `f:1: "<<": is no setting of the file`},
		// Shapes.
		{"just words", `f:1: the file: "just words", want settings as "name: value"`},
		{"- a\n- b", `f:1: the file: a list, want settings`},
		{"defaults: shadow", `f:1: defaults: "shadow", want settings as "name: value"`},
		{"defaults: [mode]", `f:1: defaults: a list, want settings`},
		{"services: [a, b]", `f:1: services: a list, want settings`},
		{"services:", `f:1: services: empty, want settings`},
		{"services: checkout", `f:1: services: "checkout", want settings`},
		{"services:\n  a: active", `f:2: service "a": "active", want settings`},
		{"services:\n  a: [active]", `f:2: service "a": a list, want settings`},
		{"cadence:", `f:1: cadence: is empty, want a value`},
		{"cadence: {s: 1}", `f:1: cadence: is a mapping, want a value`},
		{"defaults:\n  target:", `f:2: target: is empty, want a value`},
		{"defaults:\n  target: {a: b}", `f:2: target: is a mapping, want a value`},
		{"defaults:\n  non_fatal: [[UNAVAILABLE]]", `f:2: non_fatal: a list in a list, want a value`},
		{"defaults:\n  non_fatal: [{a: b}]", `f:2: non_fatal: a mapping in a list, want a value`},
		// YAML.
		{"a: [1", `f:`},
		{"defaults:\n\tmode: off", `f:2: `},
		{"a: b: c", `f:1: `},
		{"cadence: *nobody", `f:`},
		{"cadence: \"1s", `f:`},
		{"cadence: 1s\n---\ncadence: 2s", `f:2: a second document begins, want one`},
		{"%YAML 9", `f:`},
		{"\x00", `f`},
		// Values of the daemon.
		{"grpc: 0.0.0.0:7946", `f:1: grpc: "0.0.0.0:7946" is not a loopback address`},
		{"grpc: 127.0.0.1", `f:1: grpc: "127.0.0.1": address 127.0.0.1: missing port in address, want HOST:PORT`},
		{"http: example.org:80", `f:1: http: "example.org:80" is not a loopback address`},
		{"http: ''", `f:1: http: ""`},
		{"state_dir: ''", `f:1: state_dir: is empty`},
		{"cadence: 1", `f:1: cadence: "1" is no time, want a number with its unit such as 15ms`},
		{"cadence: soon", `f:1: cadence: "soon" is no time`},
		{"cadence: 10ms", `f:1: cadence: 10ms, want 100ms to 1m`},
		{"cadence: 2m", `f:1: cadence: 2m0s, want 100ms to 1m`},
		{"shutdown_timeout: 0s", `f:1: shutdown_timeout: 0s, want more than 0 and at most 5m`},
		{"shutdown_timeout: -1s", `f:1: shutdown_timeout: -1s, want more than 0`},
		{"log_level: warning", `f:1: log_level: "warning" is no level, want debug, info, warn or error`},
		{"log_level: 3", `f:1: log_level: "3" is no level`},
		// Values of services.
		{"defaults: {mode: on}", `f:1: mode: "on" is no mode, want off, shadow or active`},
		{"defaults: {mode: activ}", `f:1: mode: "activ" is no mode; did you mean "active"?`},
		{"defaults: {mode: true}", `f:1: mode: "true" is no mode`},
		{"defaults: {target: 5}", `f:1: target: 5, want 0.001 to 0.5`},
		{"defaults: {target: 70%}", `f:1: target: 0.7, want 0.001 to 0.5`},
		{"defaults: {target: 0}", `f:1: target: 0, want 0.001 to 0.5`},
		{"defaults: {target: -5%}", `f:1: target: -0.05, want 0.001 to 0.5`},
		{"defaults: {target: five}", `f:1: target: "five" is no share, want a number such as 0.05 or 5%`},
		{"defaults: {target: .nan}", `f:1: target: ".nan" is no share`},
		{"defaults: {target: NaN}", `f:1: target: "NaN" is no share`},
		{"defaults: {min_delay: 0s}", `f:1: min_delay: 0s, want more than 0`},
		{"defaults: {min_delay: 2h}", `f:1: min_delay: 2h0m0s, want more than 0 and at most 1h0m0s`},
		{"defaults: {max_delay: 2h}", `f:1: max_delay: 2h0m0s, want min_delay 1ms to 1h0m0s`},
		{"defaults: {min_delay: 20s}", `f:1: max_delay: 10s, want min_delay 20s`},
		{"defaults:\n  max_delay: 5ms\n  min_delay: 6ms", `f:2: max_delay: 5ms, want min_delay 6ms`},
		{"defaults: {default_delay: 1us}", `f:1: default_delay: 1µs, want 0 or 1ms to 10s`},
		{"defaults: {max_attempts: 1}", `f:1: max_attempts: 1, want 2 to 5`},
		{"defaults: {max_attempts: 2.5}", `f:1: max_attempts: "2.5" is no whole number`},
		{"defaults: {max_attempts: many}", `f:1: max_attempts: "many" is no whole number`},
		{"defaults: {non_fatal: UNAVAILABEL}", `f:1: non_fatal: "UNAVAILABEL" is no status code of a failure; did you mean "UNAVAILABLE"?`},
		{"defaults: {non_fatal: [OK]}", `f:1: non_fatal: "OK" is no status code of a failure`},
		{"defaults: {non_fatal: [99]}", `f:1: non_fatal: "99" is no status code of a failure`},
		{"defaults: {max_tokens: 1001}", `f:1: max_tokens: 1001, want 0 to 1000`},
		{"defaults: {max_tokens: lots}", `f:1: max_tokens: "lots" is no number`},
		{"defaults: {token_ratio: 0}", `f:1: token_ratio: 0, want more than 0 where max_tokens is 10`},
		{"defaults: {probation_cap: 101%}", `f:1: probation_cap: 1.01, want 0 to 1`},
		{"defaults: {valid_for: 25h}", `f:1: valid_for: 25h0m0s, want more than 0 and at most 24h0m0s`},
		{"defaults: {valid_for: forever}", `f:1: valid_for: "forever" is no time`},
		// Services.
		{"services: {'': {}}", `f:1: service: is empty, want 1 to 256 bytes`},
		{"services: {/a: {}}", `f:1: tenant: is empty`},
		{"services: {\"a\\u0007\": {}}", `f:1: service: "a\a" has the unprintable character U+0007 at byte 1`},
		{"services: {" + strings.Repeat("a", 300) + ": {}}", `is 300 bytes long, want at most 256`},
		{"services: {a: {}, default/a: {}}", `service "default/a": is configured twice`},
		{"services:\n  a:\n    max_attempts: 9", `f:3: max_attempts: 9, want 2 to 5`},
		{"defaults: {min_delay: 5ms}\nservices:\n  a:\n    max_delay: 4ms", `f:4: max_delay: 4ms, want min_delay 5ms`},
		{"services:\n  a: {token_ratio: 0, max_tokens: 0}\n  b:\n    token_ratio: 0", `f:4: token_ratio: 0, want more than 0`},
		{strings.Repeat("#", maxFile+1), `f: is 1048577 bytes long, want at most 1048576`},
	} {
		got, err := load(t, c.text, Input{})
		if err == nil || got != nil {
			t.Errorf("%.60q is accepted, want an error with %s", c.text, c.want)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v\nwant: %s", c.text, err, c.want)
		}
	}
}

func TestMistakesElsewhere(t *testing.T) {
	for _, c := range []struct {
		in   Input
		want string
	}{
		{Input{Env: []string{"HEDGED_TARGET=70%"}}, `$HEDGED_TARGET: 0.7, want 0.001 to 0.5`},
		{Input{Env: []string{"HEDGED_CADENCE="}}, `$HEDGED_CADENCE: "" is no time`},
		{Input{Env: []string{"HEDGED_LOG_LEVEL=loud"}}, `$HEDGED_LOG_LEVEL: "loud" is no level`},
		{Input{Flags: map[string]string{"max-delay": "1us"}}, `--max-delay: 1µs, want min_delay 1ms`},
		{Input{Flags: map[string]string{"grpc": "x"}}, `--grpc: "x": address x: missing port`},
		{Input{Flags: map[string]string{"mode": "Active"}}, `--mode: "Active" is no mode; did you mean "active"?`},
	} {
		_, err := Load(Default("/state"), c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.in, err, c.want)
		}
	}
	if _, err := Load(Default("/state"), Input{Path: "/nowhere/hedged.yaml"}); err == nil || !strings.Contains(err.Error(), "/nowhere/hedged.yaml") {
		t.Errorf("a file that is not there: %v, want its name", err)
	}
}

// All mistakes are found at once, in the order of their lines.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := load(t, "grpc: here\ndefaults:\n  mode: onn\nservices:\n  a:\n    target: 9\n    colour: red\n", Input{})
	if err == nil {
		t.Fatal("accepted")
	}
	var places []string
	for line := range strings.Lines(err.Error()) {
		place, _, _ := strings.Cut(line, ": ")
		places = append(places, place)
	}
	if got, want := strings.Join(places, " "), "f:1 f:3 f:6 f:7"; got != want {
		t.Errorf("places %s, want %s, in\n%v", got, want, err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add("defaults: {target: 5%}\nservices: {a: {mode: shadow}, 'b*': {non_fatal: [UNAVAILABLE]}}")
	f.Add("a: &x [*x]")
	f.Add("services: &s\n  a: *s")
	f.Add("? [a]\n: {b: c}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, text, Input{})
		if err != nil {
			return
		}
		if err := c.Daemon.Validate(); err != nil {
			t.Errorf("a file that was read gives a configuration that is out of bounds: %v", err)
		}
		if _, err := load(t, printed(t, c), Input{}); err != nil {
			t.Errorf("what was printed is refused: %v", err)
		}
	})
}
