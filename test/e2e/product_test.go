//go:build e2e

package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// What the product promises in a cluster, in the order in which it is tried: the last ones take it apart.
var _ = Describe("merchant-operator in a cluster", Ordered, ContinueOnFailure, func() {
	limit := NodeTimeout(8 * time.Minute)

	It("takes a charge through the Service, from kubectl apply to the payer's view", limit, takesACharge)
	It("lets a rail inside the cluster settle a session, and nobody else", limit, settles)
	It("delivers a signed webhook to a receiver's pod", limit, deliversAWebhook)
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
