package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
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
		key := f.applied(aKey("till", "coffee"))
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
		key := f.applied(aKey("till", "coffee"))
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

// awaitMessage waits until Ready says so.
func (f *fixture) awaitMessage(key *v1alpha1.ApiKey, message string) {
	GinkgoHelper()
	Eventually(func() *metav1.Condition { f.read(key); return condition(key, v1alpha1.ReadyCondition) }).
		Should(HaveField("Message", message))
}

// awaitEvent waits until there is such an event about the key.
func (f *fixture) awaitEvent(key *v1alpha1.ApiKey, text string) {
	GinkgoHelper()
	Eventually(func() []string { return f.events(key) }).Should(ContainElement(ContainSubstring(text)))
}

var _ = Describe("A key that does not work", func() {
	It("is not Usable when it was issued after its expiry, and works again after a later one", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.applied(aKey("till", "coffee").expires(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)))
		f.awaitUnusable(key, v1alpha1.ReasonExpired)
		Expect(readyMessage(key)).To(Equal("The key expired at 2020-01-02T03:04:05Z and gets 401; set a later spec.expiresAt, or delete the ApiKey"))
		Expect(condition(key, v1alpha1.ExpiringSoonCondition)).To(BeNil())
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeFalse())
		f.awaitEvent(key, "Warning Expired:")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = nil })
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("is not Usable from its expiry on", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		end := metav1.NewTime(time.Now().Add(2 * time.Second).Truncate(time.Second))
		key := f.applied(aKey("till", "coffee").expires(end.Time))
		f.awaitUnusable(key, v1alpha1.ReasonExpired)
		Expect(condition(key, v1alpha1.UsableCondition).LastTransitionTime.Time).To(BeTemporally(">=", end.Time))
	})

	It("is not Usable while it is disabled", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitUnusable(key, v1alpha1.ReasonDisabled)
		f.awaitEvent(key, "Warning Disabled: spec.state is Disabled: the key gets 401")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive })
		f.awaitReady(key)
	})

	It("is not Usable while its Merchant is not Active, and nothing of the key changes", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		record := f.record(key)
		for state, reason := range map[v1alpha1.MerchantState]string{
			v1alpha1.MerchantSuspended: v1alpha1.ReasonMerchantSuspended, v1alpha1.MerchantClosed: v1alpha1.ReasonMerchantClosed,
		} {
			change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = state })
			f.awaitUnusable(key, reason)
			message := fmt.Sprintf("Merchant coffee is %s: the key gets 403 until spec.state of the Merchant is Active and in force", state)
			Expect(readyMessage(key)).To(Equal(message))
			f.awaitEvent(key, "Warning "+reason+": "+message)
			change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
			f.awaitReady(key)
		}
		Expect(f.record(key)).To(Equal(record))
	})

	It("is Usable as long as its Merchant is published as Active, whatever the Merchant's spec says", func() {
		var refuse atomic.Pointer[string]
		f := newFixture(refusing(&refuse))
		merchant, key := f.merchant(aMerchant("coffee")), f.key(aKey("till", "coffee"))
		refuse.Store(new("update, create, delete"))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		f.awaitStalled(merchant, v1alpha1.ReasonStillAccepted)
		f.poke(key, "apikey")
		f.awaitReady(key)
		Expect(condition(key, v1alpha1.UsableCondition)).To(HaveField("Status", metav1.ConditionTrue))
		refuse.Store(nil)
		f.awaitUnusable(key, v1alpha1.ReasonMerchantSuspended)

		refuse.Store(new("update, create, delete"))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
		f.awaitFailed(merchant)
		f.poke(key, "apikey")
		f.awaitUnusable(key, v1alpha1.ReasonMerchantSuspended)
		refuse.Store(nil)
		f.awaitReady(key)
	})

	It("is not Ready when its Merchant is deleted, and says that it ended with it", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.delete(merchant)
		f.awaitWaiting(key)
		message := "Merchant coffee was deleted from namespace " + f.namespace +
			": the key gets 401 permanently, also if the Merchant is created again"
		Expect(readyMessage(key)).To(HavePrefix(message))
		f.awaitEvent(key, "Warning MerchantNotFound: "+message)
	})

	It("for a Merchant that nobody creates is Stalled after ten minutes, and says which there are", func() {
		f := newFixture()
		f.merchant(aMerchant("tea"))
		f.merchant(aMerchant("books"))
		key := f.applied(aKey("till", "cofee"))
		f.awaitWaiting(key)
		Expect(readyMessage(key)).To(Equal(fmt.Sprintf("Merchant cofee does not exist in namespace %s; waiting for it", f.namespace)))
		Expect(condition(key, v1alpha1.DeliveredCondition)).To(HaveField("Reason", v1alpha1.ReasonNotIssued))

		f.clock.advance(10*time.Minute + time.Second)
		f.poke(key, "apikey") // it is also checked, but by the real clock
		f.awaitStalled(key, v1alpha1.ReasonMerchantNotFound)
		Expect(readyMessage(key)).To(ContainSubstring("; its Merchants are books, tea. "))
		f.awaitEvent(key, "Warning MerchantNotFound: Merchant cofee does not exist in namespace "+f.namespace+"; its Merchants are books, tea.")

		f.merchant(aMerchant("cofee"))
		f.awaitReady(key)
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})
})

var _ = Describe("Previous keys", func() {
	It("are in the status with their ends, which a later rotation shortens and one without an overlap ends", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(24 * time.Hour))
		first := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		rotated := key.Status.LastRotation.Time.Time
		Expect(key.Status.PreviousKeys).To(HaveLen(1))
		Expect(key.Status.PreviousKeys[0].Prefix).To(Equal(first.Prefix()))
		Expect(key.Status.PreviousKeys[0].ValidUntil.Time).To(BeTemporally("~", rotated.Add(24*time.Hour), time.Second))
		f.awaitEvent(key, "Issued key (generation 2, cause Trigger); old keys are valid until "+
			f.record(key).Previous[0].ValidUntil.Format(time.RFC3339)+" at most")

		second := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Rotation = v1alpha1.Rotation{Trigger: "c", OverlapSeconds: new(int32(3600))}
		})
		record := f.awaitGeneration(key, 3)
		Expect(key.Status.PreviousKeys).To(HaveLen(2))
		for i, previous := range key.Status.PreviousKeys {
			Expect(previous.Prefix).To(Equal([]string{second.Prefix(), first.Prefix()}[i]))
			Expect(previous.ValidUntil.Time).To(BeTemporally("~", key.Status.LastRotation.Time.Add(time.Hour), time.Second))
		}
		Expect(f.live(record, first)).To(BeTrue())

		change(f, key, func(k *v1alpha1.ApiKey) {
			k.Spec.Rotation = v1alpha1.Rotation{Trigger: "leak", OverlapSeconds: new(int32(0))}
		})
		record = f.awaitGeneration(key, 4)
		Expect(key.Status.PreviousKeys).To(BeEmpty())
		Expect(f.live(record, first)).To(BeFalse())
		Expect(f.live(record, second)).To(BeFalse())
		f.awaitEvent(key, "Issued key (generation 4, cause Trigger); all old keys are refused")
	})

	It("leave the status at their end", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(2 * time.Second))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		Eventually(func() []v1alpha1.PreviousKey { f.read(key); return key.Status.PreviousKeys }).Should(BeEmpty())
		f.clock.advance(reconciler.EndedMargin)
		f.poke(key, "apikey")
		Eventually(func() []published.Previous { return f.record(key).Previous }).Should(BeEmpty())
	})
})

// keysLost is what the metric of it counts, in this process.
func keysLost() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "merchant_operator_keys_lost_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

var _ = Describe("A lost key", func() {
	DescribeTable("is an alarm until the next rotation, after somebody",
		func(harm func(*fixture, *v1alpha1.ApiKey)) {
			f := newFixture()
			f.merchant(aMerchant("coffee"))
			key := f.key(aKey("till", "coffee"))
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil())
			f.clock.advance(time.Minute) // times of rotations rise by a second at least
			counted := keysLost()
			harm(f, key)
			f.awaitGeneration(key, 2)
			Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
			lost := condition(key, v1alpha1.KeyLostCondition)
			Expect(lost).NotTo(BeNil())
			Expect(lost.Status).To(Equal(metav1.ConditionTrue))
			Expect(lost.Reason).To(Equal(v1alpha1.ReasonKeyReplaced))
			since := key.Status.LastRotation.Time.UTC().Format(time.RFC3339)
			Expect(lost.Message).To(ContainSubstring("All keys before generation 2 get 401 since " + since))
			Expect(keysLost()).To(Equal(counted + 1))
			f.awaitEvent(key, "Warning KeyLost: The published record was lost.")
			f.awaitEvent(key, "Normal Rotated: Issued key (generation 2, cause Recovery); all old keys are refused")
			Expect(f.secret(f.namespace, "till-key").Annotations).To(HaveKeyWithValue("merchant-operator.io/key-lost-since", since))

			By("moving with the Secret, and outliving the status")
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{SecretName: "moved"} })
			f.awaitNoSecret("till-key")
			f.awaitReady(key)
			Expect(f.secret(f.namespace, "moved").Annotations).To(HaveKeyWithValue("merchant-operator.io/key-lost-since", since))
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(HaveField("Message", lost.Message))

			By("ending with the next rotation")
			change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
			f.awaitGeneration(key, 3)
			Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil())
			Expect(f.secret(f.namespace, "moved").Annotations).NotTo(HaveKey("merchant-operator.io/key-lost-since"))
		},
		Entry("deleted its published Secret", func(f *fixture, k *v1alpha1.ApiKey) { f.delete(f.publishedSecret(k)) }),
		Entry("spoilt it", func(f *fixture, k *v1alpha1.ApiKey) {
			change(f, f.publishedSecret(k), func(s *secretObject) { s.Data["record.json"] = []byte("{") })
		}),
	)

	It("that cannot be replaced says so", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.rotateOverHTTP(key)
		f.awaitGeneration(key, 2)
		f.delete(f.publishedSecret(key))
		f.awaitStalled(key, v1alpha1.ReasonKeyDigestUsed)
		Expect(condition(key, v1alpha1.KeyLostCondition)).To(HaveField("Reason", v1alpha1.ReasonKeyNotReplaced))
		f.awaitEvent(key, "Warning KeyLost: The published record of the key was lost, so the key gets 401.")
	})

	It("that is externally generated is published again, with a warning", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").digest(vaultDigest))
		f.delete(f.publishedSecret(key))
		record := f.awaitGeneration(key, 2)
		Expect(record.Current.Digest.Equal(vaultDigest)).To(BeTrue())
		Expect(record.LastRotation.Cause).To(Equal(v1alpha1.RotationRecovery))
		Expect(condition(key, v1alpha1.KeyLostCondition)).To(BeNil(), "the merchant's key works")
		f.awaitEvent(key, "Warning RecordRestored:")
	})
})
