package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is one entry of values.yaml.
type value struct {
	path        string // dotted, empty for the whole file
	description string
	marks       marks
	node        *yaml.Node // the default
	fields      []value    // of a map whose fields are known
}

func (v value) name() string { return v.path[strings.LastIndex(v.path, ".")+1:] }

// parse reads values.yaml. An entry that is not described, or whose type cannot be known, is an error.
func parse(text []byte) (value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return value{}, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return value{}, errors.New("want one map")
	}
	root := value{node: document.Content[0]}
	fields, err := parseFields("", root.node)
	root.fields = fields
	return root, err
}

func parseFields(path string, node *yaml.Node) ([]value, error) {
	var fields []value
	var problems []error
	for pair := range slices.Chunk(node.Content, 2) {
		field, err := parseField(path, pair[0], pair[1])
		problems = append(problems, err)
		fields = append(fields, field)
	}
	return fields, errors.Join(problems...)
}

func parseField(parent string, key, node *yaml.Node) (value, error) {
	field := value{path: strings.TrimPrefix(parent+"."+key.Value, "."), node: node}
	var err error
	if field.description, field.marks, err = parseComment(key.HeadComment); err != nil {
		return field, fmt.Errorf("%s: %w", field.path, err)
	}
	if node.Kind == yaml.MappingNode && len(node.Content) > 0 && !field.marks.open && field.marks.values == "" {
		field.fields, err = parseFields(field.path, node)
		return field, err
	}
	switch {
	case field.description == "":
		err = errors.New("has no comment that describes it")
	case node.Kind == yaml.SequenceNode && field.marks.items == "":
		err = errors.New("is a list, and +items does not say of what")
	case node.Kind == yaml.MappingNode && !field.marks.open && field.marks.values == "":
		err = errors.New("is an empty map, and neither +values nor +open says of what")
	case node.Tag == "!!null" && len(field.marks.types) == 0:
		err = errors.New("is null, and +type does not say what it could be")
	}
	if err != nil {
		return field, fmt.Errorf("%s: %w", field.path, err)
	}
	return field, nil
}

// parseComment splits a comment into its prose, on one line, and its marks.
func parseComment(comment string) (string, marks, error) {
	// What a blank line separates from the value belongs to the file.
	comment = comment[strings.LastIndex(comment, "\n\n")+1:]
	var prose []string
	var found marks
	for line := range strings.SplitSeq(comment, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if mark, ok := strings.CutPrefix(line, "+"); ok {
			if err := found.add(mark); err != nil {
				return "", marks{}, err
			}
			continue
		}
		prose = append(prose, line)
	}
	return strings.TrimSpace(strings.Join(prose, " ")), found, nil
}
