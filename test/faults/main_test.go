//go:build faults

package faults

import (
	"flag"
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
