//go:build faults

package faults

import (
	"os"
	"strings"
	"testing"
)

const (
	page      = "../../docs/guarantees.md"
	tableHead = "| promise | fault | tried | promised | seen |\n|---|---|--:|---|---|\n"
)

// putOnPage replaces the table of the page, which is its end.
func putOnPage(t *testing.T, table string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(content), tableHead)
	if !found {
		t.Fatalf("%s has no table to be replaced; it begins with\n%s", page, tableHead)
	}
	if err := os.WriteFile(page, []byte(before+table), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The page has a row for each fault, and none that is not tried.
func TestThePageHasEveryFault(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if cells := strings.Split(line, " | "); len(cells) == 5 && strings.HasPrefix(line, "| P") {
			described[cells[1]] = cells[3]
		}
	}
	for _, f := range faults() {
		if described[f.name] != f.promised {
			t.Errorf("%s: promised %q, and %q on the page", f.name, f.promised, described[f.name])
		}
		delete(described, f.name)
	}
	for name := range described {
		t.Errorf("%s is on the page, and nobody tries it", name)
	}
	if t.Failed() {
		t.Log("`make faults PAGE=yes` puts the table of a run in which nothing broke on the page; " +
			"or replace the table at its end by what `make faults` left in bin/faults.md")
	}
}
