package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// dispatcherSays applies WebhookHealthy as the dispatcher does, by server-side apply under its own
// name; nil: it takes the condition back.
func (w *world) dispatcherSays(merchant *v1alpha1.Merchant, condition *metav1ac.ConditionApplyConfiguration) {
	GinkgoHelper()
	status := v1alpha1ac.MerchantStatus()
	if condition != nil {
		status.WithConditions(condition.
			WithType(v1alpha1.WebhookHealthyCondition).
			WithLastTransitionTime(metav1.NewTime(w.clock.Now())))
	}
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithUID(merchant.UID).WithStatus(status)
	// Without force: a conflict would say that the operator has taken the condition over.
	Expect(w.kube.Status().Apply(context.Background(), apply, client.FieldOwner("merchant-operator-dispatcher"))).To(Succeed())
}

func healthOf(merchant *v1alpha1.Merchant) *metav1.Condition {
	return meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition)
}

var _ = Describe("What the dispatcher says of a webhook", func() {
	It("stays as it is in every pass of the operator", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		before := passes("merchant")
		w.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointFailing").WithMessage("120 h"))
		w.read(merchant)
		said := healthOf(merchant)
		Expect(said).NotTo(BeNil())

		By("being seen in a pass that has nothing to do")
		version := merchant.ResourceVersion
		w.restart()
		Eventually(func() int { return passes("merchant") }).Should(BeNumerically(">", before))
		w.key(aKey("till", "coffee")) // the operator is at work
		w.read(merchant)
		Expect(merchant.ResourceVersion).To(Equal(version), "the operator wrote nothing")

		By("being seen in a pass that writes the status")
		foreign := w.squat("taken")
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "taken" })
		w.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(healthOf(merchant)).To(Equal(said))
		w.delete(foreign)
		w.poke(merchant, "merchant")
		w.awaitReady(merchant)
		Expect(healthOf(merchant)).To(Equal(said))

		By("changing it and taking it back")
		w.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionTrue).WithReason("Resumed").WithMessage("Events are sent"))
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		w.awaitReady(merchant)
		Expect(healthOf(merchant)).To(HaveField("Status", metav1.ConditionTrue))
		w.dispatcherSays(merchant, nil)
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
		w.awaitReady(merchant)
		Expect(healthOf(merchant)).To(BeNil())
	})

	It("alone is no status: the operator puts its own back", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		w.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointGone").WithMessage("410"))
		change(w, merchant, func(m *v1alpha1.Merchant) {}) // reads it
		only := client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/status/conditions/0"}]`))
		Expect(merchant.Status.Conditions[0].Type).To(Equal(v1alpha1.ReadyCondition))
		Expect(w.kube.Status().Patch(context.Background(), merchant, only)).To(Succeed())
		w.awaitReady(merchant)
		Expect(healthOf(merchant)).To(HaveField("Reason", "EndpointGone"))
	})
})
