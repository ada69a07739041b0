package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
)

// plant creates a Secret that its tenant made look like one of the ApiKey's.
func (f *fixture) plant(key *v1alpha1.ApiKey, name, generation string, edits ...func(*corev1.Secret)) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: name,
		Labels:          map[string]string{"merchant-operator.io/delivered": "key"},
		Annotations:     map[string]string{apikeys.GenerationAnnotation: generation},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(key, v1alpha1.SchemeGroupVersion.WithKind("ApiKey"))},
	}}
	for _, edit := range edits {
		edit(secret)
	}
	Expect(f.kube.Create(context.Background(), secret)).To(Succeed())
}

// forgeStatus writes into the status of an ApiKey, as its tenant may.
func (f *fixture) forgeStatus(key *v1alpha1.ApiKey, status map[string]any) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"status": status})
	Expect(err).NotTo(HaveOccurred())
	Expect(f.kube.Status().Patch(context.Background(), key, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// refusingUpdates lets no Secret of a tenant's namespace be updated, as an admission policy can.
func refusingUpdates() interceptor.Funcs {
	return interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if _, isSecret := object.(*corev1.Secret); isSecret && strings.HasPrefix(object.GetNamespace(), "shops-") {
				return errCrash
			}
			return c.Update(ctx, object, options...)
		},
	}
}

// refusingSecrets refuses every new Secret of a tenant's namespace as invalid, as an admission policy without a reason does.
func refusingSecrets() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, isSecret := object.(*corev1.Secret); isSecret && strings.HasPrefix(object.GetNamespace(), "shops-") {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, object.GetName(), field.ErrorList{
					field.Forbidden(field.NewPath("data"), "no Secret without an owner label"),
				})
			}
			return c.Create(ctx, object, options...)
		},
	}
}

var _ = Describe("An ApiKey that is disabled while nothing can be issued", func() {
	const last = 1<<53 - 1
	DescribeTable("is disabled: its tenant",
		func(hinder func(*fixture, *v1alpha1.ApiKey), trigger string) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee").overlap(0))
			plaintext := f.delivered("till-key")
			f.stop() // so that all is there at once
			hinder(f, key)
			change(f, key, func(k *v1alpha1.ApiKey) {
				k.Spec.State = v1alpha1.ApiKeyDisabled
				if trigger != "" {
					k.Spec.Rotation.Trigger = trigger
				}
			})
			f.startOperator()
			Eventually(func() v1alpha1.ApiKeyState { return f.record(key).State }).Should(Equal(v1alpha1.ApiKeyDisabled))
			Consistently(func() bool { return f.live(f.record(key), plaintext) }, 300*time.Millisecond).Should(BeFalse())
		},
		Entry("made the delivered Secret immutable", func(f *fixture, _ *v1alpha1.ApiKey) {
			change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Immutable = new(true) })
		}, "b"),
		Entry("made the delivered Secret one of another type", func(f *fixture, key *v1alpha1.ApiKey) {
			f.delete(f.secret(f.namespace, "till-key"))
			f.plant(key, "till-key", "1", func(s *corev1.Secret) { s.Type = "example.com/other" })
		}, "b"),
		Entry("planted a Secret of the last generation", func(f *fixture, key *v1alpha1.ApiKey) {
			f.plant(key, "planted", fmt.Sprint(last))
		}, "b"),
		Entry("wrote a generation into the status", func(f *fixture, key *v1alpha1.ApiKey) {
			f.forgeStatus(key, map[string]any{"keyGeneration": last + 1})
		}, ""),
		Entry("wrote a last rotation of 9999 into the status", func(f *fixture, key *v1alpha1.ApiKey) {
			f.forgeStatus(key, map[string]any{
				"keyGeneration": 9, "lastRotation": map[string]any{"time": "9999-12-31T23:59:59Z", "cause": "API"},
			})
		}, "b"),
		Entry("has no quota left", func(f *fixture, _ *v1alpha1.ApiKey) {
			f.delete(f.secret(f.namespace, "till-key"))
			Expect(f.kube.Create(context.Background(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "none"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}},
			})).To(Succeed())
		}, "b"),
		Entry("holds the delivered Secret by a finalizer", func(f *fixture, _ *v1alpha1.ApiKey) {
			change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Finalizers = []string{"example.com/hold"} })
			f.delete(f.secret(f.namespace, "till-key"))
			DeferCleanup(func() { change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Finalizers = nil }) })
		}, "b"),
	)

	It("is disabled while an admission policy refuses every Secret, and while a rotation is due", func() {
		f := newFixture(refusingUpdates())
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").every(300 * time.Second))
		f.clock.advance(300 * time.Second)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		Eventually(func() v1alpha1.ApiKeyState { return f.record(key).State }).Should(Equal(v1alpha1.ApiKeyDisabled))
		f.awaitFailed(key)
		Expect(f.record(key).Generation).To(BeEquivalentTo(1))
	})
})

var _ = Describe("A delivered Secret that cannot be written", func() {
	DescribeTable("is made anew when the key is rotated: its tenant",
		func(spoil func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee").overlap(0))
			f.stop()
			spoil(f, key)
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
			f.startOperator()
			record := f.awaitGeneration(key, 2)
			f.awaitReady(key)
			Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
			Expect(f.secret(f.namespace, "till-key").Type).To(Equal(corev1.SecretTypeOpaque))
		},
		Entry("made it immutable", func(f *fixture, _ *v1alpha1.ApiKey) {
			change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Immutable = new(true) })
		}),
		Entry("made it one of another type", func(f *fixture, key *v1alpha1.ApiKey) {
			f.delete(f.secret(f.namespace, "till-key"))
			f.plant(key, "till-key", "1", func(s *corev1.Secret) { s.Type = "example.com/other" })
		}),
	)

	It("is named in the status with the reason, if it may not be created", func() {
		f := newFixture(refusingSecrets())
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").ApiKey
		f.apply(key)
		f.awaitFailed(key)
		Expect(readyMessage(key)).To(ContainSubstring("no Secret without an owner label"))
	})

	It("is waited for while it is being deleted, and no key goes with it", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(0))
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Finalizers = []string{"example.com/hold"} })
		f.delete(f.secret(f.namespace, "till-key"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		Eventually(func(g Gomega) {
			f.read(key)
			g.Expect(readyReason(key)).To(Equal(v1alpha1.ReasonSecretConflict))
			g.Expect(readyMessage(key)).To(ContainSubstring("being deleted"))
			g.Expect(condition(key, v1alpha1.DeliveredCondition).Status).To(Equal(metav1.ConditionFalse))
		}).Should(Succeed())
		Expect(f.record(key).Generation).To(BeEquivalentTo(1), "a key that nobody can get")
		change(f, f.secret(f.namespace, "till-key"), func(s *secretObject) { s.Finalizers = nil })
		record := f.awaitGeneration(key, 2)
		f.awaitReady(key)
		Expect(f.live(record, f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("A reconciliation that fails after its own writes", func() {
	It("is repeated ever less often, whatever its watches say", func() {
		f := newFixture(beforePublishing(func() error { return errCrash }))
		f.merchant(aMerchant("coffee"))
		key := aKey("till", "coffee").ApiKey
		f.apply(key)
		f.awaitFailed(key)
		before := passes("apikey")
		for n := range 50 { // each is an event of a Secret that looks like the key's
			f.plant(key, fmt.Sprintf("planted-%d", n), fmt.Sprint(n+2))
		}
		written := f.secret(f.namespace, "till-key").ResourceVersion
		Consistently(func() string { return f.secret(f.namespace, "till-key").ResourceVersion }, time.Second).Should(Equal(written))
		Expect(passes("apikey")-before).To(BeNumerically("<", 200), "of 50 events, and retries")
	})
})

var _ = Describe("A Merchant that is suspended while its spec cannot be published", func() {
	It("is suspended first", func() {
		f := newFixture(beforeDelivering(func() error { return errCrash }))
		merchant := aMerchant("coffee").webhook().Merchant
		f.apply(merchant)
		f.awaitFailed(merchant)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		Eventually(func(g Gomega) {
			g.Expect(f.merchantRecord(g, merchant).State).To(Equal(v1alpha1.MerchantSuspended))
		}).Should(Succeed())
		Expect(f.merchantRecord(Default, merchant).Webhook).To(Equal(&published.Webhook{Webhook: *merchant.Spec.Webhook}))
	})
})
