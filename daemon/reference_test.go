package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/internal/golden"
	"github.com/hedged-project/hedged/policy"
)

// namedByData are the labels whose values are not a closed set.
var namedByData = []string{"tenant", "service", "method", "replica", "version", "le"}

// The table of the documentation is what a daemon exports.
func TestReferenceOfMetrics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		end := w.eventful()
		defer end()
		w.tick()
		m := w.metrics()
		var want strings.Builder
		want.WriteString("\n| metric | type | labels | what it is |\n|---|---|---|---|\n")
		for _, family := range m.order {
			if strings.HasPrefix(family, "go_") || strings.HasPrefix(family, "process_") {
				continue // of the library, and not the same on every system
			}
			fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", family, m.kinds[family], m.labelsOf(family), m.helps[family])
		}
		want.WriteString("\nReasons of a policy: " + reasons() + ".\n")

		golden.CheckBelow(t, "../docs/metrics.md", "-update -->", want.String(), "go test ./daemon -run ReferenceOfMetrics -update")
	})
}

// labelsOf lists a family's labels, those of a closed set with their values.
func (e exposed) labelsOf(family string) string {
	sets := e.series[family]
	if e.kinds[family] == "histogram" {
		sets = e.series[family+"_bucket"]
	}
	if len(sets) == 0 {
		e.t.Errorf("%s has no series: what happens here must give it one", family)
	}
	var names []string
	values := map[string]map[string]bool{}
	for set := range sets {
		for rest := set; rest != ""; {
			pair := labelPair.FindStringSubmatch(rest)
			if values[pair[1]] == nil {
				names, values[pair[1]] = append(names, pair[1]), map[string]bool{}
			}
			values[pair[1]][pair[2]] = true
			rest = rest[len(pair[0]):]
		}
	}
	for i, name := range names {
		names[i] = "`" + name + "`"
		if name == "reason" && strings.HasSuffix(family, "_reason") {
			continue // one at a time; they are listed below the table
		}
		if !slices.Contains(namedByData, name) {
			names[i] += " (" + strings.Join(slices.Sorted(maps.Keys(values[name])), ", ") + ")"
		}
	}
	return strings.Join(names, ", ")
}

// reasons lists the guards.
func reasons() string {
	var names []string
	for code := policy.ReasonCode(0); ; code++ {
		if name := code.String(); !strings.HasPrefix(name, "reason(") {
			names = append(names, "`"+name+"`")
			continue
		}
		return strings.Join(names, ", ")
	}
}
