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
func (f *fixture) dispatcherSays(merchant *v1alpha1.Merchant, condition *metav1ac.ConditionApplyConfiguration) {
	GinkgoHelper()
	status := v1alpha1ac.MerchantStatus()
	if condition != nil {
		status.WithConditions(condition.
			WithType(v1alpha1.WebhookHealthyCondition).
			WithLastTransitionTime(metav1.NewTime(f.clock.Now())))
	}
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithUID(merchant.UID).WithStatus(status)
	// Without force: a conflict would say that the operator has taken the condition over.
	Expect(f.kube.Status().Apply(context.Background(), apply, client.FieldOwner("merchant-operator-dispatcher"))).To(Succeed())
}

func healthOf(merchant *v1alpha1.Merchant) *metav1.Condition {
	return meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition)
}

var _ = Describe("What the dispatcher says of a webhook", func() {
	It("stays as it is in every pass of the operator", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		before := passes("merchant")
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointDisabled").WithMessage("120 h"))
		f.read(merchant)
		said := healthOf(merchant)
		Expect(said).NotTo(BeNil())

		By("being seen in a pass that has nothing to do")
		version := merchant.ResourceVersion
		f.restart()
		Eventually(func() int { return passes("merchant") }).Should(BeNumerically(">", before))
		f.key(aKey("till", "coffee")) // the operator is at work
		f.read(merchant)
		Expect(merchant.ResourceVersion).To(Equal(version), "the operator wrote nothing")

		By("being seen in a pass that writes the status")
		foreign := f.squat("taken")
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "taken" })
		f.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(healthOf(merchant)).To(Equal(said))
		f.delete(foreign)
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		Expect(healthOf(merchant)).To(Equal(said))

		By("changing it and taking it back")
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionTrue).WithReason("Healthy").WithMessage("Events are accepted"))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		f.awaitReady(merchant)
		Expect(healthOf(merchant)).To(HaveField("Status", metav1.ConditionTrue))
		f.dispatcherSays(merchant, nil)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
		f.awaitReady(merchant)
		Expect(healthOf(merchant)).To(BeNil())
	})

	It("alone is no status: the operator puts its own back", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointGone").WithMessage("410"))
		change(f, merchant, func(m *v1alpha1.Merchant) {}) // reads it
		only := client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/status/conditions/0"}]`))
		Expect(merchant.Status.Conditions[0].Type).To(Equal(v1alpha1.ReadyCondition))
		Expect(f.kube.Status().Patch(context.Background(), merchant, only)).To(Succeed())
		f.awaitReady(merchant)
		Expect(healthOf(merchant)).To(HaveField("Reason", "EndpointGone"))
	})

	It("of a test ends the publication of its trigger", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		published := func() string { return f.merchantRecord(Default, merchant).Webhook.TestTrigger }
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.TestTrigger = "monday" })
		f.awaitReady(merchant)
		Expect(published()).To(Equal("monday"))
		f.dispatcherTested(merchant, "monday")
		Eventually(published).Should(BeEmpty())
		f.restart()
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		Expect(published()).To(BeEmpty(), "nothing is tested again")
		Expect(merchant.Status.Webhook).To(HaveField("ObservedTestTrigger", "monday"))

		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.TestTrigger = "tuesday" })
		f.awaitReady(merchant)
		Expect(published()).To(Equal("tuesday"))
	})
})

// dispatcherTested applies what the dispatcher applies when it has queued a test.
func (f *fixture) dispatcherTested(merchant *v1alpha1.Merchant, trigger string) {
	GinkgoHelper()
	status := v1alpha1ac.MerchantStatus().WithWebhook(v1alpha1ac.WebhookStatus().WithObservedTestTrigger(trigger))
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status)
	Expect(f.kube.Status().Apply(context.Background(), apply, client.FieldOwner("merchant-operator-dispatcher-test"))).To(Succeed())
}
