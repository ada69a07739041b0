package controllers

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("A key whose Merchant goes", func() {
	It("waits, and nothing of it is forgotten", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		record := w.record(key)
		w.delete(merchant)
		w.awaitWaiting(key)
		w.awaitGone(merchant)
		Expect(w.configMap(merchant)).To(BeNil(), "without it the data plane refuses the key")
		told := w.record(key)
		Expect(told.State).To(Equal(v1alpha1.ApiKeyDisabled), "replicas that do not hear of the Merchant hear of the key")
		Expect(told.Revision).To(BeNumerically(">", record.Revision))
		told.State, told.Revision = record.State, record.Revision
		Expect(told).To(Equal(record))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
	})

	It("does not charge for another Merchant of the same name", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(time.Hour))
		old := w.delivered("till-key")
		w.delete(merchant)
		w.awaitGone(merchant)
		merchant = w.merchant(aMerchant("coffee"))
		record := w.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(w.live(record, old)).To(BeFalse())
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("A key made elsewhere", func() {
	first := apikey.DigestOf("the first key from a vault, 32 or more")
	second := apikey.DigestOf("the second key from a vault, 32 or more")

	It("is replaced by a changed digest, with the overlap", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(first).trigger("a").overlap(time.Hour))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest, k.Spec.Rotation.Trigger = second.Hex(), "b" })
		record := w.awaitGeneration(key, 2)
		Expect(record.Live(second, w.clock.Now())).To(BeTrue())
		Expect(record.Live(first, w.clock.Now())).To(BeTrue())
		Expect(record.HandledTrigger).To(Equal("b"), "both changes are one rotation")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
	})

	It("is not replaced by a changed trigger, which says so", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(first))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		w.awaitReady(key)
		Expect(key.Status.ObservedTrigger).To(Equal("b"))
		Expect(w.record(key).Generation).To(BeEquivalentTo(1))
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("Warning TriggerIgnored:")))
	})

	It("stays replaced by a rotation over HTTP", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(first))
		fresh := w.rotateOverHTTP(key)
		w.awaitGeneration(key, 2)
		w.poke(key, "apikey")
		record := w.record(key)
		Expect(w.live(record, fresh)).To(BeTrue())
		Expect(record.Live(first, w.clock.Now())).To(BeFalse())
	})

	It("changes to one made here and back, each by one rotation", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(first))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "" })
		record := w.awaitGeneration(key, 2)
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record = w.awaitGeneration(key, 3)
		Expect(record.Live(second, w.clock.Now())).To(BeTrue())
		Expect(key.Status.Prefix).To(BeEmpty())
		w.awaitNoSecret("till-key")
	})

	It("is not accepted for another Merchant of the same name until it is changed", func() {
		w := newWorld()
		former := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(first))
		w.delete(former)
		w.awaitGone(former)
		merchant := w.merchant(aMerchant("coffee"))
		w.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Expect(w.record(key).MerchantID).NotTo(Equal(published.ID(merchant.UID)))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record := w.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Live(first, w.clock.Now())).To(BeFalse())
	})
})
