//go:build faults

package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// fault is one row of the table.
type fault struct {
	// promises are those of docs/guarantees.md that it is to break.
	promises string
	name     string
	promised string
	// try tries it, fails t if a promise broke, and says how often it was tried and what was seen.
	try func(t *testing.T) (tried int, seen string)
}

// faults are in the order of the table.
func faults() []fault {
	var all []fault
	for _, some := range [][]fault{stormFaults(), keyFaults(), limitFaults(), outageFaults(), failoverFaults(), kubeFaults(), withdrawalFaults(), drainFaults(), abuseFaults(), smugglingFaults(), tenantFaults()} {
		all = append(all, some...)
	}
	return all
}

// TestFaults tries each of them, and then looks for secrets in all that the roles have told meanwhile.
func TestFaults(t *testing.T) {
	var table strings.Builder
	table.WriteString(tableHead)
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			tried, seen := f.try(t)
			if t.Failed() {
				seen = "**broken**"
			}
			fmt.Fprintf(&table, "| %s | %s | %d | %s | %s |\n", f.promises, f.name, tried, f.promised, seen)
		})
	}
	t.Logf("\n%s", &table)
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(table.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Run("no secret is anywhere", func(t *testing.T) { shared.searchSecrets(t) })
	if *updatePage && !t.Failed() {
		putOnPage(t, table.String())
	}
}
