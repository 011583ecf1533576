package hedged

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var (
	metricName = regexp.MustCompile(`\bhedged_[a-z_]+`)
	labelMatch = regexp.MustCompile(`([a-z_]+)=~?"([^"]*)"`)
)

// Rules watch what the daemon exports, and each says where it is told what to do.
func TestAlerts(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		blob, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(blob)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct {
					Summary string
					Runbook string `yaml:"runbook_url"`
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(packaging+"prometheus/alerts.yml")), &rules); err != nil {
		t.Fatal(err)
	}
	metrics, runbooks := read("../../../docs/metrics.md"), read("../../../docs/operations.md")
	_, reasons, _ := strings.Cut(metrics, "\nReasons of a policy: ")
	seen := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			seen++
			names := metricName.FindAllString(r.Expr, -1)
			if len(names) == 0 || r.Annotations.Summary == "" {
				t.Errorf("%s names no metric, or has no summary", r.Alert)
			}
			row := ""
			for _, name := range names {
				_, rest, ok := strings.Cut(metrics, "\n| `"+name+"` |")
				if !ok {
					t.Errorf("%s: no metric %s is documented", r.Alert, name)
				}
				row += rest[:max(strings.IndexByte(rest, '\n'), 0)]
			}
			for _, match := range labelMatch.FindAllStringSubmatch(r.Expr, -1) {
				for value := range strings.SplitSeq(match[2], "|") {
					if !strings.Contains(row, "`"+match[1]+"`") || !regexp.MustCompile(`\b`+value+`\b`).MatchString(row+reasons) {
						t.Errorf("%s: %s never is %q", r.Alert, match[1], value)
					}
				}
			}
			section := "/docs/operations.md#" + strings.ToLower(r.Alert)
			if !strings.HasSuffix(r.Annotations.Runbook, section) || !strings.Contains(runbooks, "\n### "+r.Alert+"\n") {
				t.Errorf("%s: its runbook is %s, which is no section of docs/operations.md", r.Alert, r.Annotations.Runbook)
			}
		}
	}
	if sections := strings.Count(runbooks, "\n### "); seen == 0 || sections != seen {
		t.Errorf("%d runbooks for %d alerts", sections, seen)
	}
}
