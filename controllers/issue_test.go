package controllers

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("A new key", func() {
	It("is delivered to the tenant, and its digest to the data plane", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		expires := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
		key := f.key(aKey("till", "coffee").trigger("first").expires(expires))

		plaintext := f.delivered("till-key")
		secret := f.secret(f.namespace, "till-key")
		Expect(secret.Data).To(HaveLen(3))
		Expect(secret.Data).To(HaveKeyWithValue("keyID", []byte(plaintext.ID())))
		Expect(secret.Data).To(HaveKeyWithValue("prefix", []byte(plaintext.Prefix())))

		record := f.record(key)
		Expect(record.Current.Digest.Equal(plaintext.Digest())).To(BeTrue(), "the delivered key is the published one")
		Expect(record.KeyID).To(Equal(published.ID(key.UID)))
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Source).To(Equal(published.Source{Namespace: f.namespace, Name: "till", UID: key.UID}))
		Expect(record.Generation).To(BeEquivalentTo(1))
		Expect(record.Previous).To(BeEmpty())
		Expect(record.ExpiresAt).To(HaveValue(BeTemporally("==", expires)))
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(record.HandledTrigger).To(Equal("first"), "the first trigger is handled by the first issue")

		Expect(key.Status.KeyID).To(Equal(record.KeyID))
		Expect(key.Status.Prefix).To(Equal(plaintext.Prefix()))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(key.Status.ObservedTrigger).To(Equal("first"))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(key.Status.NextRotationTime).To(BeNil())
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Normal Rotated: Issued key (generation 1, cause Initial)")))
	})

	It("waits for its Merchant and is no error meanwhile", func() {
		f := newFixture()
		key := aKey("till", "coffee").ApiKey
		f.apply(key)
		f.awaitWaiting(key)
		Expect(f.publishedSecret(key)).To(BeNil())
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())

		f.merchant(aMerchant("coffee"))
		f.awaitReady(key)
		Expect(f.record(key).Current.Digest.Equal(f.delivered("till-key").Digest())).To(BeTrue())
	})

	It("never carries the ApiKey's labels and annotations onto its Secrets", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").annotated("argocd.argoproj.io/instance", "shops"))
		delivered := f.secret(f.namespace, "till-key")
		Expect(delivered.Labels).To(Equal(map[string]string{"merchant-operator.io/delivered": "key"}))
		Expect(delivered.Annotations).To(Equal(map[string]string{"merchant-operator.io/generation": "1"}))
		secret := f.publishedSecret(key)
		Expect(secret.Labels).To(Equal(map[string]string{published.Label: published.LabelKey}))
		Expect(secret.Annotations).To(BeEmpty())
	})

	It("that is externally generated is published by its digest and delivered nowhere", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		digest := apikey.DigestOf("a key from a vault, with 32 characters or more")
		key := f.key(aKey("till", "coffee").digest(digest))
		record := f.record(key)
		Expect(record.Current.Digest.Equal(digest)).To(BeTrue())
		Expect(record.Current.Prefix).To(BeEmpty())
		Expect(key.Status.Prefix).To(BeEmpty())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(f.secret(f.namespace, "till-key")).To(BeNil())
	})
})

var _ = Describe("A key whose Merchant goes", func() {
	It("waits, and nothing of it is forgotten", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		record := f.record(key)
		f.delete(merchant)
		f.awaitWaiting(key)
		f.awaitGone(merchant)
		Expect(f.configMap(merchant)).To(BeNil(), "without it the data plane refuses the key")
		disabled := f.record(key)
		Expect(disabled.State).To(Equal(v1alpha1.ApiKeyDisabled), "replicas that do not hear of the Merchant hear of the key")
		Expect(disabled.Revision).To(BeNumerically(">", record.Revision))
		disabled.State, disabled.Revision = record.State, record.Revision
		Expect(disabled).To(Equal(record))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
	})

	It("does not charge for another Merchant of the same name", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		old := f.delivered("till-key")
		f.delete(merchant)
		f.awaitGone(merchant)
		merchant = f.merchant(aMerchant("coffee"))
		record := f.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(f.live(record, old)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("An externally generated key", func() {
	first := apikey.DigestOf("the first key from a vault, 32 or more")
	second := apikey.DigestOf("the second key from a vault, 32 or more")

	It("is replaced by a changed digest, with the overlap", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first).trigger("a").overlap(time.Hour))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest, k.Spec.Rotation.Trigger = second.Hex(), "b" })
		record := f.awaitGeneration(key, 2)
		Expect(record.Live(second, f.clock.Now())).To(BeTrue())
		Expect(record.Live(first, f.clock.Now())).To(BeTrue())
		Expect(record.HandledTrigger).To(Equal("b"), "both changes are one rotation")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
	})

	It("is not replaced by a changed trigger, which says so", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitReady(key)
		Expect(key.Status.ObservedTrigger).To(Equal("b"))
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
		Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring("Warning TriggerIgnored:")))
	})

	It("stays replaced by a rotation over HTTP", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		fresh := f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		f.poke(key, "apikey")
		record := f.record(key)
		Expect(f.live(record, fresh)).To(BeTrue())
		Expect(record.Live(first, f.clock.Now())).To(BeFalse())
	})

	It("changes to one generated here and back, each by one rotation", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "" })
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record = f.awaitGeneration(key, 3)
		Expect(record.Live(second, f.clock.Now())).To(BeTrue())
		Expect(key.Status.Prefix).To(BeEmpty())
		f.awaitNoSecret("till-key")
	})

	It("is not accepted for another Merchant of the same name until it is changed", func() {
		f := newFixture()
		former := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(first))
		f.delete(former)
		f.awaitGone(former)
		merchant := f.merchant(aMerchant("coffee"))
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Expect(f.record(key).MerchantID).NotTo(Equal(published.ID(merchant.UID)))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = second.Hex() })
		record := f.awaitGeneration(key, 2)
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Live(first, f.clock.Now())).To(BeFalse())
	})
})
