package daemon

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// exposition builds metric families in Prometheus' text format, version 0.0.4.
type exposition struct {
	text    bytes.Buffer
	name    string // of the family begun last
	scratch []byte
}

// family begins a family. kind is gauge, counter, histogram or untyped; help has no line
// breaks. The library's own metadata has no text for HELP.
func (e *exposition) family(name, kind, help string) {
	e.name = name
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample adds a series to the family. set is made by labels, or empty; more is
// up to one pair of label and value beyond it.
func (e *exposition) sample(set string, v float64, more ...string) {
	e.scratch = append(e.scratch[:0], e.name...)
	if set != "" || len(more) > 0 {
		e.scratch = append(append(e.scratch, '{'), set...)
		if set != "" && len(more) > 0 {
			e.scratch = append(e.scratch, ',')
		}
		e.scratch = append(appendLabels(e.scratch, more), '}')
	}
	metrics.WriteGaugeFloat64(&e.text, string(e.scratch), v) // a counter's line is no different
}

// process adds what the library knows of the process and of Go's runtime.
func (e *exposition) process() {
	var lines bytes.Buffer
	metrics.WriteProcessMetrics(&lines)
	for line := range strings.Lines(lines.String()) {
		name := line[:strings.IndexAny(line, "{ ")]
		if name != e.name {
			kind := "untyped" // the library's names say no more
			if strings.HasSuffix(name, "_total") {
				kind = "counter"
			}
			e.family(name, kind, "Of the process, by VictoriaMetrics/metrics.")
		}
		e.text.WriteString(line)
	}
}

// one adds a family of one series without labels.
func (e *exposition) one(name, kind, help string, v float64) {
	e.family(name, kind, help)
	e.sample("", v)
}

// histogram adds a family of one histogram without labels; counts has one more
// than bounds, which are in seconds.
func (e *exposition) histogram(name, help string, bounds []float64, counts []uint64, sum float64) {
	e.family(name, "histogram", help)
	var n uint64
	for i, c := range counts {
		n += c
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		e.name = name + "_bucket"
		e.sample("", float64(n), "le", le)
	}
	e.name = name + "_sum"
	e.sample("", sum)
	e.name = name + "_count"
	e.sample("", float64(n))
}

// labels formats pairs of label and value.
func labels(pairs ...string) string { return string(appendLabels(nil, pairs)) }

func appendLabels(b []byte, pairs []string) []byte {
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, pairs[i]...), `="`...)
		b = append(append(b, labelEscaper.Replace(pairs[i+1])...), '"')
	}
	return b
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
