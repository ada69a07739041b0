package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// rewrite changes a published record behind the operator's back.
func (w *world) rewrite(key *v1alpha1.ApiKey, edit func(*published.KeyRecord)) {
	GinkgoHelper()
	record := w.record(key)
	edit(&record)
	update, err := published.EncodeKey(w.credentials, record)
	Expect(err).NotTo(HaveOccurred())
	Expect(w.kube.Update(context.Background(), update)).To(Succeed())
}

var _ = Describe("A published key", func() {
	DescribeTable("keeps its digest and gets right again after somebody",
		func(harm func(*world, *v1alpha1.ApiKey)) {
			w := newWorld()
			w.merchant(aMerchant("coffee"))
			key := w.key(aKey("till", "coffee").expires(time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)))
			want := w.record(key)
			harm(w, key)
			Eventually(func(g Gomega) {
				g.Expect(w.publishedSecret(key).Labels).To(HaveKeyWithValue(published.Label, published.LabelKey))
				got := w.record(key)
				g.Expect(got.Revision).To(BeNumerically(">", want.Revision), "the data plane can tell which is newer")
				got.Revision = want.Revision
				g.Expect(got).To(Equal(want))
			}).Should(Succeed())
		},
		Entry("enabled or disabled it", func(w *world, k *v1alpha1.ApiKey) {
			w.rewrite(k, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
		}),
		Entry("let it live on", func(w *world, k *v1alpha1.ApiKey) {
			w.rewrite(k, func(r *published.KeyRecord) { r.ExpiresAt = nil })
		}),
		Entry("renamed its source", func(w *world, k *v1alpha1.ApiKey) {
			w.rewrite(k, func(r *published.KeyRecord) { r.Source.Namespace, r.Source.Name = "other", "other" })
		}),
		Entry("took its label", func(w *world, k *v1alpha1.ApiKey) {
			change(w, w.publishedSecret(k), func(s *secretObject) { s.Labels = nil })
		}),
	)

	It("follows the spec, and its digest stays", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		before := w.record(key)
		expires := metav1.NewTime(time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.State, k.Spec.ExpiresAt = v1alpha1.ApiKeyDisabled, &expires })
		w.awaitReady(key)
		after := w.record(key)
		Expect(after.State).To(Equal(v1alpha1.ApiKeyDisabled))
		Expect(after.ExpiresAt).To(HaveValue(BeTemporally("==", expires.Time)))
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(after.Current).To(Equal(before.Current))
	})

	DescribeTable("whose truth is lost is replaced by a new one of a higher generation, after somebody",
		func(harm func(*world, *v1alpha1.ApiKey), generation int64) {
			w := newWorld()
			w.merchant(aMerchant("coffee"))
			key := w.key(aKey("till", "coffee").overlap(time.Hour))
			old := w.delivered("till-key")
			harm(w, key)
			record := w.awaitGeneration(key, generation)
			fresh := w.delivered("till-key")
			Expect(w.live(record, fresh)).To(BeTrue())
			Expect(w.live(record, old)).To(BeFalse(), "an old key cannot be proven live")
			Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationInitial))
		},
		Entry("deleted it", func(w *world, k *v1alpha1.ApiKey) { w.delete(w.publishedSecret(k)) }, int64(2)),
		Entry("broke its record", func(w *world, k *v1alpha1.ApiKey) {
			change(w, w.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte("{") })
		}, int64(2)),
		Entry("broke a record that tells of a higher generation", func(w *world, k *v1alpha1.ApiKey) {
			change(w, w.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte(`{"version":1,"generation":41}`) })
		}, int64(42)),
		Entry("put a Secret of another type in its place", func(w *world, k *v1alpha1.ApiKey) {
			w.stop()
			secret := w.publishedSecret(k)
			w.delete(secret.DeepCopy())
			Expect(w.kube.Create(context.Background(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels},
				Data:       secret.Data,
			})).To(Succeed())
			w.restart()
		}, int64(2)),
	)

	It("of another ApiKey is never written over", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		w.rewrite(key, func(r *published.KeyRecord) { r.Source.UID = "another" })
		version := w.publishedSecret(key).ResourceVersion
		w.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(w.publishedSecret(key).ResourceVersion).To(Equal(version))
		w.delete(key)
		w.awaitGone(key)
		Eventually(func() *corev1.Secret { return w.publishedSecret(key) }).Should(BeNil(), "nobody answers for it any more")
	})
})
