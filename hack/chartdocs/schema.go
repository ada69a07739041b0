package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// schema is as much of JSON Schema as values need.
type schema struct {
	Version              string             `json:"$schema,omitempty"`
	Description          string             `json:"description,omitempty"`
	Type                 any                `json:"type,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Minimum              *int               `json:"minimum,omitempty"`
	Maximum              *int               `json:"maximum,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
}

// encodeSchema makes values.schema.json.
func encodeSchema(root value) ([]byte, error) {
	out, err := schemaOf(root)
	if err != nil {
		return nil, err
	}
	out.Version = "http://json-schema.org/draft-07/schema#"
	// A chart that has this one as a part may pass values for all its parts.
	out.Properties["global"] = &schema{Type: "object", Description: "Values of a chart that this one is a part of; not used."}

	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(out); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return text.Bytes(), nil
}

func schemaOf(v value) (*schema, error) {
	out := &schema{
		Description: v.description,
		Enum:        v.marks.enum,
		Pattern:     v.marks.pattern,
		Minimum:     v.marks.minimum,
		Maximum:     v.marks.maximum,
	}
	switch {
	case len(v.marks.types) > 0:
		out.Type = v.marks.types
	case v.fields != nil:
		if err := out.close(v.fields); err != nil {
			return nil, err
		}
	case v.node.Kind == yaml.MappingNode:
		out.Type = "object"
		if v.marks.values != "" {
			out.AdditionalProperties = &schema{Type: v.marks.values}
		}
	case v.node.Kind == yaml.SequenceNode:
		out.Type = "array"
		out.Items = &schema{Type: v.marks.items, Pattern: v.marks.itemPattern}
	case v.node.Tag == "!!str":
		out.Type = "string"
	case v.node.Tag == "!!int":
		out.Type = "integer"
	case v.node.Tag == "!!bool":
		out.Type = "boolean"
	default:
		return nil, fmt.Errorf("%s: a default of the kind %s has no type here", v.path, v.node.Tag)
	}
	return out, nil
}

// close lets a map have these fields and no others, so that a misspelt one is refused.
func (s *schema) close(fields []value) error {
	s.Type = "object"
	s.AdditionalProperties = false
	s.Properties = map[string]*schema{}
	for _, field := range fields {
		property, err := schemaOf(field)
		if err != nil {
			return err
		}
		s.Properties[field.name()] = property
	}
	return nil
}
