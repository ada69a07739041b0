// Command chartdocs writes what follows from the comments of a chart's values.yaml: values.schema.json, which
// lets Helm refuse wrong values, and the tables of README.md. Run it as `make chart-docs`.
//
// The comment above a value describes it. A line of the comment that begins with a plus sign is a mark, which
// narrows what is accepted beyond the type of the default:
//
//	+enum=A,B          one of these texts
//	+pattern=REGEXP    a text of this form
//	+minimum=N         a number from N on; +maximum=N likewise
//	+type=integer,string   one of these types, where the default shows only one
//	+items=TYPE        a list of these: string, integer or object; every list needs it
//	+itemPattern=REGEXP    whose texts have this form
//	+values=TYPE       a map from any name to these
//	+open              a map of anything; its fields are Kubernetes' to check
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chartdocs:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("want the chart's directory, not %q", arguments)
	}
	in := func(name string) string { return filepath.Join(arguments[0], name) }

	text, err := os.ReadFile(in("values.yaml"))
	if err != nil {
		return err
	}
	root, err := parse(text)
	if err != nil {
		return fmt.Errorf("values.yaml: %w", err)
	}
	schema, err := encodeSchema(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(in("values.schema.json"), schema, 0o644); err != nil {
		return err
	}
	page, err := os.ReadFile(in("README.md"))
	if err != nil {
		return err
	}
	page, err = withTables(page, root)
	if err != nil {
		return fmt.Errorf("README.md: %w", err)
	}
	return os.WriteFile(in("README.md"), page, 0o644)
}
