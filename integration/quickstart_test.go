package integration_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every command of the quickstart does what is said of it. Only the addresses and
// the directory are others, so that it runs beside anything.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	blob, err := os.ReadFile("../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	grpcAddr := closedPort(t)
	others := strings.NewReplacer("bin/", dir+"/", "127.0.0.1:9001", closedPort(t), "127.0.0.1:9002", closedPort(t))
	run := func(line string) string {
		t.Helper()
		words := strings.Fields(others.Replace(line))
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "HEDGED_DAEMON="+grpcAddr)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, &out)
		}
		return out.String()
	}
	start := func(line string) {
		t.Helper()
		words := strings.Fields(others.Replace(line))
		if filepath.Base(words[0]) != "hedged" {
			words = append([]string{words[0], "--daemon", grpcAddr}, words[1:]...)
		}
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "HEDGED_GRPC="+grpcAddr, "HEDGED_HTTP=127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		})
	}
	// service is the service as status tells it, once there is a daemon that knows it.
	type service struct {
		Policy struct{ Mode string }
		Load   struct{ Hedges string }
	}
	seen := func() (s service) {
		cmd := exec.Command(filepath.Join(dir, "hedgectl"), "status", "greeter", "-o", "json", "--daemon", grpcAddr)
		out, err := cmd.Output()
		if err != nil {
			return s
		}
		var all struct{ Services []service }
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return all.Services[0]
	}
	expect := map[string]string{ // in the answers of these commands
		"bin/hedgectl explain greeter":                "nobody configured it",
		"bin/hedgectl on greeter --reason quickstart": "greeter: on",
		"bin/hedgectl off --all --reason enough":      "every service: off",
		"bin/hedgectl clients greeter":                "current",
		"bin/hedgectl history greeter":                "quickstart",
		"bin/hedgectl release --all":                  "every service",
	}
	shell, commands := false, 0
	for line := range strings.Lines(string(blob)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			shell = line == "```sh"
			continue
		}
		if !shell {
			continue
		}
		commands++
		if background, ok := strings.CutSuffix(line, " &"); ok {
			start(background)
			if strings.HasPrefix(line, "bin/caller") {
				await(t, "the service is seen", func() bool { return seen().Policy.Mode == "MODE_SHADOW" })
			}
			continue
		}
		out := run(line)
		if !strings.Contains(out, expect[line]) {
			t.Errorf("%s: want %q in\n%s", line, expect[line], out)
		}
		delete(expect, line)
		if strings.HasPrefix(line, "bin/hedgectl on ") {
			await(t, "hedges", func() bool { h := seen().Load.Hedges; return h != "" && h != "0" })
		}
	}
	if len(expect) > 0 || commands < 10 {
		t.Errorf("%d commands; missing: %v", commands, expect)
	}
}
