package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("A published key restored from a backup", func() {
	It("is not rotated, and gets a revision that nobody has seen vanish", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a"))
		plaintext, record := w.delivered("till-key"), w.record(key)
		w.stop()
		record.Revision -= time.Hour.Milliseconds() // the backup is of a key that was issued an hour ago
		backup, err := published.EncodeKey(w.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.kube.Delete(context.Background(), backup.DeepCopy())).To(Succeed())
		Expect(w.kube.Create(context.Background(), backup)).To(Succeed())

		w.startOperator()
		Eventually(func() int64 { return w.record(key).Revision }).Should(BeNumerically(">=", backup.CreationTimestamp.UnixMilli()))
		restored := w.record(key)
		record.Revision = restored.Revision
		Expect(restored).To(Equal(record))
		Expect(w.live(restored, plaintext)).To(BeTrue())
		Expect(w.delivered("till-key")).To(Equal(plaintext))
	})
})

var _ = Describe("A published key of an earlier generation that is put back", func() {
	It("counts as lost: what was revoked stays so, and a new key follows", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(0))
		revoked, backup := w.delivered("till-key"), w.publishedSecret(key)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		w.awaitGeneration(key, 2)
		w.awaitReady(key)
		backup.ResourceVersion, backup.UID, backup.CreationTimestamp = "", "", metav1.Time{}
		w.stop()
		w.delete(w.publishedSecret(key))
		Expect(w.kube.Create(context.Background(), backup)).To(Succeed())

		w.startOperator()
		record := w.awaitGeneration(key, 3)
		Expect(w.live(record, revoked)).To(BeFalse())
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		Expect(record.Previous).To(BeEmpty())
	})

	It("opens nothing while no new key can take its place", func() {
		w := newWorld()
		coffee := w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").overlap(0))
		revoked, backup := w.delivered("till-key"), w.record(key)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		w.awaitGeneration(key, 2)
		w.awaitReady(key)
		w.delete(coffee)
		w.awaitGone(coffee)
		w.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		Eventually(func() bool { return w.record(key).Superseded }).Should(BeTrue())
		Expect(w.live(w.record(key), revoked)).To(BeFalse())
	})

	It("does not bring back an externally generated key that was replaced over HTTP", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").digest(vaultDigest))
		backup := w.record(key)
		w.rotateOverHTTP(key)
		w.awaitGeneration(key, 2)
		Eventually(func() int64 { w.read(key); return key.Status.KeyGeneration }).Should(BeEquivalentTo(2))
		w.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		w.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Eventually(func() bool { return w.record(key).Superseded }).Should(BeTrue())
		other := apikey.DigestOf("another key from a vault, of 32 characters")
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = other.Hex() })
		Expect(w.awaitGeneration(key, 3).Current.Digest.Equal(other)).To(BeTrue())
	})

	It("that the API found superseded is replaced", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		old := w.delivered("till-key")
		w.rewrite(key, func(r *published.KeyRecord) { r.Superseded = true })
		record := w.awaitGeneration(key, 2)
		Expect(w.live(record, old)).To(BeFalse())
		Expect(w.live(record, w.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("A published object of a newer version", func() {
	It("is left as it is and said, and lost for nobody", func() {
		w := newWorld()
		coffee := w.merchant(aMerchant("coffee").webhook())
		key := w.key(aKey("till", "coffee"))
		delivered := w.delivered("till-key")
		const newer = `{"version":2,"anything":"else"}`
		change(w, w.publishedSecret(key), func(s *secretObject) { s.Data["record.json"] = []byte(newer) })
		w.awaitStalled(key, v1alpha1.ReasonNewerVersion)
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		Eventually(func() int64 { w.read(key); return key.Status.ObservedGeneration }).Should(Equal(key.Generation))
		Expect(w.publishedSecret(key).Data["record.json"]).To(BeEquivalentTo(newer))
		Expect(w.delivered("till-key")).To(Equal(delivered))

		signing := w.secret(w.credentials, published.WebhookName(published.ID(coffee.UID)))
		change(w, signing, func(s *secretObject) { s.Data["webhook.json"] = []byte(newer) })
		w.awaitStalled(coffee, v1alpha1.ReasonNewerVersion)
		Expect(w.secret(w.credentials, signing.Name).Data["webhook.json"]).To(BeEquivalentTo(newer))

		books := w.merchant(aMerchant("books"))
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = w.credentials, published.MerchantName(published.ID(books.UID))
		change(w, configMap, func(c *corev1.ConfigMap) { c.Data["merchant.json"] = newer })
		w.awaitStalled(books, v1alpha1.ReasonNewerVersion)
		w.read(configMap)
		Expect(configMap.Data["merchant.json"]).To(Equal(newer))
	})
})
