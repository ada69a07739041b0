package controllers

import (
	"context"
	"encoding/base64"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// signingSecret returns the Secret that publishes what a Merchant's events are signed with; nil: none.
func (f *fixture) signingSecret(merchant *v1alpha1.Merchant) *corev1.Secret {
	GinkgoHelper()
	return f.secret(f.credentials, published.WebhookName(published.ID(merchant.UID)))
}

// webhookRecord returns what the dispatcher signs a Merchant's events with.
func (f *fixture) webhookRecord(g Gomega, merchant *v1alpha1.Merchant) published.WebhookRecord {
	GinkgoHelper()
	secret := f.signingSecret(merchant)
	g.Expect(secret).NotTo(BeNil(), "the signing secret is published")
	g.Expect(secret.Labels).To(HaveKeyWithValue(published.Label, published.LabelWebhook))
	record, err := published.DecodeWebhook(secret)
	g.Expect(err).NotTo(HaveOccurred())
	return record
}

// verifier returns the signing secret that a merchant has in its own Secret; the zero one: none.
func (f *fixture) verifier(name string) published.SigningSecret {
	GinkgoHelper()
	secret := f.secret(f.namespace, name)
	if secret == nil {
		return published.SigningSecret{}
	}
	verifier, err := published.ParseSigningSecret(string(secret.Data["secret"]))
	if err != nil {
		return published.SigningSecret{}
	}
	return verifier
}

// awaitVerifiable waits until the Secret of that name verifies what is signed with the record in force.
func (f *fixture) awaitVerifiable(merchant *v1alpha1.Merchant, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := f.webhookRecord(g, merchant).Current.Secret
		g.Expect(f.verifier(name).Equal(current)).To(BeTrue(), "Secret %s holds the secret in force", name)
	}).Should(Succeed())
}

var _ = Describe("The webhook of a Merchant", func() {
	It("gets a signing secret, published for the dispatcher and delivered to the merchant", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		record := f.webhookRecord(Default, merchant)
		Expect(record.Source).To(Equal(published.Source{Namespace: f.namespace, Name: "coffee", UID: merchant.UID}))
		Expect(record.SigningSecrets(f.clock.Now())).To(HaveLen(1))

		delivered := f.secret(f.namespace, "coffee-webhook")
		Expect(delivered).NotTo(BeNil())
		Expect(delivered.Data).To(Equal(map[string][]byte{"secret": []byte(record.Current.Secret.Reveal())}))
		Expect(delivered.Type).To(Equal(corev1.SecretTypeOpaque))
		Expect(delivered.Labels).To(Equal(map[string]string{"merchant-operator.io/delivered": "webhook"}))
		Expect(delivered.Annotations).To(BeEmpty())
		Expect(metav1.IsControlledBy(delivered, merchant)).To(BeTrue())
		Expect(merchant.Status.WebhookSecretName).To(Equal("coffee-webhook"))
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElements(
			ContainSubstring("Normal SigningSecretIssued:"), ContainSubstring("Normal SigningSecretDelivered:")))
	})

	It("has no secret without a url to send to", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		Expect(f.signingSecret(merchant)).To(BeNil())
		Expect(f.secret(f.namespace, "coffee-webhook")).To(BeNil())
		Expect(merchant.Status.WebhookSecretName).To(BeEmpty())
	})

	It("that is removed for a minute keeps its secret, and its events wait", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook(func(h *v1alpha1.Webhook) {
			h.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
		}))
		record := f.webhookRecord(Default, merchant)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = nil })
		f.awaitReady(merchant)
		f.awaitNoSecret("coffee-webhook")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
		removed := f.merchantRecord(Default, merchant).Webhook
		Expect(removed.RemovedAt).To(BeTemporally("~", f.clock.Now(), time.Minute))
		Expect(removed).To(Equal(&published.Webhook{
			Webhook:   v1alpha1.Webhook{Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}},
			RemovedAt: removed.RemovedAt,
		}), "no URL, and no trigger")
		Expect(merchant.Status.WebhookSecretName).To(BeEmpty())
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Normal WebhookRemoved:")))

		By("restarting the operator and taking the status an hour before the end")
		f.clock.advance(23 * time.Hour)
		f.restart()
		Expect(f.kube.Status().Patch(GinkgoT().Context(), merchant, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`)))).To(Succeed())
		f.awaitReady(merchant)
		f.poke(merchant, "merchant")
		Expect(f.merchantRecord(Default, merchant).Webhook).To(Equal(removed))

		By("setting a webhook again")
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = aMerchant("").webhook().Spec.Webhook })
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "coffee-webhook")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(f.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
	})

	It("that is removed for a day takes its secret with it, and one that comes back has a new secret", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		former := f.webhookRecord(Default, merchant).Current.Secret
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = nil })
		f.awaitReady(merchant)
		f.clock.advance(published.WebhookGrace + time.Second)
		f.poke(merchant, "merchant") // it is also checked, at that time
		Eventually(func(g Gomega) {
			g.Expect(f.signingSecret(merchant)).To(BeNil())
			g.Expect(f.merchantRecord(g, merchant).Webhook.Dropped).To(BeTrue())
		}).Should(Succeed())
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Warning WebhookRemoved:")))

		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = aMerchant("").webhook().Spec.Webhook })
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "coffee-webhook")
		Expect(f.webhookRecord(Default, merchant).Current.Secret.Equal(former)).To(BeFalse())
	})

	It("ends with its Merchant, and nobody else's does", func() {
		f := newFixture()
		merchant, other := f.merchant(aMerchant("coffee").webhook()), f.merchant(aMerchant("books").webhook())
		f.delete(merchant)
		f.awaitGone(merchant)
		Expect(f.signingSecret(merchant)).To(BeNil())
		Expect(f.secret(f.namespace, "coffee-webhook")).To(BeNil())
		f.awaitVerifiable(other, "books-webhook")
	})

	It("ends with its Merchant also if the published Secret cannot be read and the copy lost its label", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		f.stop()
		change(f, f.signingSecret(merchant), func(s *secretObject) { s.Data["webhook.json"], s.Labels = []byte("{"), nil })
		change(f, f.secret(f.namespace, "coffee-webhook"), func(s *secretObject) { s.Labels = nil })
		f.delete(merchant)
		f.restart()
		f.awaitGone(merchant)
		Expect(f.signingSecret(merchant)).To(BeNil())
		Expect(f.secret(f.namespace, "coffee-webhook")).To(BeNil())
	})

	DescribeTable("whose published secret is lost gets a new one, with a warning, after somebody",
		func(harm func(*fixture, *v1alpha1.Merchant)) {
			f := newFixture()
			merchant := f.merchant(aMerchant("coffee").webhook())
			former := f.webhookRecord(Default, merchant).Current.Secret
			harm(f, merchant)
			Eventually(func(g Gomega) {
				record := f.webhookRecord(g, merchant)
				g.Expect(record.Current.Secret.Equal(former)).To(BeFalse())
				g.Expect(record.Retired).To(BeEmpty(), "what was lost cannot sign")
			}).Should(Succeed())
			f.awaitVerifiable(merchant, "coffee-webhook")
			Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Warning SigningSecretLost:")))
		},
		Entry("deleted it", func(f *fixture, m *v1alpha1.Merchant) { f.delete(f.signingSecret(m)) }),
		Entry("deleted it and the copy while no operator ran", func(f *fixture, m *v1alpha1.Merchant) {
			f.stop()
			f.delete(f.signingSecret(m))
			f.delete(f.secret(f.namespace, "coffee-webhook"))
			f.restart()
		}),
		Entry("broke its record", func(f *fixture, m *v1alpha1.Merchant) {
			change(f, f.signingSecret(m), func(s *secretObject) { s.Data["webhook.json"] = []byte("{") })
		}),
		Entry("put a Secret of another type in its place", func(f *fixture, m *v1alpha1.Merchant) {
			f.stop()
			secret := f.signingSecret(m)
			f.delete(secret.DeepCopy())
			squatter := &corev1.Secret{Data: secret.Data}
			squatter.Namespace, squatter.Name, squatter.Labels = secret.Namespace, secret.Name, secret.Labels
			Expect(f.kube.Create(GinkgoT().Context(), squatter)).To(Succeed())
			f.restart()
		}),
	)

	DescribeTable("keeps its secret and gets right again after somebody",
		func(harm func(*fixture, *v1alpha1.Merchant)) {
			f := newFixture()
			merchant := f.merchant(aMerchant("coffee").webhook())
			record, copied := f.webhookRecord(Default, merchant), f.secret(f.namespace, "coffee-webhook")
			harm(f, merchant)
			Eventually(func(g Gomega) {
				g.Expect(f.webhookRecord(g, merchant)).To(Equal(record))
				g.Expect(f.signingSecret(merchant).Data).To(HaveLen(1))
				got := f.secret(f.namespace, "coffee-webhook")
				g.Expect(got).NotTo(BeNil())
				g.Expect(got.Data).To(Equal(copied.Data))
				g.Expect(got.Labels).To(Equal(copied.Labels))
			}).Should(Succeed())
		},
		Entry("deleted the merchant's copy", func(f *fixture, _ *v1alpha1.Merchant) { f.delete(f.secret(f.namespace, "coffee-webhook")) }),
		Entry("deleted the merchant's copy while no operator ran", func(f *fixture, _ *v1alpha1.Merchant) {
			f.stop()
			f.delete(f.secret(f.namespace, "coffee-webhook"))
			f.restart()
		}),
		Entry("edited the merchant's copy", func(f *fixture, _ *v1alpha1.Merchant) {
			change(f, f.secret(f.namespace, "coffee-webhook"), func(s *secretObject) { s.Data["secret"] = []byte("whsec_x") })
		}),
		Entry("added to the merchant's copy", func(f *fixture, _ *v1alpha1.Merchant) {
			change(f, f.secret(f.namespace, "coffee-webhook"), func(s *secretObject) { s.Data["more"] = []byte("x") })
		}),
		Entry("took the copy's label", func(f *fixture, _ *v1alpha1.Merchant) {
			change(f, f.secret(f.namespace, "coffee-webhook"), func(s *secretObject) { s.Labels = nil })
		}),
		Entry("took the published one's label", func(f *fixture, m *v1alpha1.Merchant) {
			change(f, f.signingSecret(m), func(s *secretObject) { s.Labels = nil })
		}),
		Entry("added to the published one", func(f *fixture, m *v1alpha1.Merchant) {
			change(f, f.signingSecret(m), func(s *secretObject) { s.Data["more"] = []byte("x") })
		}),
		Entry("renamed the published one's source", func(f *fixture, m *v1alpha1.Merchant) {
			record := f.webhookRecord(Default, m)
			record.Source.Namespace = "elsewhere"
			secret, err := published.EncodeWebhook(f.credentials, record)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.kube.Update(GinkgoT().Context(), secret)).To(Succeed())
		}),
		Entry("lost the status", func(f *fixture, m *v1alpha1.Merchant) {
			Expect(f.kube.Status().Patch(GinkgoT().Context(), m, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`)))).To(Succeed())
			f.awaitReady(m)
			Expect(m.Status.WebhookSecretName).To(Equal("coffee-webhook"))
		}),
	)

	It("keeps what others put on the merchant's copy", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		change(f, f.secret(f.namespace, "coffee-webhook"), func(s *secretObject) {
			s.Annotations = map[string]string{"replicate-to": "elsewhere"}
			s.Data["secret"] = []byte("whsec_x")
		})
		f.awaitVerifiable(merchant, "coffee-webhook")
		Expect(f.secret(f.namespace, "coffee-webhook").Annotations).To(Equal(map[string]string{"replicate-to": "elsewhere"}))
	})

	It("loses no secret when a pass ends between publishing and delivering", func() {
		var crash atomic.Bool
		crash.Store(true)
		f := newFixture(beforeDelivering(func() error {
			if crash.Load() {
				return errCrash
			}
			return nil
		}))
		merchant := aMerchant("coffee").webhook().Merchant
		f.apply(merchant)
		f.awaitFailed(merchant)
		record := f.webhookRecord(Default, merchant)
		Expect(f.merchantRecord(Default, merchant).Webhook).NotTo(BeNil())
		crash.Store(false)
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "coffee-webhook")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
	})
})

// beforeDelivering calls the hook before each Secret that is created in a tenant's namespace.
func beforeDelivering(hook func() error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, isSecret := object.(*corev1.Secret); isSecret && strings.HasPrefix(object.GetNamespace(), "shops-") {
				if err := hook(); err != nil {
					return err
				}
			}
			return c.Create(ctx, object, options...)
		},
	}
}

func secretName(name string) func(*v1alpha1.Webhook) {
	return func(h *v1alpha1.Webhook) { h.SecretName = name }
}

var _ = Describe("The merchant's copy of a signing secret", func() {
	It("never touches somebody else's Secret; events are signed meanwhile, and it comes once the name is free", func() {
		f := newFixture()
		foreign := f.squat("taken")
		merchant := aMerchant("coffee").webhook(secretName("taken")).Merchant
		f.apply(merchant)
		f.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(f.secret(f.namespace, "taken")).To(Equal(foreign))
		Expect(f.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
		record := f.webhookRecord(Default, merchant)
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Warning SecretConflict:")))

		By("suspending it all the same")
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		f.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(f.merchantRecord(Default, merchant).State).To(Equal(v1alpha1.MerchantSuspended))

		f.delete(foreign)
		f.poke(merchant, "merchant") // it is also checked, once a minute
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "taken")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
	})

	It("is not taken from another Merchant or an ApiKey of the same namespace", func() {
		f := newFixture()
		books := f.merchant(aMerchant("books").webhook(secretName("hooks")))
		f.key(aKey("till", "books"))
		for _, name := range []string{"hooks", "till-key"} {
			before := f.secret(f.namespace, name)
			other := aMerchant("coffee").webhook(secretName(name)).Merchant
			f.apply(other)
			f.awaitStalled(other, v1alpha1.ReasonSecretConflict)
			Expect(f.secret(f.namespace, name)).To(Equal(before))
			f.delete(other)
			f.awaitGone(other)
			Expect(f.secret(f.namespace, name)).To(Equal(before))
		}
		f.awaitVerifiable(books, "hooks")
	})

	It("moves with its name", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		record := f.webhookRecord(Default, merchant)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "hooks" })
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "hooks")
		f.awaitNoSecret("coffee-webhook")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(merchant.Status.WebhookSecretName).To(Equal("hooks"))
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Normal DeliveryRemoved:")))
	})

	It("stays where it is while its new name is taken, and so does the secret", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		record, foreign := f.webhookRecord(Default, merchant), f.squat("taken")
		change(f, merchant, func(m *v1alpha1.Merchant) {
			m.Spec.Webhook.SecretName = "taken"
			m.Spec.Webhook.RotationTrigger = "b"
		})
		f.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		f.awaitVerifiable(merchant, "coffee-webhook")
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record), "a secret that nobody could get would cut the merchant off")
		Expect(merchant.Status.WebhookSecretName).To(Equal("coffee-webhook"))

		f.delete(foreign)
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "taken")
		f.awaitNoSecret("coffee-webhook")
		Expect(f.webhookRecord(Default, merchant).Retired).To(HaveLen(1), "the rotation has happened")
	})
})

func (f *fixture) rotateSigning(merchant *v1alpha1.Merchant, trigger string) published.WebhookRecord {
	GinkgoHelper()
	change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.RotationTrigger = trigger })
	f.awaitReady(merchant)
	f.awaitVerifiable(merchant, "coffee-webhook")
	record := f.webhookRecord(Default, merchant)
	Expect(record.HandledTrigger).To(Equal(trigger))
	return record
}

var _ = Describe("A rotation of a signing secret", func() {
	It("delivers a new one, and for a day both sign", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		old := f.verifier("coffee-webhook")
		record := f.rotateSigning(merchant, "b")
		fresh := f.verifier("coffee-webhook")
		Expect(fresh.Equal(old)).To(BeFalse())
		Expect(record.SigningSecrets(f.clock.Now())).To(Equal([]published.SigningSecret{fresh, old}))
		Expect(record.Retired[0].ValidUntil).To(BeTemporally("~", f.clock.Now().Add(24*time.Hour), time.Minute))
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Normal SigningSecretRotated:")))

		f.clock.advance(24*time.Hour + time.Minute + reconciler.EndedMargin)
		Expect(record.SigningSecrets(f.clock.Now())).To(Equal([]published.SigningSecret{fresh}))
		f.poke(merchant, "merchant") // it is also checked, at that time
		Eventually(func(g Gomega) { g.Expect(f.webhookRecord(g, merchant).Retired).To(BeEmpty()) }).Should(Succeed())
		Expect(string(f.signingSecret(merchant).Data["webhook.json"])).NotTo(ContainSubstring(old.Reveal()))
		f.awaitVerifiable(merchant, "coffee-webhook")
	})

	It("happens once for each change of the trigger, whatever is restarted or lost", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook(func(h *v1alpha1.Webhook) { h.RotationTrigger = "a" }))
		Expect(f.webhookRecord(Default, merchant).Retired).To(BeEmpty(), "the first secret is none's successor")
		record := f.rotateSigning(merchant, "b")
		f.restart()
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(f.rotateSigning(merchant, "a").Retired).To(HaveLen(2), "also back to an earlier one")
		Expect(f.rotateSigning(merchant, "").Retired).To(HaveLen(3), "also to none")
	})

	It("is not caused by anything else in the webhook", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		record := f.webhookRecord(Default, merchant)
		change(f, merchant, func(m *v1alpha1.Merchant) {
			m.Spec.Webhook.URL = "https://shop.example/elsewhere"
			m.Spec.Webhook.ResumeTrigger = "again"
			m.Spec.Webhook.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
		})
		f.awaitReady(merchant)
		Expect(f.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(f.merchantRecord(Default, merchant).Webhook.ResumeTrigger).To(Equal("again"), "the dispatcher hears of it")
	})
})

var _ = Describe("A signing secret", func() {
	It("is in the published and the delivered Secret, and nowhere else", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		secrets := []string{f.verifier("coffee-webhook").Reveal()}
		f.rotateSigning(merchant, "b")
		secrets = append(secrets, f.verifier("coffee-webhook").Reveal())
		change(f, f.signingSecret(merchant), func(s *secretObject) { s.Data["webhook.json"] = []byte(`{"version":1,"current":` + secrets[0]) })
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("SigningSecretLost")))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "moved" })
		f.awaitReady(merchant)
		f.awaitVerifiable(merchant, "moved")
		secrets = append(secrets, f.verifier("moved").Reveal())
		for where, text := range f.everything() {
			if where == "published Secrets" || where == "tenant's Secrets" {
				continue
			}
			for _, secret := range secrets {
				encoded := strings.TrimPrefix(secret, "whsec_")
				key, err := base64.StdEncoding.DecodeString(encoded)
				Expect(err).NotTo(HaveOccurred())
				Expect(text).NotTo(ContainSubstring(encoded[:16]), "%s", where)
				Expect(text).NotTo(ContainSubstring(base64.StdEncoding.EncodeToString([]byte(secret))[:16]), "%s", where)
				Expect(text).NotTo(ContainSubstring(string(key)), "%s", where)
			}
		}
	})
})

// dispatcherSays applies WebhookHealthy as the dispatcher does, by server-side apply under its own
// name; nil: it takes the condition back.
func (f *fixture) dispatcherSays(merchant *v1alpha1.Merchant, condition *metav1ac.ConditionApplyConfiguration) {
	GinkgoHelper()
	status := v1alpha1ac.MerchantStatus()
	if condition != nil {
		status.WithConditions(condition.
			WithType(v1alpha1.WebhookHealthyCondition).
			WithLastTransitionTime(metav1.NewTime(f.clock.Now())))
	}
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithUID(merchant.UID).WithStatus(status)
	// Without force: a conflict would say that the operator has taken the condition over.
	Expect(f.kube.Status().Apply(context.Background(), apply, client.FieldOwner("merchant-operator-dispatcher"))).To(Succeed())
}

func webhookHealth(merchant *v1alpha1.Merchant) *metav1.Condition {
	return meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition)
}

var _ = Describe("What the dispatcher says of a webhook", func() {
	It("stays as it is in every pass of the operator", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		before := passes("merchant")
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointDisabled").WithMessage("120 h"))
		f.read(merchant)
		said := webhookHealth(merchant)
		Expect(said).NotTo(BeNil())

		By("being seen in a pass that has nothing to do")
		version := merchant.ResourceVersion
		f.restart()
		Eventually(func() int { return passes("merchant") }).Should(BeNumerically(">", before))
		f.key(aKey("till", "coffee")) // the operator is at work
		f.read(merchant)
		Expect(merchant.ResourceVersion).To(Equal(version), "the operator wrote nothing")

		By("being seen in a pass that writes the status")
		foreign := f.squat("taken")
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "taken" })
		f.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(webhookHealth(merchant)).To(Equal(said))
		f.delete(foreign)
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		Expect(webhookHealth(merchant)).To(Equal(said))

		By("changing it and taking it back")
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionTrue).WithReason("Healthy").WithMessage("Events are accepted"))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		f.awaitReady(merchant)
		Expect(webhookHealth(merchant)).To(HaveField("Status", metav1.ConditionTrue))
		f.dispatcherSays(merchant, nil)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
		f.awaitReady(merchant)
		Expect(webhookHealth(merchant)).To(BeNil())
	})

	It("alone is no status: the operator puts its own back", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		f.dispatcherSays(merchant, metav1ac.Condition().WithStatus(metav1.ConditionFalse).WithReason("EndpointGone").WithMessage("410"))
		change(f, merchant, func(m *v1alpha1.Merchant) {}) // reads it
		only := client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/status/conditions/0"}]`))
		Expect(merchant.Status.Conditions[0].Type).To(Equal(v1alpha1.ReadyCondition))
		Expect(f.kube.Status().Patch(context.Background(), merchant, only)).To(Succeed())
		f.awaitReady(merchant)
		Expect(webhookHealth(merchant)).To(HaveField("Reason", "EndpointGone"))
	})

	It("of a test ends the publication of its trigger", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		published := func() string { return f.merchantRecord(Default, merchant).Webhook.TestTrigger }
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.TestTrigger = "monday" })
		f.awaitReady(merchant)
		Expect(published()).To(Equal("monday"))
		f.dispatcherTested(merchant, "monday")
		Eventually(published).Should(BeEmpty())
		f.restart()
		f.poke(merchant, "merchant")
		f.awaitReady(merchant)
		Expect(published()).To(BeEmpty(), "nothing is tested again")
		Expect(merchant.Status.Webhook).To(HaveField("ObservedTestTrigger", "monday"))

		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.TestTrigger = "tuesday" })
		f.awaitReady(merchant)
		Expect(published()).To(Equal("tuesday"))
	})
})

// dispatcherTested applies what the dispatcher applies when it has queued a test.
func (f *fixture) dispatcherTested(merchant *v1alpha1.Merchant, trigger string) {
	GinkgoHelper()
	status := v1alpha1ac.MerchantStatus().WithWebhook(v1alpha1ac.WebhookStatus().WithObservedTestTrigger(trigger))
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status)
	Expect(f.kube.Status().Apply(context.Background(), apply, client.FieldOwner("merchant-operator-dispatcher-test"))).To(Succeed())
}
