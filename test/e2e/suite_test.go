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
	internalURL = "https://merchant-operator-apiserver-internal." + systemNamespace + ".svc:8081"

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
	shared  *cluster // of the whole suite: it is installed once
	till    agent
	unasked agent
)

var _ = BeforeSuite(func(ctx SpecContext) {
	shared = newCluster()
	shared.mustBeBare(ctx)
	DeferCleanup(shared.clear, NodeTimeout(5*time.Minute))
	shared.makeNamespaces(ctx)
	shared.makeSecrets(ctx)
	shared.install(ctx)
	till = shared.startAgent(ctx, shops, "till")
	unasked = shared.startAgent(ctx, strangers, "stranger")
	shared.waitForRollouts(ctx)
}, NodeTimeout(10*time.Minute))

var _ = JustAfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		shared.describe(ctx)
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

// What the product promises in a cluster, in the order in which it is tried: the last ones take it apart.
var _ = Describe("merchant-operator in a cluster", Ordered, ContinueOnFailure, func() {
	limit := NodeTimeout(8 * time.Minute)

	It("takes a charge through the Service, from kubectl apply to the payer's view", limit, takesACharge)
	It("shows a payer the page, and the end of the session at once", limit, showsAPayerThePage)
	It("lets a rail inside the cluster settle a session, and nobody else", limit, settles)
	It("lets a person of a merchant issue and rotate a key in the console, and shows others nothing", limit, issuesKeysInTheConsole)
	It("delivers a signed webhook to a receiver's pod", limit, deliversAWebhook)
	It("is managed with kubectl merchant, which asks a pod of the dispatcher for dead letters", limit, usesThePlugin)
	It("deletes a Merchant only when it is Closed, or with its namespace", limit, guardsMerchants)
	It("rotates a key on all replicas before the answer", limit, rotatesEverywhere)
	It("runs under the restricted Pod Security Standard, which refuses a privileged pod", limit, runsRestricted)
	It("is reached and reaches only where the NetworkPolicies say", limit, isFencedIn)
	It("serves on from a replica that lost the Kubernetes API, and learns of a rotation from its peers", limit, servesWhenCutOff)
	It("fails no request while a pod of the API is deleted", limit, survivesPodDeletion)
	It("fails no request during a rolling restart of all roles", limit, survivesARollingRestart)
	It("fails no request during helm upgrade, which keeps keys and sessions", limit, survivesAnUpgrade)
	It("goes on reconciling when the leading operator is gone", limit, changesLeaders)
	It("keeps CRDs, merchants and keys through helm uninstall and a new install", limit, survivesUninstall)
})
