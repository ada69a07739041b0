package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// As Keep a Changelog has it: `## [1.2.3] - 2026-11-21`.
	releaseHeading = regexp.MustCompile(`^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$`)
	// `[1.2.3]: https://…`, which belongs to the page and not to its last section.
	linkDefinition = regexp.MustCompile(`^\[[^\]]+\]: `)
)

// notesOf is what a changelog says of a version. A version that it does not tell of, or tells nothing of, is not released.
func notesOf(changelog, version string) (string, error) {
	var notes []string
	found := false
	for line := range strings.Lines(changelog) {
		line = strings.TrimRight(line, "\r\n")
		if heading := releaseHeading.FindStringSubmatch(line); heading != nil {
			if found {
				break
			}
			found = heading[1] == version
			if found && heading[2] == "" {
				return "", fmt.Errorf("%s has no date; its heading should be like `## [%s] - 2026-11-21`", version, version)
			}
			continue
		}
		if found && !linkDefinition.MatchString(line) {
			notes = append(notes, line)
		}
	}
	if !found {
		return "", fmt.Errorf("it does not tell of %s; give what is unreleased a heading like `## [%s] - 2026-11-21`", version, version)
	}
	text := strings.TrimSpace(strings.Join(notes, "\n"))
	if text == "" {
		return "", fmt.Errorf("it has a heading for %s and nothing below", version)
	}
	return text, nil
}
