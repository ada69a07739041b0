//go:build e2e

package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// guardsMerchants turns the deletion policy on. A namespace with an active Merchant must still go, finalizers and all.
func guardsMerchants(ctx SpecContext) {
	world.install(ctx, "--set", "merchantDeletionPolicy.enabled=true")
	defer world.install(ctx)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-leaving"}}
	Expect(world.Create(ctx, namespace)).To(Succeed())
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "guarded"},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Guarded"},
	}
	Expect(world.Create(ctx, merchant)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(merchant.Status.Conditions, "Ready")).To(BeTrue(), "%+v", merchant.Status)
	}).WithContext(ctx).Should(Succeed(), "the merchant is ready")

	Eventually(func() error { return world.Delete(ctx, merchant, client.DryRunAll) }).WithContext(ctx).
		Should(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("set spec.state to Closed"))))
	Expect(world.Delete(ctx, merchant)).NotTo(Succeed())

	begin := time.Now()
	Expect(world.Delete(ctx, namespace)).To(Succeed())
	Eventually(func() error { return world.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }).WithContext(ctx).
		Should(Satisfy(apierrors.IsNotFound), "the namespace goes")
	proved("an active Merchant could not be deleted; its namespace could, in %.0f s", time.Since(begin).Seconds())
}
