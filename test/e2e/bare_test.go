//go:build e2e

package e2e_test

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

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
