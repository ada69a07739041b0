// Command crdtimes gives each date-time of a CRD that has no pattern the one of a metav1.Time. `make generate` runs it.
//
// The format alone accepts times that Go cannot decode, such as 2026-01-01t12:00:00z, and one such object fails the list of all objects
// of its kind. No marker of controller-gen reaches the time of a metav1.Condition.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// pattern is how Go writes a metav1.Time: in UTC, in whole seconds. The format checks that there is such a day and time.
const pattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crdtimes FILE...")
		os.Exit(2)
	}
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdtimes:", err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	addPatterns(crd)
	text, err = yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o644)
}

func addPatterns(node any) {
	switch node := node.(type) {
	case map[string]any:
		if node["format"] == "date-time" && node["pattern"] == nil {
			node["pattern"] = pattern
		}
		for _, child := range node {
			addPatterns(child)
		}
	case []any:
		for _, child := range node {
			addPatterns(child)
		}
	}
}
