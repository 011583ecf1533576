package config

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the tables of settings of docs/config.md, in Markdown.
func Reference(w io.Writer) error {
	base := Default("DIRECTORY") // the true default depends on the machine
	var b strings.Builder
	b.WriteString("### The daemon\n\n" + tableHead)
	for _, s := range daemonSettings {
		s.row(&b, s.get(base))
	}
	b.WriteString("\n### A service\n\nUnder `defaults`, or under a service of `services`.\n\n" + tableHead)
	for _, s := range serviceSettings {
		s.row(&b, s.get(&base.service))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const tableHead = "| setting | flag | variable | default | bounds | what it is |\n|---|---|---|---|---|---|\n"

func (s *setting[T]) row(b *strings.Builder, value string) {
	switch {
	case s.Name == "state_dir":
		value = "`$XDG_STATE_HOME/hedged`, else `~/.local/state/hedged`"
	case value == "":
		value = "none"
	default:
		value = "`" + value + "`"
	}
	fmt.Fprintf(b, "| `%s` | `--%s` | `%s` | %s | %s | %s |\n", s.Name, s.Flag(), s.Variable(), value, s.Bounds, s.Doc)
}
