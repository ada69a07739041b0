//go:build e2e

package e2e_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// survivesUninstall: what a merchant would notice is its key, and that one works again in a new release.
func survivesUninstall(ctx SpecContext) {
	key := world.apply(ctx, "uninstall")
	world.helm(ctx, "uninstall", release, "--namespace", systemNamespace, "--wait")

	var merchants v1alpha1.MerchantList
	Expect(world.List(ctx, &merchants)).To(Succeed(), "the CRDs are gone")
	Expect(merchants.Items).NotTo(BeEmpty())
	var published corev1.SecretList
	Expect(world.List(ctx, &published, client.InNamespace(credentials))).To(Succeed())
	Expect(published.Items).NotTo(BeEmpty(), "the credentials are gone")
	kept := len(published.Items)

	world.install(ctx)
	world.waitForRollouts(ctx)
	Eventually(func(g Gomega) {
		g.Expect(till.read(ctx, publicURL, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK))
	}).WithContext(ctx).Should(Succeed(), "the key from before works")
	proved("%d merchants and %d published Secrets outlived the release, and a key from before works", len(merchants.Items), kept)
}
