package daemon

import (
	"strconv"
	"strings"
)

// exposition builds metric families in Prometheus' text format, version 0.0.4.
type exposition struct {
	b    []byte
	name string // of the family begun last
}

// family begins a family. kind is gauge or counter; help has no line breaks.
func (e *exposition) family(name, kind, help string) {
	e.name = name
	e.b = append(e.b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// sample adds a series to the family. set is made by labels, or empty; more is
// up to one pair of label and value beyond it.
func (e *exposition) sample(set string, v float64, more ...string) {
	e.b = append(e.b, e.name...)
	if set != "" || len(more) > 0 {
		e.b = append(e.b, '{')
		e.b = append(e.b, set...)
		if len(more) > 0 {
			if set != "" {
				e.b = append(e.b, ',')
			}
			e.b = append(e.b, labels(more...)...)
		}
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ' ')
	e.b = strconv.AppendFloat(e.b, v, 'g', -1, 64)
	e.b = append(e.b, '\n')
}

// one adds a family of one series without labels.
func (e *exposition) one(name, kind, help string, v float64) {
	e.family(name, kind, help)
	e.sample("", v)
}

// labels formats pairs of label and value.
func labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		_, _ = labelEscaper.WriteString(&b, pairs[i+1]) // a Builder never fails
		b.WriteByte('"')
	}
	return b.String()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
