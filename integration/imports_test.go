// Package integration tests what no single package can: who imports whom, and
// whole processes that talk to each other.
package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hedged-project/hedged"

// anything marks packages that wire others together.
const anything = "anything"

const (
	bbolt   = "go.etcd.io/bbolt"
	cobra   = "github.com/spf13/cobra"
	envoy   = "github.com/envoyproxy/go-control-plane/envoy"
	gcp     = "github.com/envoyproxy/go-control-plane"
	grpc    = "google.golang.org/grpc"
	metrics = "github.com/VictoriaMetrics/metrics"
	pb      = "google.golang.org/protobuf"
	code    = "google.golang.org/genproto/googleapis/rpc/code"
	status  = "google.golang.org/genproto/googleapis/rpc/status"
	yaml    = "go.yaml.in/yaml/v4"
)

// rules is the table of DESIGN.md, "Who may import whom". A row covers a package
// and all below it that have no row of their own.
var rules = []struct {
	pkg     string
	imports []string // packages of this module, the row's own tree aside
	outside []string // modules or paths in them; the standard library always may
	pure    bool     // no operating system, network or log either
	never   []string // not even through others
}{
	{pkg: "policy", pure: true},
	{pkg: "estimator", pure: true},
	{pkg: "report", pure: true, imports: []string{"policy", "estimator"}},
	{pkg: "control", pure: true, imports: []string{"report", "estimator", "policy"}},
	{pkg: "hedge", pure: true, imports: []string{"policy"}},
	{pkg: "api/hedged/v1", outside: []string{grpc, pb}},
	{pkg: "internal/wire", pure: true, imports: []string{"api/hedged/v1", "policy", "report", "estimator"}, outside: []string{pb}},
	{
		pkg:     "client",
		imports: []string{"hedge", "internal/wire", "report", "policy", "estimator", "api/hedged/v1"},
		outside: []string{grpc, pb, envoy, status},
	},
	{pkg: "client/local", imports: []string{"client", "control", "report", "policy", "estimator"}},
	{pkg: "idempotency", outside: []string{grpc, pb, bbolt}},
	{pkg: "storage", never: []string{"xds"}},
	{pkg: "storage/bolt", imports: []string{"storage"}, outside: []string{bbolt}, never: []string{"xds"}},
	{pkg: "storage/storagetest", imports: []string{"storage"}, outside: []string{"pgregory.net/rapid"}, never: []string{"xds"}},
	{pkg: "xds", outside: []string{grpc, pb, gcp, status}, never: []string{"storage"}},
	{
		pkg: "daemon",
		imports: []string{
			"api/hedged/v1", "internal/wire", "policy", "estimator", "report", "control", "hedge",
			"storage", "storage/bolt", "xds",
		},
		outside: []string{grpc, pb, gcp, metrics},
		never:   []string{"client", "idempotency", "internal/demo", "sim"},
	},
	{pkg: "daemon/dashboard"},
	{
		pkg:     "internal/config",
		imports: []string{"daemon", "control", "policy", "internal/suggest"},
		outside: []string{grpc, code, yaml, "github.com/spf13/pflag"},
		never:   []string{"client", "internal/demo", "sim"},
	},
	{pkg: "internal/golden"},
	{pkg: "internal/suggest", pure: true},
	{pkg: "sim", imports: []string{"control", "report", "estimator", "hedge", "policy", "internal/suggest"}},
	{pkg: "sim/goals", imports: []string{"sim", "control", "report", "estimator", "policy", "internal/suggest"}},
	{pkg: "sim/trace", pure: true},
	{pkg: "internal/plot", pure: true},
	{pkg: "internal/demo", imports: []string{anything}, outside: []string{anything}},
	{pkg: "internal/cli", imports: []string{anything}, outside: []string{anything}},
	{pkg: "internal/cli/hedged", imports: []string{anything}, outside: []string{anything}, never: []string{"client", "internal/demo", "sim"}},
	{pkg: "cmd/hedged", imports: []string{anything}, outside: []string{cobra}, never: []string{"client", "internal/demo", "sim"}},
	{pkg: "cmd/hedgectl", imports: []string{anything}, outside: []string{cobra}},
	{pkg: "examples", imports: []string{"client"}},
	{pkg: "integration", imports: []string{anything}, outside: []string{anything}},
}

// impure are what a package without I/O has no use for. Its tests may.
var impure = []string{"log", "log/slog", "net", "net/http", "os", "os/exec", "os/signal", "syscall"}

type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct
	Deps       []string // through others too
}

// TestImports holds the import rules: the law of a call and of a service stay
// free of networks and stores, the daemon free of the client library, and the
// store and the policy stream never meet.
func TestImports(t *testing.T) {
	packages := list(t)
	for _, p := range packages {
		name, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		row := slices.MaxFunc(rulesFor(name), byLength)
		if row < 0 {
			t.Errorf("%s has no row in the table of DESIGN.md and of this test", name)
			continue
		}
		rule := rules[row]
		for _, imported := range p.Imports {
			inner, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case ours:
				if !within(inner, rule.pkg) && !allowed(inner, rule.imports) {
					t.Errorf("%s imports %s, but may only import %v", name, inner, rule.imports)
				}
			case packages[imported].Standard:
				if rule.pure && slices.Contains(impure, imported) {
					t.Errorf("%s imports %q, but is to do no I/O", name, imported)
				}
			case !allowed(imported, rule.outside):
				t.Errorf("%s imports %s, but from outside may only import %v", name, imported, rule.outside)
			}
		}
		for _, dep := range p.Deps {
			inner, ours := strings.CutPrefix(dep, module+"/")
			if ours && allowed(inner, rule.never) {
				t.Errorf("%s links %s, which it never may: %v", name, inner, rule.never)
			}
		}
	}
	for _, rule := range rules {
		exists := slices.ContainsFunc(slices.Collect(maps.Keys(packages)), func(path string) bool {
			return within(path, module+"/"+rule.pkg)
		})
		if !exists {
			t.Errorf("the table has a row for %s, which does not exist", rule.pkg)
		}
	}
}

// rulesFor returns the indices of the rows that cover a package; -1 is always among them.
func rulesFor(name string) []int {
	rows := []int{-1}
	for i, rule := range rules {
		if within(name, rule.pkg) {
			rows = append(rows, i)
		}
	}
	return rows
}

// byLength puts the row of the longer path last: it is the more particular one.
func byLength(a, b int) int {
	length := func(i int) int {
		if i < 0 {
			return i
		}
		return len(rules[i].pkg)
	}
	return length(a) - length(b)
}

func within(path, tree string) bool {
	return path == tree || strings.HasPrefix(path, tree+"/")
}

// allowed reports whether path is one of rows, or below it where it has no row of its own.
func allowed(path string, rows []string) bool {
	return slices.ContainsFunc(rows, func(row string) bool {
		if row == anything {
			return true
		}
		if !within(path, row) {
			return false
		}
		own := slices.MaxFunc(rulesFor(path), byLength)
		return own < 0 || len(rules[own].pkg) <= len(row)
	})
}

// list returns every package that the module builds, by import path.
func list(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test=false",
		"-json=ImportPath,Standard,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	packages := make(map[string]listed)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages[p.ImportPath] = p
	}
	return packages
}

// TestDesignHasTheTable keeps DESIGN.md's table and this one from drifting apart.
func TestDesignHasTheTable(t *testing.T) {
	design, err := os.ReadFile("../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, enforced []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\|").FindAllSubmatch(design, -1) {
		documented = append(documented, string(row[1]))
	}
	for _, rule := range rules {
		enforced = append(enforced, rule.pkg)
	}
	slices.Sort(documented)
	slices.Sort(enforced)
	if !slices.Equal(documented, enforced) {
		t.Errorf("DESIGN.md has rows for\n%v\nthis test for\n%v", documented, enforced)
	}
}
