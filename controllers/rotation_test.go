package controllers

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// awaitGeneration waits until a generation of the key is in force and reported, and returns its record.
func (w *world) awaitGeneration(key *v1alpha1.ApiKey, generation int64) published.KeyRecord {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w.read(key)
		g.Expect(key.Status.KeyGeneration).To(Equal(generation))
	}).Should(Succeed())
	w.awaitReady(key)
	record := w.record(key)
	Expect(record.Generation).To(Equal(generation))
	return record
}

// live reports whether the data plane accepts a key.
func (w *world) live(record published.KeyRecord, key apikey.Key) bool {
	return record.Live(key.Digest(), w.clock.Now())
}

var _ = Describe("A rotation by trigger", func() {
	It("delivers a new key and lets the old one go on for the overlap", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a").overlap(time.Hour))
		old := w.delivered("till-key")

		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := w.awaitGeneration(key, 2)
		fresh := w.delivered("till-key")
		Expect(fresh.Digest().Equal(old.Digest())).To(BeFalse())
		Expect(fresh.ID()).To(Equal(old.ID()), "the key id stays")
		Expect(w.live(record, fresh)).To(BeTrue())
		Expect(w.live(record, old)).To(BeTrue())
		w.clock.advance(time.Hour)
		Expect(w.live(record, old)).To(BeFalse())
		Expect(w.live(record, fresh)).To(BeTrue())
		Expect(key.Status.ObservedTrigger).To(Equal("b"))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(w.secret(w.namespace, "till-key").Annotations).To(HaveKeyWithValue("merchant-operator.io/generation", "2"))
	})

	It("without an overlap ends the old key at once", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(0))
		old := w.delivered("till-key")
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := w.awaitGeneration(key, 2)
		Expect(w.live(record, old)).To(BeFalse())
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
	})

	It("keeps what a tenant's tools put on the delivered Secret", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		change(w, w.secret(w.namespace, "till-key"), func(s *secretObject) {
			s.Annotations["replicator.example/to"] = "acme"
		})
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		w.awaitGeneration(key, 2)
		Expect(w.secret(w.namespace, "till-key").Annotations).To(HaveKeyWithValue("replicator.example/to", "acme"))
	})

	It("waits while its Merchant is away, and the old key is kept", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		w.delete(merchant)
		w.awaitGone(merchant)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		w.awaitWaiting(key)
		Expect(w.record(key).Generation).To(BeEquivalentTo(1))
	})
})

var _ = Describe("A rotation over HTTP", func() {
	It("shows up in the status and removes the stale delivery", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a"))
		fresh := w.rotateOverHTTP(key)
		record := w.awaitGeneration(key, 2)
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationAPI))
		Expect(key.Status.Prefix).To(Equal(fresh.Prefix()))
		Expect(w.live(record, fresh)).To(BeTrue())
		Eventually(func() any { return w.secret(w.namespace, "till-key") }).Should(BeNil())
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("StaleDeliveryRemoved")))
	})

	It("is found by an operator that was away, and the way back is the trigger", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a").overlap(0))
		w.stop()
		fresh := w.rotateOverHTTP(key)
		w.restart()
		w.awaitGeneration(key, 2)
		Eventually(func() any { return w.secret(w.namespace, "till-key") }).Should(BeNil())

		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := w.awaitGeneration(key, 3)
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
		Expect(w.live(record, fresh)).To(BeFalse())
	})
})

var _ = Describe("A rotation by schedule", func() {
	It("comes once after a downtime of many intervals, never earlier than nine tenths of one", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").every(300 * time.Second).overlap(time.Hour))
		old := w.delivered("till-key")
		next, issued := key.Status.NextRotationTime.Time, key.Status.LastRotation.Time.Time
		Expect(next).To(BeTemporally(">=", issued.Add(270*time.Second)))
		Expect(next).To(BeTemporally("<=", issued.Add(300*time.Second)))

		w.clock.advance(3000 * time.Second)
		w.poke(key, "apikey")
		record := w.awaitGeneration(key, 2)
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationSchedule))
		Expect(key.Status.NextRotationTime.Time).To(BeTemporally(">", w.clock.Now()))
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
		Expect(w.live(record, old)).To(BeTrue(), "the schedule overlaps")
		w.poke(key, "apikey")
		Expect(w.record(key).Generation).To(BeEquivalentTo(2))
	})
})
