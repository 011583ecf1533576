package config

import (
	"encoding/json"
	"io"
)

// schema is the part of JSON Schema that describes a file.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     string             `json:"default,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"` // false, or a *schema
}

// Schema writes the JSON Schema of a file, for editors. What concerns several
// settings, and bounds of times, only Load checks.
func Schema(w io.Writer) error {
	base := Default("")
	service := func(defaults bool) *schema {
		s := &schema{Type: []string{"object", "null"}, Additional: false, Properties: map[string]*schema{}}
		for _, f := range serviceSettings {
			s.Properties[f.Name] = f.schema()
			if defaults {
				s.Properties[f.Name].Default = f.get(&base.service)
			}
		}
		return s
	}
	file := &schema{
		Schema:     "https://json-schema.org/draft/2020-12/schema",
		Title:      "hedged configuration",
		Type:       "object",
		Additional: false,
		Properties: map[string]*schema{sectionDefaults: service(true)},
	}
	file.Properties[sectionDefaults].Description = "of every service of \"services\", where it says nothing else"
	for _, f := range daemonSettings {
		file.Properties[f.Name] = f.schema()
		file.Properties[f.Name].Default = f.get(base)
	}
	file.Properties[sectionServices] = &schema{
		Description: "by name, \"service\" or \"tenant/service\"; * stands for any characters",
		Type:        "object",
		Additional:  service(false),
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(file)
}

func (s *setting[T]) schema() *schema {
	return &schema{Description: s.describe(), Type: []string{"string", "number", "array"}, Pattern: s.pattern, Enum: s.options}
}
