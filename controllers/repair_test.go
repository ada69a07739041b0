package controllers

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/audittest"
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
	f.awaitUnusable(refused.ApiKey, v1alpha1.ReasonMerchantClosed)
	expired := aKey("expired", "books").expires(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	f.apply(expired.ApiKey)
	f.awaitUnusable(expired.ApiKey, v1alpha1.ReasonExpired)
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
				g.Expect(got.Revision).To(BeNumerically(">", want.Revision), "the data plane can see which is newer")
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
		f.awaitUnusable(key, v1alpha1.ReasonDisabled)
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

var _ = Describe("A published key restored from a backup", func() {
	It("is not rotated, and gets a revision that nobody has seen vanish", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a"))
		plaintext, record := f.delivered("till-key"), f.record(key)
		f.stop()
		record.Revision -= time.Hour.Milliseconds() // the backup is of a key that was issued an hour ago
		backup, err := published.EncodeKey(f.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.kube.Delete(context.Background(), backup.DeepCopy())).To(Succeed())
		Expect(f.kube.Create(context.Background(), backup)).To(Succeed())

		f.startOperator()
		Eventually(func() int64 { return f.record(key).Revision }).Should(BeNumerically(">=", backup.CreationTimestamp.UnixMilli()))
		restored := f.record(key)
		record.Revision = restored.Revision
		Expect(restored).To(Equal(record))
		Expect(f.live(restored, plaintext)).To(BeTrue())
		Expect(f.delivered("till-key")).To(Equal(plaintext))
	})
})

var _ = Describe("A published key whose label somebody takes and gives back", func() {
	It("gets a newer revision, because replicas revoked the one that vanished, and is not rotated", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		for range 3 { // the operator may be faster, and give the label back itself
			before, secret := f.record(key), f.publishedSecret(key)
			labels := secret.Labels
			secret.Labels = nil
			Expect(f.kube.Update(context.Background(), secret)).To(Succeed())
			secret.Labels = labels
			if err := f.kube.Update(context.Background(), secret); err != nil {
				Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			}
			Eventually(func() int64 { return f.record(key).Revision }).Should(BeNumerically(">", before.Revision))
			after := f.record(key)
			after.Revision = before.Revision
			Expect(after).To(Equal(before))
		}
	})
})

var _ = Describe("A published key of an earlier generation that is put back", func() {
	It("counts as lost: what was revoked stays so, and a new key follows", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		revoked, backup := f.delivered("till-key"), f.publishedSecret(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		f.awaitGeneration(key, 2)
		f.awaitReady(key)
		restored, err := published.DecodeKey(backup)
		Expect(err).NotTo(HaveOccurred())
		f.rewrite(key, func(r *published.KeyRecord) { *r = restored })

		record := f.awaitGeneration(key, 3)
		Expect(f.live(record, revoked)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
		Expect(record.Previous).To(BeEmpty())
	})

	It("counts as lost once the API, which knows a newer one, says so, if no operator has seen it", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		revoked, backup := f.delivered("till-key"), f.publishedSecret(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		newest := f.awaitGeneration(key, 2)
		f.awaitReady(key)
		backup.ResourceVersion, backup.UID, backup.CreationTimestamp = "", "", metav1.Time{}
		f.stop()
		f.delete(f.publishedSecret(key))
		Expect(f.kube.Create(context.Background(), backup)).To(Succeed())
		f.rewrite(key, func(r *published.KeyRecord) { r.Superseded, r.NewerIssued = true, newest.Order().Issued })

		f.startOperator()
		Eventually(func() bool { return f.record(key).Superseded }).Should(BeFalse())
		record := f.record(key)
		f.awaitReady(key)
		Expect(f.live(record, revoked)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
		Expect(record.Order().Compare(newest.Order())).To(BeNumerically(">", 0), "replicas that know the newest one accept it")
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
	})

	It("opens nothing while no new key can take its place", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		revoked, backup := f.delivered("till-key"), f.record(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		newest := f.awaitGeneration(key, 2)
		f.awaitReady(key)
		f.delete(coffee)
		f.awaitGone(coffee)
		f.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		Eventually(func() bool { return f.record(key).Superseded }).Should(BeTrue())
		record := f.record(key)
		Expect(f.live(record, revoked)).To(BeFalse())
		Expect(record.Current.Digest.Equal(backup.Current.Digest)).To(BeFalse(), "whoever reads it")
		Expect(record.Order().Compare(newest.Order())).To(BeNumerically(">", 0), "replicas that know the newest one refuse it too")
		f.awaitAudited(audittest.Line{"change": "superseded", "by": "service", "keyID": published.ID(key.UID), "generation": 2.0})

		f.restart()
		f.merchant(aMerchant("coffee"))
		record = f.awaitGeneration(key, 3)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})

	It("opens nothing, nor does the newest key, once it is disabled, while the name to deliver to is taken", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		backup := f.record(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "leaked" })
		newest := f.awaitGeneration(key, 2)
		f.awaitReady(key)
		f.stop()
		f.delete(f.secret(f.namespace, "till-key"))
		Expect(f.kube.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "till-key"}})).To(Succeed())
		backup.Superseded, backup.NewerIssued = true, newest.Order().Issued // by the API, which knows the newest one
		f.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.startOperator()
		f.awaitStalled(key, v1alpha1.ReasonSecretConflict)
		record := f.record(key)
		Expect(record.State).To(Equal(v1alpha1.ApiKeyDisabled))
		Expect(record.Order().Compare(newest.Order())).To(BeNumerically(">", 0), "what Redis has accepts the newest key for a week")

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		f.delete(f.secret(f.namespace, "till-key"))
		f.poke(key, "apikey")
		Eventually(func() bool { return f.record(key).Superseded }).Should(BeFalse())
		record = f.record(key)
		Expect(record.Accepts(backup.Current.Digest, f.clock.Now())).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})

	It("does not bring back an externally generated key that was replaced over HTTP", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		backup := f.record(key)
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		Eventually(func() int64 { f.read(key); return key.Status.KeyGeneration }).Should(BeEquivalentTo(2))
		f.rewrite(key, func(r *published.KeyRecord) { *r = backup })
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Eventually(func() bool { return f.record(key).Superseded }).Should(BeTrue())
		other := apikey.NewDigest("another key from a vault, of 32 characters")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = other.Hex() })
		Expect(f.awaitGeneration(key, 3).Current.Digest.Equal(other)).To(BeTrue())
	})

	It("that the API found superseded is replaced", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		old := f.delivered("till-key")
		f.rewrite(key, func(r *published.KeyRecord) { r.Superseded = true })
		record := f.awaitGeneration(key, 2)
		Expect(f.live(record, old)).To(BeFalse())
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("A published object of a newer version", func() {
	It("is left as it is and said, and lost for nobody", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee").webhook())
		key := f.key(aKey("till", "coffee"))
		delivered := f.delivered("till-key")
		const newer = `{"version":2,"anything":"else"}`
		change(f, f.publishedSecret(key), func(s *secretObject) { s.Data["record.json"] = []byte(newer) })
		f.awaitStalled(key, v1alpha1.ReasonNewerVersion)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		Eventually(func() int64 { f.read(key); return key.Status.ObservedGeneration }).Should(Equal(key.Generation))
		Expect(f.publishedSecret(key).Data["record.json"]).To(BeEquivalentTo(newer))
		Expect(f.delivered("till-key")).To(Equal(delivered))

		signing := f.secret(f.credentials, published.WebhookName(published.ID(coffee.UID)))
		change(f, signing, func(s *secretObject) { s.Data["webhook.json"] = []byte(newer) })
		f.awaitStalled(coffee, v1alpha1.ReasonNewerVersion)
		Expect(f.secret(f.credentials, signing.Name).Data["webhook.json"]).To(BeEquivalentTo(newer))

		books := f.merchant(aMerchant("books"))
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(books.UID))
		change(f, configMap, func(c *corev1.ConfigMap) { c.Data["merchant.json"] = newer })
		f.awaitStalled(books, v1alpha1.ReasonNewerVersion)
		f.read(configMap)
		Expect(configMap.Data["merchant.json"]).To(Equal(newer))
	})

	It("is revoked by its envelope, and by nothing else of it", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		key, other, ended := f.key(aKey("till", "coffee")), f.key(aKey("other", "coffee")), f.key(aKey("ended", "coffee"))
		later := strings.NewReplacer(`"version":1`, `"version":2`, `"lastRotation":`, `"rotations":[],"lastRotation":7,"was":`)
		for _, k := range []*v1alpha1.ApiKey{key, other, ended} {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte(later.Replace(string(s.Data["record.json"]))) })
			f.awaitStalled(k, v1alpha1.ReasonNewerVersion)
		}
		envelope := func(k *v1alpha1.ApiKey) published.KeyRecord {
			record, err := published.DecodeKeyEnvelope(f.publishedSecret(k))
			Expect(err).NotTo(HaveOccurred())
			return record
		}
		byNewer := published.Revocation{Revoked: true, RevokedBy: 2}
		f.revokeAsNextVersion(ended, byNewer)
		before := envelope(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		Eventually(func() bool { return envelope(key).Revoked }).Should(BeTrue())
		Expect(envelope(key).Revision).To(BeNumerically(">", before.Revision))
		Expect(string(f.publishedSecret(key).Data["record.json"])).To(ContainSubstring(`"rotations":[]`))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		Eventually(func() bool { return envelope(key).Revoked }).Should(BeFalse())
		Expect(envelope(other).Revoked).To(BeFalse())
		for _, state := range []v1alpha1.ApiKeyState{v1alpha1.ApiKeyDisabled, v1alpha1.ApiKeyActive} {
			change(f, ended, func(k *v1alpha1.ApiKey) { k.Spec.State = state })
			f.awaitStalled(ended, v1alpha1.ReasonNewerVersion)
		}
		f.poke(ended, "apikey")
		Expect(envelope(ended).Revocation).To(Equal(byNewer), "only the newer operator knows why")

		narrow := func(permissions []v1alpha1.Permission, addresses ...v1alpha1.IPBlock) {
			change(f, other, func(k *v1alpha1.ApiKey) { k.Spec.Permissions, k.Spec.IPAllowlist = permissions, addresses })
		}
		may := func() published.KeyRestriction {
			record := envelope(other)
			return published.KeyRestriction{Revoked: record.Revoked, Permissions: record.Permissions, IPAllowlist: record.IPAllowlist}
		}
		narrow([]v1alpha1.Permission{"create", "read"}, "203.0.113.0/24")
		narrowed := published.KeyRestriction{Permissions: []v1alpha1.Permission{"create", "read"}, IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24"}}
		Eventually(may).Should(Equal(narrowed))
		narrow([]v1alpha1.Permission{"read", "rotate"})
		narrowed.Permissions = []v1alpha1.Permission{"read"}
		Eventually(may).Should(Equal(narrowed), "it narrows, and leaves it to the newer operator to widen")

		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(coffee.UID))
		laterMerchant := strings.NewReplacer(`"version":1`, `"version":2`, `"rateLimit":`, `"limits":[],"rateLimit":7,"was":`)
		change(f, configMap, func(c *corev1.ConfigMap) { c.Data["merchant.json"] = laterMerchant.Replace(c.Data["merchant.json"]) })
		f.awaitStalled(coffee, v1alpha1.ReasonNewerVersion)
		change(f, coffee, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		Eventually(func() bool {
			f.read(configMap)
			record, err := published.DecodeMerchantEnvelope(configMap)
			Expect(err).NotTo(HaveOccurred())
			return record.Revoked
		}).Should(BeTrue())
		Expect(configMap.Data["merchant.json"]).To(ContainSubstring(`"limits":[]`))
		f.delete(coffee)
		f.awaitGone(coffee)
		Eventually(func() bool { return envelope(key).Revoked && envelope(other).Revoked }).Should(BeTrue())
	})
})

// revokeAsNextVersion revokes a published key as an operator of the next version would, in a record of any version.
func (f *fixture) revokeAsNextVersion(key *v1alpha1.ApiKey, revocation published.Revocation) {
	GinkgoHelper()
	Eventually(func() error { // the operator may write in between
		secret := f.publishedSecret(key)
		var record map[string]any
		Expect(json.Unmarshal(secret.Data["record.json"], &record)).To(Succeed())
		revision, ok := record["revision"].(float64)
		Expect(ok).To(BeTrue())
		record["revision"], record["revoked"], record["revokedBy"] = int64(revision)+1, revocation.Revoked, revocation.RevokedBy
		data, err := json.Marshal(record)
		Expect(err).NotTo(HaveOccurred())
		secret.Data["record.json"] = data
		return f.kube.Update(context.Background(), secret)
	}).Should(Succeed())
}

var _ = Describe("A record of this version that a newer operator revoked", func() {
	It("stays revoked, whatever happens to the ApiKey, until that operator takes it back", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		plaintext := f.delivered("till-key")
		byNewer := published.Revocation{Revoked: true, RevokedBy: 2}
		f.revokeAsNextVersion(key, byNewer)
		f.awaitStalled(key, v1alpha1.ReasonNewerVersion)
		for _, edit := range []func(*v1alpha1.ApiKey){
			func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" },
			func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled },
			func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive },
		} {
			change(f, key, edit)
			f.awaitStalled(key, v1alpha1.ReasonNewerVersion)
		}
		f.restart()
		f.poke(key, "apikey")
		f.awaitStalled(key, v1alpha1.ReasonNewerVersion)
		record := f.record(key)
		Expect(record.Revocation).To(Equal(byNewer))
		Expect(record.Generation).To(BeEquivalentTo(1))
		Expect(f.live(record, plaintext)).To(BeFalse())

		f.revokeAsNextVersion(key, published.Revocation{})
		f.awaitGeneration(key, 2) // the trigger, which waited
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("stays revoked: a Merchant", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(coffee.UID))
		change(f, configMap, func(c *corev1.ConfigMap) {
			c.Data["merchant.json"] = strings.Replace(c.Data["merchant.json"], "{", `{"revoked":true,"revokedBy":2,`, 1)
		})
		f.awaitStalled(coffee, v1alpha1.ReasonNewerVersion)
		change(f, coffee, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		change(f, coffee, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
		f.poke(coffee, "merchant")
		f.awaitStalled(coffee, v1alpha1.ReasonNewerVersion)
		Expect(f.merchantRecord(Default, coffee).Revocation).To(Equal(published.Revocation{Revoked: true, RevokedBy: 2}))
	})
})
