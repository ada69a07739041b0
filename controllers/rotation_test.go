package controllers

import (
	"context"
	"fmt"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// awaitGeneration waits until a generation of the key is in force and reported, and returns its record.
func (f *fixture) awaitGeneration(key *v1alpha1.ApiKey, generation int64) published.KeyRecord {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(key)
		g.Expect(key.Status.KeyGeneration).To(Equal(generation))
	}).Should(Succeed())
	f.awaitReady(key)
	record := f.record(key)
	Expect(record.Generation).To(Equal(generation))
	return record
}

// live reports whether the data plane accepts a key.
func (f *fixture) live(record published.KeyRecord, key apikey.Key) bool {
	return record.Accepts(key.Digest(), f.clock.Now())
}

var _ = Describe("A rotation by trigger", func() {
	It("delivers a new key and lets the old one go on for the overlap", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a").overlap(time.Hour))
		old := f.delivered("till-key")

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := f.awaitGeneration(key, 2)
		fresh := f.delivered("till-key")
		Expect(fresh.Digest().Equal(old.Digest())).To(BeFalse())
		Expect(fresh.ID()).To(Equal(old.ID()), "the key id stays")
		Expect(f.live(record, fresh)).To(BeTrue())
		Expect(f.live(record, old)).To(BeTrue())
		f.clock.advance(time.Hour)
		Expect(f.live(record, old)).To(BeFalse())
		Expect(f.live(record, fresh)).To(BeTrue())
		Expect(key.Status.ObservedTrigger).To(Equal("b"))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(f.secret(f.namespace, "till-key").Annotations).To(HaveKeyWithValue("merchant-operator.io/generation", "2"))
	})

	It("without an overlap ends the old key at once", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		old := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, old)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})

	It("keeps what a tenant's tools put on the delivered Secret", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) {
			s.Annotations["replicator.example/to"] = "acme"
		})
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		Expect(f.secret(f.namespace, "till-key").Annotations).To(HaveKeyWithValue("replicator.example/to", "acme"))
	})

	It("waits while its Merchant is away, and the old key is kept", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.delete(merchant)
		f.awaitGone(merchant)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitWaiting(key)
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
	})
})

var _ = Describe("A trigger that is changed without end", func() {
	It("rotates ten times, then once a minute, and the key can be disabled at any time", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		triggered := func(trigger string) {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = trigger })
		}
		for n := range 10 { // a routine rotation, and emergencies
			triggered(fmt.Sprint("at once ", n))
			f.awaitGeneration(key, int64(n+2))
		}
		plaintext, record := f.delivered("till-key"), f.record(key)
		for n := range 20 {
			triggered(fmt.Sprint("in a loop ", n))
			f.poke(key, "apikey")
		}
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonRotationDeferred)
		Expect(readyMessage(key)).To(ContainSubstring(record.TriggerTAT.Add(-9 * time.Minute).Format(time.RFC3339)))
		Expect(f.record(key)).To(Equal(record), "no key is issued, and nothing is published")
		Expect(f.delivered("till-key")).To(Equal(plaintext))
		Expect(key.Status.ObservedTrigger).To(Equal("at once 9"))

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		Eventually(func() *metav1.Condition { f.read(key); return condition(key, v1alpha1.UsableCondition) }).
			Should(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1alpha1.ReasonDisabled)))
		Expect(f.live(f.record(key), plaintext)).To(BeFalse())
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonRotationDeferred)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonRotationDeferred)

		f.clock.advance(time.Minute)
		f.poke(key, "apikey")
		rotated := f.awaitGeneration(key, 12)
		Expect(rotated.HandledTrigger).To(Equal("in a loop 19"))
		Expect(f.live(rotated, f.delivered("till-key"))).To(BeTrue())
	})

	It("does not use up the claims of an ApiKey, if it is spec.keyDigest", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		set := func(text string) apikey.Digest {
			GinkgoHelper()
			digest := apikey.NewDigest(text + ", of 32 characters or more than that")
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = digest.Hex() })
			return digest
		}
		for n := range 10 {
			set(fmt.Sprint("at once ", n))
			f.awaitGeneration(key, int64(n+2))
		}
		for n := range 32 {
			digest := set(fmt.Sprint("in a loop ", n))
			f.poke(key, "apikey")
			Expect(f.claim(digest)).To(BeNil(), "it is not published")
		}
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonRotationDeferred)
		last := set("the last one")
		f.clock.advance(time.Minute)
		f.poke(key, "apikey")
		Expect(f.awaitGeneration(key, 12).Current.Digest.Equal(last)).To(BeTrue())
		Expect(f.claim(last).Source.UID).To(Equal(key.UID))
	})

	It("is remembered in the credentials namespace alone, also by the next operator", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		for n := range 10 {
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = fmt.Sprint(n) })
			f.awaitGeneration(key, int64(n+2))
		}
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 12)
		f.stop()
		f.forgeStatus(key, map[string]any{"lastRotation": nil, "observedTrigger": "", "keyGeneration": 1})
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "more" })
		f.startOperator()
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonRotationDeferred)
		Expect(f.record(key).Generation).To(BeEquivalentTo(12))
	})
})

var _ = Describe("A rotation over HTTP", func() {
	It("shows up in the status and removes the stale delivery", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a"))
		fresh := f.rotateOverHTTP(key)
		record := f.awaitGeneration(key, 2)
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationAPI))
		Expect(key.Status.Prefix).To(Equal(fresh.Prefix()))
		Expect(f.live(record, fresh)).To(BeTrue())
		Eventually(func() any { return f.secret(f.namespace, "till-key") }).Should(BeNil())
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("StaleDeliveryRemoved: Deleted Secret till-key: its key was replaced through the API (generation 2)")))
	})

	It("is found by an operator that was away, and the way back is the trigger", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a").overlap(0))
		f.stop()
		fresh := f.rotateOverHTTP(key)
		f.restart()
		f.awaitGeneration(key, 2)
		Eventually(func() any { return f.secret(f.namespace, "till-key") }).Should(BeNil())

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		record := f.awaitGeneration(key, 3)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		Expect(f.live(record, fresh)).To(BeFalse())
	})
})

var _ = Describe("A rotation by schedule", func() {
	It("comes once after a downtime of many intervals, never earlier than nine tenths of one", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").every(300 * time.Second))
		old := f.delivered("till-key")
		next, issued := key.Status.NextRotationTime.Time, key.Status.LastRotation.Time.Time
		Expect(next).To(BeTemporally(">=", issued.Add(270*time.Second)))
		Expect(next).To(BeTemporally("<=", issued.Add(300*time.Second)))

		f.clock.advance(3000 * time.Second)
		f.poke(key, "apikey")
		record := f.awaitGeneration(key, 2)
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationSchedule))
		Expect(key.Status.NextRotationTime.Time).To(BeTemporally(">", f.clock.Now()))
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		Expect(f.live(record, old)).To(BeTrue(), "the schedule overlaps")
		f.poke(key, "apikey")
		Expect(f.record(key).Generation).To(BeEquivalentTo(2))
	})
})

var _ = Describe("Permissions and addresses of a key", func() {
	It("survive rotations, the move of its Secret, the loss of its record, and a backup of before they were narrowed", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		narrow := aKey("till", "coffee").every(300 * time.Second).overlap(0)
		narrow.Spec.Permissions, narrow.Spec.IPAllowlist = v1alpha1.TillPermissions(), []v1alpha1.IPBlock{"203.0.113.0/24"}
		key := f.key(narrow)
		backup := f.record(key)
		backup.Permissions, backup.IPAllowlist = nil, nil
		kept := func(when string) {
			GinkgoHelper()
			record := f.record(key)
			Expect(record.Permissions).To(Equal(v1alpha1.TillPermissions()), when)
			Expect(record.IPAllowlist).To(Equal([]v1alpha1.IPBlock{"203.0.113.0/24"}), when)
		}
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		kept("after a trigger")
		f.clock.advance(3000 * time.Second)
		f.poke(key, "apikey")
		f.awaitGeneration(key, 3)
		kept("after a schedule")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
		f.awaitReady(key)
		f.awaitNoSecret("till-key")
		kept("after a move")
		Expect(f.kube.Delete(context.Background(), f.publishedSecret(key))).To(Succeed())
		f.awaitGeneration(key, 4)
		kept("after the loss of the record")
		f.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		f.awaitGeneration(key, 5)
		kept("after a restored backup")
	})
})
