package controllers

import (
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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

	It("that is removed for a moment keeps its secret, and its events wait", func() {
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
		f.poke(merchant, "merchant") // it also checks by itself, at that time
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
