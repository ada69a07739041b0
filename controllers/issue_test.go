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
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		expires := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
		key := w.key(aKey("till", "coffee").trigger("first").expires(expires))

		plaintext := w.delivered("till-key")
		secret := w.secret(w.namespace, "till-key")
		Expect(secret.Data).To(HaveLen(3))
		Expect(secret.Data).To(HaveKeyWithValue("keyID", []byte(plaintext.ID())))
		Expect(secret.Data).To(HaveKeyWithValue("prefix", []byte(plaintext.Prefix())))

		record := w.record(key)
		Expect(record.Current.Digest.Equal(plaintext.Digest())).To(BeTrue(), "the delivered key is the published one")
		Expect(record.KeyID).To(Equal(published.ID(key.UID)))
		Expect(record.MerchantID).To(Equal(published.ID(merchant.UID)))
		Expect(record.Source).To(Equal(published.Source{Namespace: w.namespace, Name: "till", UID: key.UID}))
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
		Eventually(func() []string { return w.events(key) }).Should(ContainElement(ContainSubstring("Normal Rotated:")))
	})

	It("waits for its Merchant and is no error meanwhile", func() {
		w := newWorld()
		key := aKey("till", "coffee").ApiKey
		w.apply(key)
		w.awaitWaiting(key)
		Expect(w.publishedSecret(key)).To(BeNil())
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())

		w.merchant(aMerchant("coffee"))
		w.awaitReady(key)
		Expect(w.record(key).Current.Digest.Equal(w.delivered("till-key").Digest())).To(BeTrue())
	})

	It("never carries the ApiKey's labels and annotations onto its Secrets", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").annotated("argocd.argoproj.io/instance", "shops"))
		delivered := w.secret(w.namespace, "till-key")
		Expect(delivered.Labels).To(Equal(map[string]string{"merchant-operator.io/delivered": "key"}))
		Expect(delivered.Annotations).To(Equal(map[string]string{"merchant-operator.io/generation": "1"}))
		secret := w.publishedSecret(key)
		Expect(secret.Labels).To(Equal(map[string]string{published.Label: published.LabelKey}))
		Expect(secret.Annotations).To(BeEmpty())
	})

	It("made elsewhere is published by its digest and delivered nowhere", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		digest := apikey.DigestOf("a key from a vault, with 32 characters or more")
		key := w.key(aKey("till", "coffee").digest(digest))
		record := w.record(key)
		Expect(record.Current.Digest.Equal(digest)).To(BeTrue())
		Expect(record.Current.Prefix).To(BeEmpty())
		Expect(key.Status.Prefix).To(BeEmpty())
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(1))
		Expect(w.secret(w.namespace, "till-key")).To(BeNil())
	})
})
