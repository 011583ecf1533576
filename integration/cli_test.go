package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ran is what one run of a command did.
type ran struct {
	code           int
	stdout, stderr string
}

// run runs a command to its end; a command that does not come to it fails the test.
func run(t *testing.T, name string, args ...string) ran {
	t.Helper()
	cmd := command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !hangs.Stop() {
		t.Fatalf("%s %q did not end within %v", name, args, patience)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// words splits a command line; ” stands for an empty word.
func words(line string) []string {
	var out []string
	for w := range strings.FieldsSeq(line) {
		out = append(out, strings.ReplaceAll(w, "”", ""))
	}
	return out
}

// Whatever is typed wrong: exit code 2, nothing on standard output, and a message
// that names the flag, the value and the bound.
func TestMistypedCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"hedged users":                        `unknown command "users" for "hedged"`,
		"hedged --tarjet 0.05":                `unknown flag: --tarjet; did you mean "target"?`,
		"hedged --target":                     `flag needs an argument: --target`,
		"hedged --target 0":                   `--target: 0, want 0.001 to 0.5`,
		"hedged --target -1":                  `--target: -1, want 0.001 to 0.5`,
		"hedged --target 1.5":                 `--target: 1.5, want 0.001 to 0.5`,
		"hedged --target NaN":                 `--target: "NaN" is no share, want a number such as 0.05 or 5%`,
		"hedged --target 1e300":               `--target: 1e\+300, want 0.001 to 0.5`,
		"hedged --target 1e999":               `--target: "1e999" is no share, want a number such as 0.05 or 5%`,
		"hedged --target five":                `--target: "five" is no share, want a number such as 0.05 or 5%`,
		"hedged --grpc 7946":                  `--grpc: "7946": .*want HOST:PORT`,
		"hedged --grpc 0.0.0.0:0":             `--grpc: "0.0.0.0:0" is not a loopback address, want 127.0.0.1`,
		"hedged --grpc :0":                    `--grpc: ":0" is not a loopback address, want 127.0.0.1`,
		"hedged --grpc 192.0.2.1:7946":        `--grpc: "192.0.2.1:7946" is not a loopback address, want 127.0.0.1`,
		"hedged --http 192.0.2.1:7947":        `--http: "192.0.2.1:7947" is not a loopback address, want 127.0.0.1`,
		"hedged --http ”":                     `--http: "": .*want HOST:PORT`,
		"hedged --state-dir ”":                `--state-dir: is empty`,
		"hedged --cadence 1ms":                `--cadence: 1ms, want 100ms to 1m`,
		"hedged --cadence 5":                  `--cadence: "5" is no time, want a number with its unit`,
		"hedged --shutdown-timeout 0s":        `--shutdown-timeout: 0s, want more than 0 and at most 5m`,
		"hedged --log-level loud":             `--log-level: "loud" is no level, want debug, info, warn or error`,
		"hedged config check /nowhere":        `configuration: open /nowhere: no such file`,
		"hedged config check a b":             `accepts at most 1 arg\(s\), received 2`,
		"hedged config chek":                  `unknown command "chek" for "hedged config"`,
		"hedged config print --mode on":       `--mode: "on" is no mode, want off, shadow or active`,
		"hedged --config /nowhere":            `configuration: open /nowhere: no such file`,
		"hedgectl stats":                      `(?s)unknown command "stats".*status`,
		"hedgectl status -o xml":              `--output: "xml", want table, json or yaml`,
		"hedgectl demo -o yaml":               `--output: "yaml", want table or json`,
		"hedgectl off users --for 0s":         `--for: 0s, want 1s to 720h0m0s`,
		"hedgectl off users --for soon":       `--for: "soon" is not understood, want .*1s to 720h`,
		"hedgectl set users":                  `set: want what to set: --target`,
		"hedgectl set users --target 2":       `--target: 2, want 0.001 to 0.5`,
		"hedgectl history --limit 0":          `--limit: 0, want 1 to 1000`,
		"hedgectl history a b":                `accepts at most 1 arg\(s\), received 2`,
		"hedgectl rollback":                   `rollback: want a SERVICE, or --all; got 0 arguments`,
		"hedgectl policy get":                 `accepts 1 arg\(s\), received 0`,
		"hedgectl policy get a --format xml":  `--format: "xml", want service-config or policy`,
		"hedgectl replicas":                   `accepts 1 arg\(s\), received 0`,
		"hedgectl status --timeout 0":         `--timeout: 0s, want more than 0`,
		"hedgectl status --timeout -1s":       `--timeout: -1s, want more than 0`,
		"hedgectl status --timeout soon":      `--timeout: "soon" is not understood, want .*more than 0s`,
		"hedgectl status a b":                 `accepts at most 1 arg\(s\), received 2`,
		"hedgectl status --daemon ”":          `--daemon: "", want HOST:PORT`,
		"hedgectl status --daemon localhost":  `--daemon: "localhost", want HOST:PORT`,
		"hedgectl status --daemon ::1:7946":   `--daemon: "::1:7946", want HOST:PORT`,
		"hedgectl status --daemon host:99999": `--daemon: "host:99999", want HOST:PORT with a port of 1 to 65535`,
		"hedgectl watch --interval 1ms":       `--interval: 1ms, want 100ms to 1m`,
		"hedgectl explain":                    `accepts between 1 and 2 arg\(s\), received 0`,
		"hedgectl off":                        `off: want a SERVICE, or --all`,
		"hedgectl on":                         `on: want a SERVICE, or --all`,
		"hedgectl shadow":                     `shadow: want a SERVICE, or --all`,
		"hedgectl off --all users":            `off: "users" is given beside --all, want one of them`,
		"hedgectl off users orders":           `off: want a SERVICE, or --all; got 2 arguments`,
		"hedgectl off users --target 0.05":    `unknown flag: --target`,
		"hedgectl on users --target 0":        `--target: 0, want 0.001 to 0.5`,
		"hedgectl on users --target NaN":      `--target: NaN, want 0.001 to 0.5`,
		"hedgectl on users --target 1.5":      `--target: 1.5, want 0.001 to 0.5`,
		"hedgectl demo now":                   `unknown command "now" for "hedgectl demo"`,
		"hedgectl demo --in-flight 0":         `--in-flight: 0, want 1 to 2000`,
		"hedgectl demo --in-flight -3":        `--in-flight: -3, want 1 to 2000`,
		"hedgectl demo --in-flight 4,abc":     `--in-flight: "4,abc" is not understood, want .*1 to 2000`,
		"hedgectl demo --in-flight 1000000":   `--in-flight: 1000000, want 1 to 2000`,
		"hedgectl demo --calls -1":            `--calls: -1, want 0 to 1000000`,
		"hedgectl demo --runs 0":              `--runs: 0, want 1 to 1000`,
		"hedgectl demo --target 1.5":          `--target: 1.5, want 0.001 to 0.5`,
		"hedgectl demo --seed -1":             `--seed: "-1" is not understood, want .*0 or more`,
		"hedgectl demo --scenes drift,storm":  `--scenes: "storm" is unknown, want all, none, or some of kill-switch,daemon-restart,slow-replica,drift`,
		"hedgectl demo --scenes ”":            `--scenes: "" is unknown, want all, none`,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := run(t, words(line)[0], words(line)[1:]...)
			if got.code != 2 {
				t.Errorf("exit code %d, want 2", got.code)
			}
			if got.stdout != "" {
				t.Errorf("on standard output %q, want nothing", got.stdout)
			}
			if !regexp.MustCompile(want).MatchString(got.stderr) {
				t.Errorf("on standard error\n%swant a match of\n%s", got.stderr, want)
			}
			if !strings.Contains(got.stderr, "--help' for usage") {
				t.Errorf("on standard error\n%swant a hint to --help", got.stderr)
			}
		})
	}
}

// What cannot be done, though it was understood: exit code 1 and what to do.
func TestFailures(t *testing.T) {
	t.Parallel()
	closed := closedPort(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ line, want string }{
		{"hedgectl status --daemon " + closed, `the daemon at ` + closed + ` does not answer: .*refused\nIs it running\? Start it with 'hedged', or name the address of its gRPC port with --daemon`},
		{"hedgectl status -o json --daemon " + closed, `does not answer`},
		{"hedgectl explain users --daemon " + closed, `does not answer`},
		{"hedgectl watch --daemon " + closed, `does not answer`},
		{"hedgectl off --all --daemon " + closed, `does not answer`},
		{"hedgectl status --timeout 100ms --daemon " + silentPort(t), `did not answer within 100ms`},
		{"hedged --grpc 127.0.0.1:0 --http 127.0.0.1:0 --state-dir " + file, `state.*` + file + `.*not a directory`},
		{"hedged --grpc 127.0.0.1:0 --http 127.0.0.1:0 --state-dir /proc/hedged", `state.*/proc/hedged`},
		{"hedged --http 127.0.0.1:0 --state-dir " + t.TempDir() + " --grpc " + silentPort(t), `address already in use\nIs a daemon running already\? Choose another port with --grpc or --http`},
	} {
		t.Run(tt.line, func(t *testing.T) {
			t.Parallel()
			got := run(t, words(tt.line)[0], words(tt.line)[1:]...)
			if got.code != 1 {
				t.Errorf("exit code %d, want 1", got.code)
			}
			if got.stdout != "" {
				t.Errorf("on standard output %q, want nothing", got.stdout)
			}
			if !regexp.MustCompile(tt.want).MatchString(got.stderr) {
				t.Errorf("on standard error\n%swant a match of\n%s", got.stderr, tt.want)
			}
		})
	}
}

// closedPort is the address of a port on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentPort is the address of a listener that takes connections and says nothing.
func silentPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // resets what waits to be accepted
	return l.Addr().String()
}

// Every command says what it does and how it is called.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"hedged --help", "hedgectl", "hedgectl --help", "hedgectl help status", "hedgectl status --help",
		"hedgectl watch --help", "hedgectl explain --help", "hedgectl off --help", "hedgectl on --help",
		"hedgectl shadow --help", "hedgectl demo --help",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := run(t, words(line)[0], words(line)[1:]...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("exit code %d, on standard error %q", got.code, got.stderr)
			}
			if !strings.Contains(got.stdout, "\nExamples:\n  "+words(line)[0]) || strings.Contains(got.stdout, "daemon      ") {
				t.Errorf("want examples, and no hidden command:\n%s", got.stdout)
			}
		})
	}
	for _, name := range []string{"hedged", "hedgectl"} {
		if got := run(t, name, "--version"); got.code != 0 || !strings.HasPrefix(got.stdout, name+" version ") {
			t.Errorf("%s --version: %+v", name, got)
		}
	}
}

// An operator looks at a fleet at work and steers it.
func TestOperator(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir(), "--cadence", "100ms")
	ctl := func(line string) ran {
		t.Helper()
		return run(t, "hedgectl", append(words(line), "--daemon", d.ready.GRPC)...)
	}
	expect := func(line string, code int, stdout, stderr string) {
		t.Helper()
		got := ctl(line)
		if got.code != code || !regexp.MustCompile(stdout).MatchString(got.stdout) || !regexp.MustCompile(stderr).MatchString(got.stderr) {
			t.Errorf("hedgectl %s: exit code %d, want %d\n-- stdout, want a match of %s\n%s\n-- stderr, want a match of %s\n%s",
				line, got.code, code, stdout, got.stdout, stderr, got.stderr)
		}
	}

	expect("status", 0, `No services yet`, `^$`)
	expect("status users", 1, `^$`, `service: "default/users" is unknown; known: none`)

	f := startFleet(t, "users")
	c := f.call(t, d.ready.GRPC, "checkout-1")
	end := c.load(t, 8)
	await(t, "the daemon has an estimate", func() bool { return c.stats().Delay[getUser] > 0 })

	expect("status", 0, `default/users +shadow +0\.0% +5\.0%`, `^$`)
	expect("status", 0, `default/users +checkout-1 +\d+ +current`, `^$`)
	expect("status users", 0, `default/users +replica-a +serving`, `^$`)
	expect("explain users", 0, `default/users is shadow: nobody configured it`, `^$`)
	expect("explain users "+getUser, 0, `tracking +yes`, `^$`)
	expect("explain orders", 1, `^$`, `service: "default/orders" is unknown; known: default/users`)
	expect("explain users /Nope", 1, `^$`, `method: "/Nope" has not been reported`)

	expect("on users --target 0.04 --reason trial", 0, `^users: on; changed default/users\n$`, `^$`)
	await(t, "the client hedges", func() bool { return c.hedging() && c.stats().Hedges > 0 })
	expect("status", 0, `default/users +active .* 4\.0% .*active at 4\.0%, said .*: trial`, `^$`)

	expect("off users", 0, `^users: off; changed default/users\n$`, `^$`)
	expect("shadow users", 0, `^users: shadow; changed default/users\n$`, `^$`)
	expect("off --all", 0, `^every service: off; changed default/users\n$`, `^$`)
	expect("status", 0, `ALL SERVICES: off, said`, `^$`)
	expect("off --all", 0, `^every service: off; no policy changed\n$`, `^$`)

	// A kill switch with a typo in its name stops nothing, and says so.
	expect("off usres", 0, `^usres: off`, `warning: no client has reported service "usres" lately; in use: default/users`)
	expect("off ”", 2, `^$`, `service: is empty`)
	expect("off a\x01b", 2, `^$`, `unprintable character U\+0001`)
	expect("off "+strings.Repeat("x", 10_000), 2, `^$`, `is 10000 bytes long, want at most 256`)
	expect("on users --reason "+strings.Repeat("x", 300), 2, `^$`, `reason: .*300 bytes long, want at most 256`)

	// A program reads one document, whatever there is to warn of.
	for _, line := range []string{
		"status", "status users", "explain users", "explain users " + getUser,
		"off users", "shadow --all", "on usres", "off users --reason trial",
	} {
		got := ctl(line + " -o json")
		if got.code != 0 {
			t.Errorf("hedgectl %s -o json: exit code %d\n%s", line, got.code, got.stderr)
		}
		if documents := decode(t, got.stdout); len(documents) != 1 {
			t.Errorf("hedgectl %s -o json: %d documents, want 1:\n%s", line, len(documents), got.stdout)
		}
		if strings.Contains(line, "usres") != strings.Contains(got.stderr, "warning") {
			t.Errorf("hedgectl %s -o json: on standard error %q", line, got.stderr)
		}
	}
	doc := decode(t, ctl("status -o json").stdout)[0]
	if s := doc["services"].([]any)[0].(map[string]any); s["name"] != "default/users" || s["target"] != 0.05 {
		t.Errorf("services[0] is %v", s)
	}
	if c := doc["clients"].([]any)[0].(map[string]any); c["id"] != "checkout-1" || c["streaming"] != true {
		t.Errorf("clients[0] is %v", c)
	}
	if _, err := end(); err != nil {
		t.Errorf("a call failed: %v", err)
	}
}

// watch goes on until it is interrupted, which is no failure.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir())
	if got := run(t, "hedgectl", "on", "users", "--daemon", d.ready.GRPC); got.code != 0 {
		t.Fatal(got.stderr)
	}
	for _, format := range []string{"json", "table"} {
		cmd := command("hedgectl", "watch", "users", "--interval", "100ms", "-o", format, "--daemon", d.ready.GRPC)
		stdout, stderr := &output{}, &output{}
		cmd.Stdout, cmd.Stderr = stdout, stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "three looks", func() bool { return strings.Count(stdout.String(), "default/users") >= 6 })
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || stderr.String() != "" {
			t.Errorf("watch -o %s ended by an interrupt: %v\n%s", format, err, stderr)
		}
		if format == "json" {
			for _, doc := range decode(t, stdout.String()) {
				if len(doc["services"].([]any)) != 1 {
					t.Errorf("one look is %v", doc)
				}
			}
		} else if strings.Contains(stdout.String(), "\x1b") {
			t.Errorf("control codes where there is no terminal:\n%q", stdout)
		}
	}

	// The daemon ends under it.
	cmd := command("hedgectl", "watch", "--daemon", d.ready.GRPC)
	stdout, stderr := &output{}, &output{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a look", func() bool { return stdout.String() != "" })
	if _, err := d.terminate(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "shutting down") {
		t.Errorf("watch of a daemon that ended: %v\n%s", err, stderr)
	}
}

// decode reads JSON documents, and fails on anything else.
func decode(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var doc map[string]any
		if err := dec.Decode(&doc); err != nil {
			t.Fatalf("not JSON: %v\n%s", err, text)
		}
		out = append(out, doc)
	}
	return out
}

// On its first line the daemon says where it is, and nothing else ever comes on
// standard output.
func TestReadyLine(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "for it")
	d := startDaemon(t, dir)
	if d.ready.StateDir != dir || d.ready.PID != d.cmd.Process.Pid || d.ready.Version == "" {
		t.Errorf("ready line %+v", d.ready)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if body, err := d.get(path); err != nil || body == "" {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	if d.log.String() != "" && !json.Valid([]byte(strings.SplitN(d.log.String(), "\n", 2)[0])) {
		t.Errorf("the log is no JSON:\n%s", d.log)
	}
	took, err := d.terminate()
	if err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	t.Logf("ended %v after SIGTERM", took.Round(time.Millisecond))
}
