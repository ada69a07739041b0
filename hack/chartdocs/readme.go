package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// What is between these lines of README.md is generated.
const (
	begin = "<!-- The tables are made by `make chart-docs` from values.yaml. -->\n"
	end   = "<!-- End of the tables. -->\n"
)

// withTables returns the page with its tables made anew.
func withTables(page []byte, root value) ([]byte, error) {
	head, rest, found := bytes.Cut(page, []byte(begin))
	_, tail, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("want the lines %q and %q around the tables", begin, end)
	}
	made, err := tables(root)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s", head, begin, made, end, tail), nil
}

// tables are one of the values that stand alone, and one for each map of the first level.
func tables(root value) (string, error) {
	general := value{path: "General"}
	sections := []value{general}
	for _, field := range root.fields {
		if field.fields == nil {
			sections[0].fields = append(sections[0].fields, field)
		} else {
			sections = append(sections, field)
		}
	}
	var parts []string
	for _, section := range sections {
		rows, err := rowsOf(section.fields)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("### %s\n\n| value | default | what it is |\n|---|---|---|\n%s", section.path, rows))
	}
	return strings.Join(parts, "\n"), nil
}

func rowsOf(fields []value) (string, error) {
	var rows strings.Builder
	for _, field := range fields {
		if field.fields != nil {
			inner, err := rowsOf(field.fields)
			if err != nil {
				return "", err
			}
			rows.WriteString(inner)
			continue
		}
		text, err := defaultOf(field)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&rows, "| `%s` | `%s` | %s |\n", field.path, text, cell(described(field)))
	}
	return rows.String(), nil
}

func defaultOf(v value) (string, error) {
	var content any
	if err := v.node.Decode(&content); err != nil {
		return "", fmt.Errorf("%s: %w", v.path, err)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.path, err)
	}
	return cell(string(text)), nil
}

// described adds what the prose need not repeat.
func described(v value) string {
	if len(v.marks.enum) == 0 {
		return v.description
	}
	return v.description + " One of `" + strings.Join(v.marks.enum, "`, `") + "`."
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
