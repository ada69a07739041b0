//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

const (
	release         = "merchant-operator"
	systemNamespace = "merchant-operator"
	credentials     = "merchant-operator-credentials"
	shops           = "e2e-shops"
	strangers       = "e2e-strangers"

	publicURL   = "http://merchant-operator-apiserver." + systemNamespace + ".svc:8080"
	internalURL = "http://merchant-operator-apiserver-internal." + systemNamespace + ".svc:8081"

	// patience is for what a cluster does in seconds, and a busy one in minutes.
	patience = 3 * time.Minute
	interval = 500 * time.Millisecond
)

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(interval)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "the product in a cluster")
}

var (
	world   *cluster // of the whole suite: it is installed once
	till    agent
	unasked agent
)

var _ = BeforeSuite(func(ctx SpecContext) {
	world = newCluster()
	world.mustBeBare(ctx)
	DeferCleanup(world.clear, NodeTimeout(5*time.Minute))
	world.makeNamespaces(ctx)
	world.install(ctx)
	till = world.startAgent(ctx, shops, "till")
	unasked = world.startAgent(ctx, strangers, "stranger")
	world.waitForRollouts(ctx)
}, NodeTimeout(10*time.Minute))

var _ = JustAfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		world.describe(ctx)
	}
})

// proved keeps a fact for the table at the end.
func proved(format string, args ...any) {
	AddReportEntry("proved", fmt.Sprintf(format, args...), ReportEntryVisibilityNever)
}

// The table of what was proved.
var _ = ReportAfterSuite("what was proved", func(report Report) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-8s %7s  %s\n", "", "seconds", "what")
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		state := "proved"
		if spec.State != types.SpecStatePassed {
			state = strings.ToUpper(spec.State.String())
		}
		fmt.Fprintf(&table, "%-8s %7.1f  %s\n", state, spec.RunTime.Seconds(), spec.LeafNodeText)
		for _, entry := range spec.ReportEntries {
			fmt.Fprintf(&table, "%16s    %s\n", "", entry.StringRepresentation())
		}
	}
	fmt.Fprintln(os.Stdout, table.String())
})
