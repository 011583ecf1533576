package daemon

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exposed is a scrape that was read strictly.
type exposed struct {
	t      *testing.T
	order  []string                      // families as they are written
	helps  map[string]string             // by family
	kinds  map[string]string             // by family
	series map[string]map[string]float64 // by family and label set
	count  int
}

var (
	familyName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
	labelPair  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(, ?|$)`)
)

// metrics scrapes the daemon.
func (w *world) metrics() exposed {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.d.handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if got := rec.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		w.t.Errorf("content type %q", got)
	}
	e, err := readExposition(rec.Body.String())
	if err != nil {
		w.t.Fatal(err)
	}
	e.t = w.t
	return e
}

var histogramParts = []string{"_bucket", "_sum", "_count"}

// readExposition reads Prometheus' text format, and accepts only what this
// daemon should write: each family once, with HELP and TYPE before its series.
func readExposition(text string) (exposed, error) {
	e := exposed{helps: map[string]string{}, kinds: map[string]string{}, series: map[string]map[string]float64{}}
	if !strings.HasSuffix(text, "\n") {
		return e, fmt.Errorf("the last line does not end")
	}
	family, helped := "", ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fail := func(format string, args ...any) (exposed, error) {
			return e, fmt.Errorf("line %d: %s: %.200q", i+1, fmt.Sprintf(format, args...), line)
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if _, again := e.kinds[name]; again || !familyName.MatchString(name) || !strings.HasSuffix(help, ".") {
				return fail("bad or repeated HELP")
			}
			helped = name
			e.order, e.helps[name] = append(e.order, name), help
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != helped || kind != "gauge" && kind != "counter" && kind != "histogram" && kind != "untyped" {
				return fail("TYPE without its HELP, or of an unknown kind")
			}
			if total := strings.HasSuffix(name, "_total"); total != (kind == "counter") {
				return fail("a counter's name ends in _total, no other one does")
			}
			family = name
			e.kinds[name], e.series[name] = kind, map[string]float64{}
			if kind == "histogram" {
				for _, part := range histogramParts {
					e.series[name+part] = map[string]float64{}
				}
			}
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return fail("no value")
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil || value != value || value < 0 {
			return fail("value")
		}
		name, set := line[:at], ""
		if open := strings.IndexByte(name, '{'); open >= 0 {
			if !strings.HasSuffix(name, "}") {
				return fail("label set does not end")
			}
			name, set = name[:open], name[open+1:len(name)-1]
			seen := map[string]bool{}
			for rest := set; rest != ""; {
				m := labelPair.FindStringSubmatch(rest)
				if len(m) == 0 || seen[m[1]] {
					return fail("label set")
				}
				seen[m[1]] = true
				rest = rest[len(m[0]):]
			}
		}
		part := e.kinds[family] == "histogram" && slices.Contains(histogramParts, strings.TrimPrefix(name, family))
		if name != family && !part {
			return fail("series of %q outside its family", name)
		}
		if _, again := e.series[name][set]; again {
			return fail("repeated series")
		}
		e.series[name][set] = value
		e.count++
	}
	return e, nil
}

// value returns the value of a series, named by its label set as it is written.
func (e exposed) value(family, set string) float64 {
	e.t.Helper()
	v, ok := e.series[family][set]
	if !ok {
		e.t.Errorf("%s{%s} is absent; there is %v", family, set, e.series[family])
	}
	return v
}

func (e exposed) want(family, set string, want float64) {
	e.t.Helper()
	if got := e.value(family, set); got != want {
		e.t.Errorf("%s{%s} is %g, want %g", family, set, got, want)
	}
}
