package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// versions are the resource versions of everything in both namespaces but events.
func (f *fixture) versions() map[string]string {
	GinkgoHelper()
	f.waitForLastUses()
	versions := map[string]string{}
	for _, namespace := range []string{f.namespace, f.credentials} {
		for kind, list := range map[string]client.ObjectList{
			"Merchant": &v1alpha1.MerchantList{}, "ApiKey": &v1alpha1.ApiKeyList{},
			"Secret": &corev1.SecretList{}, "ConfigMap": &corev1.ConfigMapList{},
		} {
			Expect(f.kube.List(context.Background(), list, client.InNamespace(namespace))).To(Succeed())
			Expect(meta.EachListItem(list, func(object runtime.Object) error {
				o := object.(client.Object)
				versions[kind+" "+namespace+"/"+o.GetName()] = o.GetResourceVersion()
				return nil
			})).To(Succeed())
		}
	}
	return versions
}

// waitForLastUses waits until the operator has created the last of its own ConfigMaps, which it does beside all else.
func (f *fixture) waitForLastUses() {
	GinkgoHelper()
	last := client.ObjectKey{Namespace: f.credentials, Name: published.LastUseName(published.LastUseShards - 1)}
	Eventually(func() error { return f.kube.Get(context.Background(), last, &corev1.ConfigMap{}) }).Should(Succeed())
}

// population applies objects of every sort and returns the ApiKeys.
func (f *fixture) population() []*v1alpha1.ApiKey {
	GinkgoHelper()
	f.merchant(aMerchant("coffee").webhook(func(h *v1alpha1.Webhook) { h.RotationTrigger = "a" }))
	f.merchant(aMerchant("books"))
	f.merchant(aMerchant("closed").state(v1alpha1.MerchantClosed))
	waiting := aKey("waiting", "nobody")
	f.apply(waiting.ApiKey)
	f.awaitWaiting(waiting.ApiKey)
	refused := aKey("refused", "closed")
	f.apply(refused.ApiKey)
	f.awaitStalled(refused.ApiKey, v1alpha1.ReasonMerchantClosed)
	expired := aKey("expired", "books").expires(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	f.apply(expired.ApiKey)
	f.awaitStalled(expired.ApiKey, v1alpha1.ReasonExpired)
	return []*v1alpha1.ApiKey{
		f.key(aKey("till", "coffee").trigger("a")),
		f.key(aKey("web", "books").deliveredAs("elsewhere").every(300e9)),
		f.key(aKey("vault", "books").digest(f.delivered("elsewhere").Digest())),
		waiting.ApiKey, refused.ApiKey, expired.ApiKey,
	}
}

var _ = Describe("Steady state", func() {
	It("writes nothing in a second pass", func() {
		f := newFixture()
		keys := f.population()
		for _, key := range keys {
			f.poke(key, "apikey")
		}
		merchant := aMerchant("coffee").Merchant
		merchant.Namespace = f.namespace
		f.poke(merchant, "merchant")
		before := f.versions()
		f.poke(merchant, "merchant")
		name := "ConfigMap " + f.credentials + "/" + published.MerchantName(published.ID(merchant.UID))
		before[name] = f.versions()[name]
		for _, key := range keys {
			if f.publishedSecret(key) != nil {
				pokedOnly(f, key, before)
			}
		}
	})

	It("is not changed by another operator", func() {
		f := newFixture()
		keys := f.population()
		before := f.versions()
		f.stop()
		seen, seenMerchants := passes("apikey"), passes("merchant")
		f.startOperator()
		Eventually(func() int { return passes("apikey") }).Should(BeNumerically(">=", seen+len(keys)))
		Eventually(func() int { return passes("merchant") }).Should(BeNumerically(">=", seenMerchants+2))
		Expect(f.versions()).To(Equal(before))
	})

	It("is not changed by a lost status, which is rebuilt", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a"))
		before, status := f.versions(), key.Status.DeepCopy()
		Expect(f.kube.Status().Patch(context.Background(), key, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status"}]`)))).To(Succeed())
		Eventually(func(g Gomega) {
			f.read(key)
			for i := range key.Status.Conditions { // a lost time cannot come back
				key.Status.Conditions[i].LastTransitionTime = status.Conditions[i].LastTransitionTime
			}
			g.Expect(&key.Status).To(Equal(status))
		}).Should(Succeed())
		after := f.versions()
		delete(before, "ApiKey "+f.namespace+"/till")
		delete(after, "ApiKey "+f.namespace+"/till")
		Expect(after).To(Equal(before))
	})
})

// pokedOnly pokes a key and expects that nothing was written but the poke.
func pokedOnly(f *fixture, key *v1alpha1.ApiKey, before map[string]string) {
	GinkgoHelper()
	f.poke(key, "apikey")
	secret := f.publishedSecret(key)
	before["Secret "+f.credentials+"/"+secret.Name] = secret.ResourceVersion
	Expect(f.versions()).To(Equal(before))
}

// rewrite changes a published record behind the operator's back.
func (f *fixture) rewrite(key *v1alpha1.ApiKey, edit func(*published.KeyRecord)) {
	GinkgoHelper()
	record := f.record(key)
	edit(&record)
	update, err := published.EncodeKey(f.credentials, record)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.kube.Update(context.Background(), update)).To(Succeed())
}

var _ = Describe("A published key", func() {
	DescribeTable("keeps its digest and gets right again after somebody",
		func(harm func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee").expires(time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)))
			want := f.record(key)
			harm(f, key)
			Eventually(func(g Gomega) {
				g.Expect(f.publishedSecret(key).Labels).To(HaveKeyWithValue(published.Label, published.LabelKey))
				got := f.record(key)
				g.Expect(got.Revision).To(BeNumerically(">", want.Revision), "the data plane can tell which is newer")
				got.Revision = want.Revision
				g.Expect(got).To(Equal(want))
			}).Should(Succeed())
		},
		Entry("enabled or disabled it", func(f *fixture, k *v1alpha1.ApiKey) {
			f.rewrite(k, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
		}),
		Entry("let it live on", func(f *fixture, k *v1alpha1.ApiKey) {
			f.rewrite(k, func(r *published.KeyRecord) { r.ExpiresAt = nil })
		}),
		Entry("renamed its source", func(f *fixture, k *v1alpha1.ApiKey) {
			f.rewrite(k, func(r *published.KeyRecord) { r.Source.Namespace, r.Source.Name = "other", "other" })
		}),
		Entry("took its label", func(f *fixture, k *v1alpha1.ApiKey) {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Labels = nil })
		}),
	)

	It("follows the spec, and its digest stays", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		before := f.record(key)
		expires := metav1.NewTime(time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State, k.Spec.ExpiresAt = v1alpha1.ApiKeyDisabled, &expires })
		f.awaitStalled(key, v1alpha1.ReasonDisabled)
		after := f.record(key)
		Expect(after.State).To(Equal(v1alpha1.ApiKeyDisabled))
		Expect(after.ExpiresAt).To(HaveValue(BeTemporally("==", expires.Time)))
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(after.Current).To(Equal(before.Current))
	})

	DescribeTable("whose truth is lost is replaced by a new one of a higher generation, after somebody",
		func(harm func(*fixture, *v1alpha1.ApiKey), generation int64) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee").overlap(time.Hour))
			old := f.delivered("till-key")
			harm(f, key)
			record := f.awaitGeneration(key, generation)
			fresh := f.delivered("till-key")
			Expect(f.live(record, fresh)).To(BeTrue())
			Expect(f.live(record, old)).To(BeFalse(), "an old key cannot be proven live")
			Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
		},
		Entry("deleted it", func(f *fixture, k *v1alpha1.ApiKey) { f.delete(f.publishedSecret(k)) }, int64(2)),
		Entry("broke its record", func(f *fixture, k *v1alpha1.ApiKey) {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte("{") })
		}, int64(2)),
		Entry("broke a record that has a higher generation", func(f *fixture, k *v1alpha1.ApiKey) {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte(`{"version":1,"generation":41}`) })
		}, int64(42)),
		Entry("put a Secret of another type in its place", func(f *fixture, k *v1alpha1.ApiKey) {
			f.stop()
			secret := f.publishedSecret(k)
			f.delete(secret.DeepCopy())
			Expect(f.kube.Create(context.Background(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels},
				Data:       secret.Data,
			})).To(Succeed())
			f.restart()
		}, int64(2)),
	)

	It("of another ApiKey is never written over", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.rewrite(key, func(r *published.KeyRecord) { r.Source.UID = "another" })
		version := f.publishedSecret(key).ResourceVersion
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		Expect(f.publishedSecret(key).ResourceVersion).To(Equal(version))
		f.delete(key)
		f.awaitGone(key)
		Eventually(func() *corev1.Secret { return f.publishedSecret(key) }).Should(BeNil(), "nobody answers for it any more")
	})
})
