package pages

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const owaspPage = "docs/owasp-api-top-10.md"

var triedBy = regexp.MustCompile("(?m)^\\| `([A-Za-z0-9_]+)` \\| `([a-z0-9/]+)` \\|")

// A page that names tests proves nothing when they are renamed or moved away.
func TestTheOWASPPageNamesTestsThatAreThere(t *testing.T) {
	there := map[string][]string{}
	for _, path := range files(t, "*_test.go") {
		for _, found := range declared.FindAllStringSubmatch(read(t, path), -1) {
			there[filepath.Dir(path)] = append(there[filepath.Dir(path)], found[1])
		}
	}
	risks := section.Split(read(t, owaspPage), -1)[1:]
	if len(risks) != 10 {
		t.Fatalf("%s has %d risks, not 10", owaspPage, len(risks))
	}
	for _, risk := range risks {
		title, body, _ := strings.Cut(risk, "\n")
		rows := triedBy.FindAllStringSubmatch(body, -1)
		if lines := strings.Count(body, "\n| `"); len(rows) != lines || lines == 0 {
			t.Errorf("%s: %d of %d rows name a test and its package", title, len(rows), lines)
		}
		for _, found := range rows {
			if !slices.Contains(there[found[2]], found[1]) {
				t.Errorf("%s: %s has no %s", title, found[2], found[1])
			}
		}
	}
}
