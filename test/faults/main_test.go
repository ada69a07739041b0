//go:build faults

package faults

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var (
	// intensity multiplies how often each fault is tried.
	intensity = flag.Int("intensity", 1, "how often faults are tried, as a multiple of the least")
	// soaking is how long the soak takes.
	soaking = flag.Duration("soak", 5*time.Second, "how long the soak takes")
	// tableFile takes the table of the faults.
	tableFile = flag.String("table", "", "file for the table of faults; empty: the test's log only")
	// updatePage puts it where it is published, if nothing broke.
	updatePage = flag.Bool("page", false, "put the table of faults into docs/guarantees.md, if no promise broke")
)

// shared is the Kubernetes API with the operator; each fault has its own Redis and roles of the data plane.
var shared *cluster

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	var err error
	if shared, err = startCluster(); err != nil {
		panic(err)
	}
	defer func() {
		if err := shared.stop(); err != nil {
			panic(err)
		}
	}()
	m.Run()
}

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
	for _, some := range [][]fault{stormFaults(), keyFaults(), deletionFaults(), clockFaults(), limitFaults(), outageFaults(), failoverFaults(), kubeFaults(), withdrawalFaults(), drainFaults(), abuseFaults(), endpointFaults(), smugglingFaults(), tenantFaults(), consoleFaults(), receiptFaults()} {
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
