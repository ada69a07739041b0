// Package audittest reads the audit log among the lines of a role's log, and holds each line against the page that describes it.
package audittest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// Line is one of the audit log, without what all lines have.
type Line map[string]any

// Rotation is what each entry about a generation of a key has, from the operator and from a replica.
func Rotation(keyID string, generation int64) Line {
	return Line{"change": "rotated", "keyID": keyID, "generation": float64(generation)}
}

// Has reports whether the line has these fields and values.
func (l Line) Has(fields Line) bool {
	for field, value := range fields {
		if l[field] != value {
			return false
		}
	}
	return true
}

// Page describes the fields.
const Page = "docs/reference/audit.md"

var (
	row    = regexp.MustCompile("(?m)^\\| (`[^|]*) \\| [^|]+ \\|$")
	quoted = regexp.MustCompile("`([a-zA-Z]+)`")
	// secrets are what no line may have: a key or its prefix, a signing secret, a digest.
	secrets = regexp.MustCompile(`mk_(live|test)_|whsec_|[0-9a-f]{64}`)
)

// Fields are those that the page describes.
func Fields(t testing.TB) map[string]bool {
	t.Helper()
	fields := map[string]bool{}
	for _, cells := range row.FindAllStringSubmatch(repository.Read(t, Page), -1) {
		for _, field := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if fields[field[1]] {
				t.Errorf("%s has %s twice", Page, field[1])
			}
			fields[field[1]] = true
		}
	}
	return fields
}

// Lines returns those in a log, the oldest first. It fails t if one has a field that the page does not describe.
func Lines(t testing.TB, log string) []Line {
	t.Helper()
	fields := Fields(t)
	var lines []Line
	for text := range strings.Lines(log) {
		if !strings.Contains(text, `"logger":"audit"`) {
			continue
		}
		var line Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line["logger"] != "audit" {
			continue
		}
		if secrets.MatchString(text) {
			t.Errorf("a secret is in %s", text)
		}
		delete(line, "role") // of the loggers of tests
		delete(line, "replica")
		for field := range line {
			if !fields[field] {
				t.Errorf("%s does not describe the field %s of %s", Page, field, text)
			}
		}
		for _, field := range []string{"time", "level", "msg", "logger"} {
			if line[field] == nil {
				t.Errorf("no %s in %s", field, text)
			}
			delete(line, field)
		}
		lines = append(lines, line)
	}
	return lines
}
