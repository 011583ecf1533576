package config

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/hedged-project/hedged/internal/suggest"
	"github.com/hedged-project/hedged/policy"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Sections of a file beside the daemon's own settings.
const (
	sectionDefaults = "defaults"
	sectionServices = "services"
	wholeFile       = "the file"
)

// file takes in the text of a file.
func (l *loader) file(path string, blob []byte) {
	if len(blob) > maxFile {
		l.bad(path, "is %d bytes long, want at most %d", len(blob), maxFile)
		return
	}
	var doc yaml.Node
	in := yaml.NewDecoder(strings.NewReader(string(blob)))
	if err := in.Decode(&doc); errors.Is(err, io.EOF) {
		return // empty, or comments only
	} else if err != nil {
		l.syntax(path, err)
		return
	}
	var second yaml.Node
	switch err := in.Decode(&second); {
	case err == nil:
		l.bad(at(path, &second), "a second document begins, want one")
		return
	case !errors.Is(err, io.EOF):
		l.syntax(path, err)
		return
	}
	known := []string{sectionDefaults, sectionServices}
	for _, s := range daemonSettings {
		known = append(known, s.Name)
	}
	l.mapping(path, &doc, wholeFile, known, func(key, value *yaml.Node) {
		switch key.Value {
		case sectionDefaults:
			l.settings(path, value, sectionDefaults, func(name, text, place string) { l.scalar(place, name, text) })
		case sectionServices:
			l.services(path, value)
		default:
			if text, ok := l.text(path, key.Value, value); ok {
				l.scalar(at(path, key), key.Value, text)
			}
		}
	})
}

// lineOf finds the line in an error of the parser.
var lineOf = regexp.MustCompile(`^yaml: (?:.*: )?line ([0-9]+)(?:, column [0-9]+)?: (.*)$`)

func (l *loader) syntax(path string, err error) {
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		l.bad(path+":"+m[1], "%s", m[2])
		return
	}
	l.bad(path, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
}

func (l *loader) services(path string, node *yaml.Node) {
	l.mapping(path, node, sectionServices, nil, func(key, value *yaml.Node) {
		place := at(path, key)
		if _, err := policy.ParseKey(key.Value); err != nil {
			l.bad(place, "%w", err)
			return
		}
		r := rule{pattern: key.Value, place: place}
		l.settings(path, value, fmt.Sprintf("service %s", quoted(key.Value)), func(name, text, place string) {
			r.values = append(r.values, placed{name, text, place})
		})
		l.rules = append(l.rules, r)
	})
}

// settings takes in a mapping of settings of a service; null is an empty one.
func (l *loader) settings(path string, node *yaml.Node, what string, set func(name, text, place string)) {
	if node.ShortTag() == "!!null" {
		return
	}
	var known []string
	for _, s := range serviceSettings {
		known = append(known, s.Name)
	}
	l.mapping(path, node, what, known, func(key, value *yaml.Node) {
		if text, ok := l.text(path, key.Value, value); ok {
			set(key.Value, text, at(path, key))
		}
	})
}

// mapping calls entry for each key of node that is known and comes once. known
// nil: any is.
func (l *loader) mapping(path string, node *yaml.Node, what string, known []string, entry func(key, value *yaml.Node)) {
	node = resolve(node)
	if node.Kind != yaml.MappingNode {
		l.bad(at(path, node), "%s: %s, want settings as \"name: value\"", what, kind(node))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], resolve(node.Content[i+1])
		name := key.Value
		switch first, twice := lines[name]; {
		case key.Kind != yaml.ScalarNode:
			l.bad(at(path, key), "%s: a key is %s, want a name", what, kind(key))
		case twice:
			l.bad(at(path, key), "%s: is set already in line %d", name, first)
		case known != nil && !slices.Contains(known, name):
			l.bad(at(path, key), "%s: is no setting of %s%s", quoted(name), what, l.hint(name, what, known))
		default:
			entry(key, value)
		}
		if _, ok := lines[name]; !ok {
			lines[name] = key.Line
		}
	}
}

// hint says what was meant. A service's setting at the top of a file belongs under
// a section.
func (l *loader) hint(name, what string, known []string) string {
	if what == wholeFile && find(serviceSettings, name) != nil {
		return fmt.Sprintf(": put it under %q or a service of %q", sectionDefaults, sectionServices)
	}
	return suggest.For(name, known)
}

// text returns a value as it is written; a list's parts are joined by commas.
func (l *loader) text(path, name string, node *yaml.Node) (string, bool) {
	switch {
	case node.Kind == yaml.ScalarNode && node.ShortTag() != "!!null":
		return node.Value, true
	case node.Kind == yaml.SequenceNode:
		var parts []string
		for _, part := range node.Content {
			if part = resolve(part); part.Kind != yaml.ScalarNode {
				l.bad(at(path, part), "%s: %s in a list, want a value", name, kind(part))
				return "", false
			}
			parts = append(parts, part.Value)
		}
		return strings.Join(parts, ","), true
	}
	l.bad(at(path, node), "%s: is %s, want a value", name, kind(node))
	return "", false
}

func resolve(node *yaml.Node) *yaml.Node {
	for {
		switch {
		case node.Kind == yaml.AliasNode:
			node = node.Alias
		case node.Kind == yaml.DocumentNode && len(node.Content) > 0:
			node = node.Content[0]
		default:
			return node
		}
	}
}

func kind(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.ShortTag() == "!!null":
		return "empty"
	}
	return quoted(node.Value)
}

func at(path string, node *yaml.Node) string { return fmt.Sprintf("%s:%d", path, max(node.Line, 1)) }
