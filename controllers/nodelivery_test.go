package controllers

import (
	"context"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// awaitUnissued waits until a pipeline goes on, though nobody has a key yet.
func (f *fixture) awaitUnissued(key *v1alpha1.ApiKey) {
	GinkgoHelper()
	f.awaitStatus(key, kstatus.CurrentStatus, v1alpha1.ReasonNotIssued)
}

// expectNoSecrets expects that the tenant's namespace has no Secret at all.
func (f *fixture) expectNoSecrets() {
	GinkgoHelper()
	var secrets corev1.SecretList
	Expect(f.kube.List(context.Background(), &secrets, client.InNamespace(f.namespace))).To(Succeed())
	Expect(secrets.Items).To(BeEmpty())
}

var _ = Describe("An ApiKey with delivery.policy None", func() {
	It("is Ready without a key, and works once it is rotated over HTTP", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").undelivered().ApiKey
		f.apply(key)
		f.awaitUnissued(key)
		Expect(readyMessage(key)).To(ContainSubstring("nobody has a key yet"))
		Expect(key.Status.Prefix).To(BeEmpty())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(condition(key, v1alpha1.DeliveredCondition)).To(BeNil())
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Published without a key")))
		f.expectNoSecrets()

		fresh := f.rotateOverHTTP(key)
		f.awaitReady(key)
		Expect(key.Status.Prefix).To(Equal(fresh.Prefix()))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(2))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationAPI))
		Expect(condition(key, v1alpha1.DeliveredCondition)).To(BeNil())
		Expect(f.live(f.record(key), fresh)).To(BeTrue())
		f.expectNoSecrets()
	})

	It("is disabled and enabled like any other", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").undelivered().ApiKey
		f.apply(key)
		f.awaitUnissued(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitStalled(key, v1alpha1.ReasonDisabled)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		f.awaitUnissued(key)
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
	})

	It("keeps the key that was delivered before, and deletes its Secret", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a"))
		delivered := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
			k.Spec.Rotation.Trigger = ""
		})
		f.awaitReady(key)
		f.awaitNoSecret("till-key")
		Expect(f.live(f.record(key), delivered)).To(BeTrue())
		Expect(f.record(key).Generation).To(BeEquivalentTo(1), "the removed trigger rotates nothing")
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("DeliveryEnded")))

		// And back: the operator has no plaintext of it to deliver.
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = nil })
		f.awaitReady(key)
		Expect(condition(key, v1alpha1.DeliveredCondition).Reason).To(Equal(v1alpha1.ReasonNotDelivered))
		Expect(f.live(f.record(key), delivered)).To(BeTrue())
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("gets a key as soon as the policy is Secret, if nobody has one", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").undelivered().ApiKey
		f.apply(key)
		f.awaitUnissued(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "till"} })
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till"))).To(BeTrue())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(2))
	})

	It("says that nobody has a key after its record was lost, until the next rotation", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").undelivered().ApiKey
		f.apply(key)
		f.awaitUnissued(key)
		lost := f.rotateOverHTTP(key)
		f.awaitReady(key)
		f.delete(f.publishedSecret(key))
		f.awaitUnissued(key)
		Expect(condition(key, v1alpha1.KeyLostCondition).Message).To(ContainSubstring("Nobody has a key now"))
		Expect(f.live(f.record(key), lost)).To(BeFalse())
		f.expectNoSecrets()

		fresh := f.rotateOverHTTP(key)
		f.awaitReady(key)
		Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil())
		Expect(f.live(f.record(key), fresh)).To(BeTrue())
	})
})
