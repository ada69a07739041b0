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
	for _, some := range [][]fault{stormFaults(), keyFaults(), deletionFaults(), clockFaults(), limitFaults(), outageFaults(), failoverFaults(), kubeFaults(), withdrawalFaults(), drainFaults(), abuseFaults(), endpointFaults(), networkFaults(), smugglingFaults(), tenantFaults(), consoleFaults(), receiptFaults(), payerFaults(), refundFaults(), fullFaults(), memoryFaults(), fairnessFaults()} {
		all = append(all, some...)
	}
	return all
}

// TestFaults tries each of them, and then looks for secrets in everything that the roles have written.
func TestFaults(t *testing.T) {
	var table strings.Builder
	table.WriteString("| promise | fault | tried | promised | seen |\n|---|---|--:|---|---|\n")
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
}
