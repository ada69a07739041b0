package controllers

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// awaitMessage waits until Ready says so.
func (f *fixture) awaitMessage(key *v1alpha1.ApiKey, message string) {
	GinkgoHelper()
	Eventually(func() *metav1.Condition { f.read(key); return condition(key, v1alpha1.ReadyCondition) }).
		Should(HaveField("Message", message))
}

// awaitEvent waits until there is such an event about the key.
func (f *fixture) awaitEvent(key *v1alpha1.ApiKey, text string) {
	GinkgoHelper()
	Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring(text)))
}

var _ = Describe("A key that does not work", func() {
	It("is not Ready when it was issued after its expiry, and works again after a later one", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").expires(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)).ApiKey
		f.apply(key)
		f.awaitStalled(key, v1alpha1.ReasonExpired)
		Expect(readyMessage(key)).To(Equal("The key expired at 2020-01-02T03:04:05Z and gets 401; set a later spec.expiresAt, or delete the ApiKey"))
		Expect(condition(key, v1alpha1.ExpiringSoonCondition)).To(BeNil())
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeFalse())
		f.awaitEvent(key, "Warning Expired:")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = nil })
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("is not Ready from the moment of its expiry on", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		end := metav1.NewTime(time.Now().Add(2 * time.Second).Truncate(time.Second))
		key := aKey("till", "coffee").expires(end.Time).ApiKey
		f.apply(key)
		f.awaitStalled(key, v1alpha1.ReasonExpired)
		Expect(condition(key, v1alpha1.ReadyCondition).LastTransitionTime.Time).To(BeTemporally(">=", end.Time))
	})

	It("is not Ready while it is disabled", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitStalled(key, v1alpha1.ReasonDisabled)
		f.awaitEvent(key, "Warning Disabled: spec.state is Disabled: the key gets 401")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		f.awaitReady(key)
	})

	It("is not Ready while its Merchant is not Active, and nothing of the key changes", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		record := f.record(key)
		for state, reason := range map[v1alpha1.MerchantState]string{
			v1alpha1.MerchantSuspended: v1alpha1.ReasonMerchantSuspended, v1alpha1.MerchantClosed: v1alpha1.ReasonMerchantClosed,
		} {
			change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = state })
			f.awaitStalled(key, reason)
			message := fmt.Sprintf("Merchant coffee is %s: the key gets 403 until spec.state of the Merchant is Active", state)
			Expect(readyMessage(key)).To(Equal(message))
			f.awaitEvent(key, "Warning "+reason+": "+message)
			change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
			f.awaitReady(key)
		}
		Expect(f.record(key)).To(Equal(record))
	})

	It("is not Ready when its Merchant is deleted, and says that it ended with it", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.delete(merchant)
		f.awaitWaiting(key)
		message := "Merchant coffee was deleted from namespace " + f.namespace +
			": the key gets 401 for good, also if the Merchant is created again"
		Expect(readyMessage(key)).To(HavePrefix(message))
		f.awaitEvent(key, "Warning MerchantNotFound: "+message)
	})

	It("for a Merchant that nobody creates is Stalled after ten minutes, and says which there are", func() {
		f := newFixture()
		f.merchant(aMerchant("tea"))
		f.merchant(aMerchant("books"))
		key := aKey("till", "cofee").ApiKey
		f.apply(key)
		f.awaitWaiting(key)
		Expect(readyMessage(key)).To(Equal(fmt.Sprintf("Merchant cofee does not exist in namespace %s; waiting for it", f.namespace)))
		Expect(condition(key, v1alpha1.DeliveredCondition)).To(HaveField("Reason", v1alpha1.ReasonNotIssued))

		f.clock.advance(10*time.Minute + time.Second)
		f.poke(key, "apikey") // it also checks by itself, but by the real clock
		f.awaitStalled(key, v1alpha1.ReasonMerchantNotFound)
		Expect(readyMessage(key)).To(ContainSubstring("; its Merchants are books, tea. "))
		f.awaitEvent(key, "Warning MerchantNotFound: Merchant cofee does not exist in namespace "+f.namespace+"; its Merchants are books, tea.")

		f.merchant(aMerchant("cofee"))
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("Previous keys", func() {
	It("are in the status with their ends, which a later rotation shortens and one without an overlap ends", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(24 * time.Hour))
		first := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		rotated := key.Status.LastRotation.Time.Time
		Expect(key.Status.PreviousKeys).To(HaveLen(1))
		Expect(key.Status.PreviousKeys[0].Prefix).To(Equal(first.Prefix()))
		Expect(key.Status.PreviousKeys[0].ValidUntil.Time).To(BeTemporally("~", rotated.Add(24*time.Hour), time.Second))
		f.awaitEvent(key, "Issued key (generation 2, cause Trigger); old keys are valid until "+
			f.record(key).Previous[0].ValidUntil.Format(time.RFC3339)+" at most")

		second := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Rotation = v1alpha1.Rotation{Trigger: "c", OverlapSeconds: new(int32(3600))}
		})
		record := f.awaitGeneration(key, 3)
		Expect(key.Status.PreviousKeys).To(HaveLen(2))
		for i, previous := range key.Status.PreviousKeys {
			Expect(previous.Prefix).To(Equal([]string{second.Prefix(), first.Prefix()}[i]))
			Expect(previous.ValidUntil.Time).To(BeTemporally("~", key.Status.LastRotation.Time.Add(time.Hour), time.Second))
		}
		Expect(f.live(record, first)).To(BeTrue())

		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Rotation = v1alpha1.Rotation{Trigger: "leak", OverlapSeconds: new(int32(0))}
		})
		record = f.awaitGeneration(key, 4)
		Expect(key.Status.PreviousKeys).To(BeEmpty())
		Expect(f.live(record, first)).To(BeFalse())
		Expect(f.live(record, second)).To(BeFalse())
		f.awaitEvent(key, "Issued key (generation 4, cause Trigger); all old keys are refused")
	})

	It("leave the status at their end", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(2 * time.Second))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		Eventually(func() []v1alpha1.PreviousKey { f.read(key); return key.Status.PreviousKeys }).Should(BeEmpty())
		f.clock.advance(reconciler.EndedMargin)
		f.poke(key, "apikey")
		Eventually(func() []published.Previous { return f.record(key).Previous }).Should(BeEmpty())
	})
})

// keysLost is what the metric of it counts, in this process.
func keysLost() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "merchant_operator_keys_lost_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

var _ = Describe("A lost key", func() {
	DescribeTable("is an alarm until the next rotation, after somebody",
		func(harm func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee"))
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil())
			f.clock.advance(time.Minute) // times of rotations rise by a second at least
			counted := keysLost()
			harm(f, key)
			f.awaitGeneration(key, 2)
			Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
			lost := condition(key, v1alpha1.KeyLostCondition)
			Expect(lost).NotTo(BeNil())
			Expect(lost.Status).To(Equal(metav1.ConditionTrue))
			Expect(lost.Reason).To(Equal(v1alpha1.ReasonKeyReplaced))
			since := key.Status.LastRotation.Time.UTC().Format(time.RFC3339)
			Expect(lost.Message).To(ContainSubstring("All keys before generation 2 get 401 since " + since))
			Expect(keysLost()).To(Equal(counted + 1))
			f.awaitEvent(key, "Warning KeyLost: The published record was lost.")
			f.awaitEvent(key, "Normal Rotated: Issued key (generation 2, cause Recovery); all old keys are refused")
			Expect(f.secret(f.namespace, "till-key").Annotations).To(HaveKeyWithValue("merchant-operator.io/key-lost-since", since))

			By("moving with the Secret, and outliving the status")
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
			f.awaitNoSecret("till-key")
			f.awaitReady(key)
			Expect(f.secret(f.namespace, "moved").Annotations).To(HaveKeyWithValue("merchant-operator.io/key-lost-since", since))
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(HaveField("Message", lost.Message))

			By("ending with the next rotation")
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
			f.awaitGeneration(key, 3)
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil())
			Expect(f.secret(f.namespace, "moved").Annotations).NotTo(HaveKey("merchant-operator.io/key-lost-since"))
		},
		Entry("deleted its published Secret", func(f *fixture, k *v1alpha1.ApiKey) { f.delete(f.publishedSecret(k)) }),
		Entry("spoilt it", func(f *fixture, k *v1alpha1.ApiKey) {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte("{") })
		}),
	)

	It("that cannot be replaced says so", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		f.delete(f.publishedSecret(key))
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Expect(condition(key, v1alpha1.KeyLostCondition)).To(HaveField("Reason", v1alpha1.ReasonKeyNotReplaced))
		f.awaitEvent(key, "Warning KeyLost: The published record of the key was lost, so the key gets 401.")
	})

	It("that is externally generated is published again, with a warning", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.delete(f.publishedSecret(key))
		record := f.awaitGeneration(key, 2)
		Expect(record.Current.Digest.Equal(vaultDigest)).To(BeTrue())
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
		Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil(), "the merchant's key works")
		f.awaitEvent(key, "Warning RecordRestored:")
	})
})
