package controllers

import (
	"context"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// squat puts somebody else's Secret under a name.
func (f *fixture) squat(name string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"password": []byte("x")}}
	f.apply(secret)
	return secret
}

// awaitNoSecret waits until the tenant has no Secret of that name.
func (f *fixture) awaitNoSecret(name string) {
	GinkgoHelper()
	Eventually(func() any { return f.secret(f.namespace, name) }).Should(BeNil(), "Secret %s is gone", name)
}

var _ = Describe("A delivery", func() {
	It("never touches somebody else's Secret, and happens once the name is free", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		foreign := f.squat("till-key")
		key := f.applied(aKey("till", "coffee"))
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(f.publishedSecret(key)).To(BeNil(), "no key was made")
		Expect(f.secret(f.namespace, "till-key")).To(Equal(foreign))
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Warning SecretConflict:")))

		f.delete(foreign)
		f.poke(key, "apikey") // it is also checked, once a minute
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("that cannot be made does not keep the old key from being disabled", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.squat("taken")
		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "taken"}
			k.Spec.Rotation.Trigger = "b"
			k.Spec.State = v1alpha1.ApiKeyDisabled
		})
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		record := f.record(key)
		Expect(record.Generation).To(BeEquivalentTo(1))
		Expect(record.State).To(Equal(v1alpha1.ApiKeyDisabled))
		Expect(record.HandledTrigger).To(BeEmpty(), "the rotation is still to come")
		Expect(f.secret(f.namespace, "till-key")).NotTo(BeNil())
	})

	It("moves with its name, and the key stays", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		plaintext, record := f.delivered("till-key"), f.record(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		f.awaitReady(key)
		f.awaitNoSecret("till-key")
		Expect(f.delivered("moved").Digest().Equal(plaintext.Digest())).To(BeTrue())
		Expect(f.record(key)).To(Equal(record))
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("DeliveryMoved")))
	})

	It("waits with its move for a name that is taken", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		plaintext, foreign := f.delivered("till-key"), f.squat("taken")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "taken"} })
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(f.delivered("till-key").Digest().Equal(plaintext.Digest())).To(BeTrue())
		f.delete(foreign)
		f.poke(key, "apikey")
		f.awaitReady(key)
		Expect(f.delivered("taken").Digest().Equal(plaintext.Digest())).To(BeTrue())
	})

	It("does not pass on what somebody put in the key's place", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Data["apiKey"] = []byte("rubbish") })
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		f.awaitReady(key)
		f.awaitNoSecret("till-key")
		Expect(f.secret(f.namespace, "moved")).To(BeNil())
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Warning NotDelivered:")))
	})

	It("that a person removed is not repeated, and rotates nothing", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		record := f.record(key)
		f.delete(f.secret(f.namespace, "till-key"))
		f.poke(key, "apikey")
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
		Expect(f.record(key)).To(Equal(record))

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Warning NotDelivered:")))
		f.awaitReady(key)
		Expect(f.secret(f.namespace, "moved")).To(BeNil())
		Expect(f.record(key)).To(Equal(record))
	})

	It("ends after the time it is to be retained, and the key remains", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").retained(time.Second))
		record := f.record(key)
		f.awaitNoSecret("till-key")
		Expect(f.record(key)).To(Equal(record))
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("RetentionEnded")))
	})
})

var _ = Describe("The end of an ApiKey", func() {
	It("takes its published and its delivered Secret with it, and nothing else", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key, other := f.key(aKey("till", "coffee")), f.key(aKey("web", "coffee"))
		f.delete(key)
		f.awaitGone(key)
		Expect(f.publishedSecret(key)).To(BeNil())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
		Expect(f.live(f.record(other), f.delivered("web-key"))).To(BeTrue())
	})

	It("leaves a Secret that is not its own", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		foreign := f.squat("till-key")
		key := f.applied(aKey("till", "coffee"))
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		f.delete(key)
		f.awaitGone(key)
		Expect(f.secret(f.namespace, "till-key")).To(Equal(foreign))
	})

	It("also takes a published Secret that cannot be read and a delivered one that lost its label", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.stop()
		change(f, f.publishedSecret(key), func(s *secretObject) { s.Data["record.json"], s.Labels = []byte("{"), nil })
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Labels = nil })
		f.delete(key)
		f.restart()
		f.awaitGone(key)
		Expect(f.publishedSecret(key)).To(BeNil())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
	})

	It("does not wait for a Merchant", func() {
		f := newFixture()
		key := f.applied(aKey("till", "nobody"))
		f.awaitWaiting(key)
		Expect(f.kube.Delete(context.Background(), key)).To(Succeed())
		f.awaitGone(key)
	})
})

// awaitDelivered waits until Delivered has that reason, and returns it.
func (f *fixture) awaitDelivered(key *v1alpha1.ApiKey, reason string) *metav1.Condition {
	GinkgoHelper()
	Eventually(func() *metav1.Condition { f.read(key); return condition(key, v1alpha1.DeliveredCondition) }).
		Should(HaveField("Reason", reason))
	return condition(key, v1alpha1.DeliveredCondition)
}

var _ = Describe("Delivered", func() {
	It("is warned of although a tenant wrote it into the status before", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.awaitDelivered(key, v1alpha1.ReasonDelivered)
		f.forgeStatus(key, map[string]any{"conditions": []any{
			map[string]any{
				"type": "Ready", "status": "True", "reason": v1alpha1.ReasonPublished, "message": "forged", "lastTransitionTime": "2026-11-23T12:00:00Z",
			},
			map[string]any{
				"type": v1alpha1.DeliveredCondition, "status": "False", "reason": v1alpha1.ReasonNotDelivered, "message": "forged",
				"lastTransitionTime": "2026-11-23T12:00:00Z",
			},
		}})
		f.delete(f.secret(f.namespace, "till-key"))
		f.awaitEvent(key, "Warning NotDelivered: ")
	})

	It("is False once somebody has deleted the Secret, and True after the rotation it asks for", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		Expect(f.awaitDelivered(key, v1alpha1.ReasonDelivered)).To(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Message", "Secret till-key holds the current key (generation 1)")))
		f.delete(f.secret(f.namespace, "till-key"))
		deleted := f.awaitDelivered(key, v1alpha1.ReasonNotDelivered)
		Expect(deleted.Status).To(Equal(metav1.ConditionFalse))
		Expect(deleted.Message).To(ContainSubstring("change spec.rotation.trigger"))
		f.awaitReady(key)                     // the key works
		f.awaitEvent(key, "Normal Rotated: ") // events are written one beside the other
		f.awaitEvent(key, "Warning NotDelivered: "+deleted.Message)
		before := len(f.events(key))
		f.poke(key, "apikey")
		f.forgeStatus(key, map[string]any{"conditions": nil}) // which starts a pass
		f.awaitDelivered(key, v1alpha1.ReasonNotDelivered)
		Expect(f.events(key)).To(HaveLen(before), "it is said once")

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		Expect(f.awaitDelivered(key, v1alpha1.ReasonDelivered).Message).To(Equal("Secret till-key holds the current key (generation 2)"))
	})

	It("is False after a rotation over HTTP, and after the retention", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		Expect(f.awaitDelivered(key, v1alpha1.ReasonRotatedOverHTTP).Status).To(Equal(metav1.ConditionFalse))
		brief := f.key(aKey("brief", "coffee").retained(time.Second))
		Expect(f.awaitDelivered(brief, v1alpha1.ReasonRetentionEnded).Status).To(Equal(metav1.ConditionFalse))
	})

	It("is absent for a key that is externally generated", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = vaultDigest.Hex() })
		f.awaitGeneration(key, 2)
		Expect(condition(key, v1alpha1.DeliveredCondition)).To(BeNil())
	})
})

var _ = Describe("A Secret's name that is taken", func() {
	It("is said with its owner, and no advice to delete a key", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee").webhook())
		f.key(aKey("till", "coffee"))
		f.squat("taken")
		key := f.applied(aKey("web", "coffee").deliveredAs("till-key"))
		for name, whose := range map[string]string{
			"till-key":       "holds the key of ApiKey " + f.namespace + "/till",
			"coffee-webhook": "holds the signing secret of Merchant " + f.namespace + "/coffee",
			"taken":          "was not created by merchant-operator",
		} {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery.SecretName = name })
			f.awaitMessage(key, "Secret "+name+" "+whose+"; choose another spec.delivery.secretName")
			f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		}
		books := aMerchant("books").webhook(func(h *v1alpha1.Webhook) { h.SecretName = "till-key" }).Merchant
		f.apply(books)
		f.awaitStalled(books, v1alpha1.ReasonSecretConflict)
		Expect(readyMessage(books)).To(HavePrefix("Secret till-key holds the key of ApiKey " + f.namespace + "/till; choose another spec.webhook.secretName."))
	})
})

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
		key := f.applied(aKey("till", "coffee").undelivered())
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
		key := f.applied(aKey("till", "coffee").undelivered())
		f.awaitUnissued(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitUnusable(key, v1alpha1.ReasonDisabled)
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
		key := f.applied(aKey("till", "coffee").undelivered())
		f.awaitUnissued(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "till"} })
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till"))).To(BeTrue())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(2))
	})

	It("says that nobody has a key after its record was lost, until the next rotation", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.applied(aKey("till", "coffee").undelivered())
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
