//go:build e2e

package e2e_test

import (
	"context"
	"net/http"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// survivesUninstall: what a merchant would notice is its key, and that one works again in a new release.
func survivesUninstall(ctx SpecContext) {
	key := shared.apply(ctx, "uninstall")
	shared.helm(ctx, "uninstall", release, "--namespace", systemNamespace, "--wait")

	var merchants v1alpha1.MerchantList
	Expect(shared.List(ctx, &merchants)).To(Succeed(), "the CRDs are gone")
	Expect(merchants.Items).NotTo(BeEmpty())
	var published corev1.SecretList
	Expect(shared.List(ctx, &published, client.InNamespace(credentials))).To(Succeed())
	Expect(published.Items).NotTo(BeEmpty(), "the credentials are gone")
	kept := len(published.Items)

	shared.install(ctx)
	shared.waitForRollouts(ctx)
	Eventually(func(g Gomega) {
		g.Expect(till.read(ctx, publicURL, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK))
	}).WithContext(ctx).Should(Succeed(), "the key from before works")
	proved("%d merchants and %d published Secrets outlived the release, and a key from before works", len(merchants.Items), kept)
}

// guardsMerchants turns the deletion policy on. A namespace with an active Merchant must still go, finalizers and all.
func guardsMerchants(ctx SpecContext) {
	shared.install(ctx, "--set", "merchantDeletionPolicy.enabled=true")
	defer shared.install(ctx)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-leaving"}}
	Expect(shared.Create(ctx, namespace)).To(Succeed())
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "guarded"},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Guarded"},
	}
	Expect(shared.Create(ctx, merchant)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(shared.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(merchant.Status.Conditions, "Ready")).To(BeTrue(), "%+v", merchant.Status)
	}).WithContext(ctx).Should(Succeed(), "the merchant is ready")

	Eventually(func() error { return shared.Delete(ctx, merchant, client.DryRunAll) }).WithContext(ctx).
		Should(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("set spec.state to Closed"))))
	Expect(shared.Delete(ctx, merchant)).NotTo(Succeed())

	begin := time.Now()
	Expect(shared.Delete(ctx, namespace)).To(Succeed())
	Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }).WithContext(ctx).
		Should(Satisfy(apierrors.IsNotFound), "the namespace goes")
	proved("an active Merchant could not be deleted; its namespace could, in %.0f s", time.Since(begin).Seconds())
}

// mustBeBare refuses a cluster in which somebody uses the product: the suite removes all of it at its end.
func (c *cluster) mustBeBare(ctx context.Context) {
	GinkgoHelper()
	err := c.List(ctx, &v1alpha1.MerchantList{})
	Expect(meta.IsNoMatchError(err)).To(BeTrue(), "the product is in this cluster already (%v); the suite wants one without it", err)
}

// clear removes what the suite made: merchants while there is an operator to let them go, then the release, then what
// outlives a release on purpose. KEEP leaves all of it to be looked at.
func (c *cluster) clear(ctx SpecContext) {
	if os.Getenv("KEEP") != "" {
		return
	}
	for _, list := range []client.Object{&v1alpha1.ApiKey{}, &v1alpha1.Merchant{}} {
		_ = c.DeleteAllOf(ctx, list, client.InNamespace(shops)) // there may be no such kind, when the install failed
	}
	Eventually(func(g Gomega) {
		var left v1alpha1.MerchantList
		if err := c.List(ctx, &left); !meta.IsNoMatchError(err) {
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(left.Items).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed(), "the merchants go")
	c.helm(ctx, "uninstall", release, "--namespace", systemNamespace, "--wait", "--ignore-not-found")
	for _, name := range []string{"merchants.merchant-operator.io", "apikeys.merchant-operator.io"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(client.IgnoreNotFound(c.Delete(ctx, crd))).To(Succeed())
	}
	for _, name := range []string{shops, strangers, systemNamespace, credentials} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(client.IgnoreNotFound(c.Delete(ctx, namespace))).To(Succeed())
		Eventually(func() error { return c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }).
			WithContext(ctx).ShouldNot(Succeed(), "namespace %s goes", name)
	}
}
