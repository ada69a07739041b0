// Command chartschema generates a chart's values.schema.json, with which Helm validates values, from its values.yaml. `make generate`
// runs it.
//
// The type of a value is the type of its default. Comment lines that begin with @schema are YAML and add keywords of JSON Schema:
// `@schema minimum: 1`. A map allows no other names, so that misspelt ones are errors, unless its comment has additionalProperties.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chartschema CHART-DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chartschema:", err)
		os.Exit(1)
	}
}

func run(directory string) error {
	values, err := os.ReadFile(filepath.Join(directory, "values.yaml"))
	if err != nil {
		return err
	}
	schema, err := generate(values)
	if err != nil {
		return fmt.Errorf("values.yaml: %w", err)
	}
	return os.WriteFile(filepath.Join(directory, "values.schema.json"), schema, 0o644)
}

type schema map[string]any

func generate(values []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the document is not a map")
	}
	properties, err := parseProperties("", document.Content[0])
	if err != nil {
		return nil, err
	}
	// A parent chart may set values for all its dependencies.
	properties["global"] = schema{"type": "object", "description": "Global values of a parent chart; not used."}

	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(schema{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"type":    "object", "additionalProperties": false, "properties": properties,
	})
	return text.Bytes(), err
}

func parseProperties(path string, node *yaml.Node) (schema, error) {
	properties := schema{}
	var problems []error
	for pair := range slices.Chunk(node.Content, 2) {
		name := pair[0].Value
		property, err := parseValue(path+name, pair[0].HeadComment, pair[1])
		problems = append(problems, err)
		properties[name] = property
	}
	return properties, errors.Join(problems...)
}

// parseValue fails if a value has no description, or if its default has no type.
func parseValue(path, comment string, node *yaml.Node) (out schema, err error) {
	description, out, err := parseComment(comment)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	types := map[string]string{"!!map": "object", "!!seq": "array", "!!str": "string", "!!int": "integer", "!!bool": "boolean"}
	if inferred := types[node.Tag]; inferred != "" && out["type"] == nil {
		out["type"] = inferred
	}
	if description != "" {
		out["description"] = description
	}
	var missing string
	switch {
	case node.Kind == yaml.MappingNode && len(node.Content) > 0 && out["additionalProperties"] == nil:
		out["additionalProperties"] = false
		out["properties"], err = parseProperties(path+".", node)
		return out, err
	case description == "":
		missing = "a description, `# -- ...`"
	case node.Kind == yaml.MappingNode && out["additionalProperties"] == nil:
		missing = "`# @schema additionalProperties: ...`"
	case node.Kind == yaml.SequenceNode && out["items"] == nil:
		missing = "`# @schema items: ...`"
	case out["type"] == nil:
		missing = "`# @schema type: ...`"
	default:
		return out, nil
	}
	return nil, fmt.Errorf("%s: add a comment with %s", path, missing)
}

// known are the allowed keywords: a misspelt one would have no effect.
var known = []string{"type", "enum", "pattern", "minimum", "maximum", "items", "additionalProperties"}

// parseComment splits a comment into its text, on one line, and its keywords.
func parseComment(comment string) (description string, keywords schema, err error) {
	keywords = schema{}
	var text, annotations []string
	for line := range strings.SplitSeq(comment, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if annotation, ok := strings.CutPrefix(line, "@schema "); ok {
			annotations = append(annotations, annotation)
			continue
		}
		if strings.HasPrefix(line, "@default ") { // helm-docs shows it instead of the default
			continue
		}
		text = append(text, line)
	}
	if err := yaml.Unmarshal([]byte(strings.Join(annotations, "\n")), &keywords); err != nil {
		return "", nil, fmt.Errorf("@schema: %w", err)
	}
	for keyword := range keywords {
		if !slices.Contains(known, keyword) {
			return "", nil, fmt.Errorf("@schema %s: unknown keyword; use one of %s", keyword, strings.Join(known, ", "))
		}
	}
	// As in helm-docs, the description begins after "-- ".
	_, description, _ = strings.Cut(strings.Join(text, " "), "-- ")
	return description, keywords, nil
}
