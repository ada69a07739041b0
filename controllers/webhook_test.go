package controllers

import (
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// signingSecret returns the Secret that publishes what a Merchant's events are signed with; nil: none.
func (w *world) signingSecret(merchant *v1alpha1.Merchant) *corev1.Secret {
	GinkgoHelper()
	return w.secret(w.credentials, published.WebhookName(published.ID(merchant.UID)))
}

// webhookRecord returns what the dispatcher signs a Merchant's events with.
func (w *world) webhookRecord(g Gomega, merchant *v1alpha1.Merchant) published.WebhookRecord {
	GinkgoHelper()
	secret := w.signingSecret(merchant)
	g.Expect(secret).NotTo(BeNil(), "the signing secret is published")
	g.Expect(secret.Labels).To(HaveKeyWithValue(published.Label, published.LabelWebhook))
	record, err := published.DecodeWebhook(secret)
	g.Expect(err).NotTo(HaveOccurred())
	return record
}

// verifier returns the signing secret that a merchant has in its own Secret; the zero one: none.
func (w *world) verifier(name string) published.SigningSecret {
	GinkgoHelper()
	secret := w.secret(w.namespace, name)
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
func (w *world) awaitVerifiable(merchant *v1alpha1.Merchant, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := w.webhookRecord(g, merchant).Current.Secret
		g.Expect(w.verifier(name).Equal(current)).To(BeTrue(), "Secret %s holds the secret in force", name)
	}).Should(Succeed())
}

var _ = Describe("The webhook of a Merchant", func() {
	It("gets a signing secret, published for the dispatcher and delivered to the merchant", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		record := w.webhookRecord(Default, merchant)
		Expect(record.Source).To(Equal(published.Source{Namespace: w.namespace, Name: "coffee", UID: merchant.UID}))
		Expect(record.SigningSecrets(w.clock.Now())).To(HaveLen(1))

		delivered := w.secret(w.namespace, "coffee-webhook")
		Expect(delivered).NotTo(BeNil())
		Expect(delivered.Data).To(Equal(map[string][]byte{"secret": []byte(record.Current.Secret.Reveal())}))
		Expect(delivered.Type).To(Equal(corev1.SecretTypeOpaque))
		Expect(delivered.Labels).To(Equal(map[string]string{"merchant-operator.io/delivered": "webhook"}))
		Expect(delivered.Annotations).To(BeEmpty())
		Expect(metav1.IsControlledBy(delivered, merchant)).To(BeTrue())
		Expect(merchant.Status.WebhookSecretName).To(Equal("coffee-webhook"))
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElements(
			ContainSubstring("Normal SigningSecretIssued:"), ContainSubstring("Normal SigningSecretDelivered:")))
	})

	It("has no secret without a url to send to", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		Expect(w.signingSecret(merchant)).To(BeNil())
		Expect(w.secret(w.namespace, "coffee-webhook")).To(BeNil())
		Expect(merchant.Status.WebhookSecretName).To(BeEmpty())
	})

	It("that is removed takes both Secrets with it, and one that comes back has a new secret", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		former := w.webhookRecord(Default, merchant).Current.Secret
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = nil })
		w.awaitReady(merchant)
		w.awaitNoSecret("coffee-webhook")
		Expect(w.signingSecret(merchant)).To(BeNil())
		Expect(w.merchantRecord(Default, merchant).Webhook).To(BeNil())
		Expect(merchant.Status.WebhookSecretName).To(BeEmpty())

		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook = aMerchant("").webhook().Spec.Webhook })
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "coffee-webhook")
		Expect(w.webhookRecord(Default, merchant).Current.Secret.Equal(former)).To(BeFalse())
	})

	It("ends with its Merchant, and nobody else's does", func() {
		w := newWorld()
		merchant, other := w.merchant(aMerchant("coffee").webhook()), w.merchant(aMerchant("books").webhook())
		w.delete(merchant)
		w.awaitGone(merchant)
		Expect(w.signingSecret(merchant)).To(BeNil())
		Expect(w.secret(w.namespace, "coffee-webhook")).To(BeNil())
		w.awaitVerifiable(other, "books-webhook")
	})

	It("ends with its Merchant also if the published Secret cannot be read and the copy lost its label", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		w.stop()
		change(w, w.signingSecret(merchant), func(s *secretObject) { s.Data["webhook.json"], s.Labels = []byte("{"), nil })
		change(w, w.secret(w.namespace, "coffee-webhook"), func(s *secretObject) { s.Labels = nil })
		w.delete(merchant)
		w.restart()
		w.awaitGone(merchant)
		Expect(w.signingSecret(merchant)).To(BeNil())
		Expect(w.secret(w.namespace, "coffee-webhook")).To(BeNil())
	})

	DescribeTable("whose published secret is lost gets a new one, and people are told, after somebody",
		func(harm func(*world, *v1alpha1.Merchant)) {
			w := newWorld()
			merchant := w.merchant(aMerchant("coffee").webhook())
			former := w.webhookRecord(Default, merchant).Current.Secret
			harm(w, merchant)
			Eventually(func(g Gomega) {
				record := w.webhookRecord(g, merchant)
				g.Expect(record.Current.Secret.Equal(former)).To(BeFalse())
				g.Expect(record.Retired).To(BeEmpty(), "what was lost cannot sign")
			}).Should(Succeed())
			w.awaitVerifiable(merchant, "coffee-webhook")
			Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("Warning SigningSecretLost:")))
		},
		Entry("deleted it", func(w *world, m *v1alpha1.Merchant) { w.delete(w.signingSecret(m)) }),
		Entry("deleted it and the copy while no operator ran", func(w *world, m *v1alpha1.Merchant) {
			w.stop()
			w.delete(w.signingSecret(m))
			w.delete(w.secret(w.namespace, "coffee-webhook"))
			w.restart()
		}),
		Entry("broke its record", func(w *world, m *v1alpha1.Merchant) {
			change(w, w.signingSecret(m), func(s *secretObject) { s.Data["webhook.json"] = []byte("{") })
		}),
		Entry("put a Secret of another type in its place", func(w *world, m *v1alpha1.Merchant) {
			w.stop()
			secret := w.signingSecret(m)
			w.delete(secret.DeepCopy())
			squatter := &corev1.Secret{Data: secret.Data}
			squatter.Namespace, squatter.Name, squatter.Labels = secret.Namespace, secret.Name, secret.Labels
			Expect(w.kube.Create(GinkgoT().Context(), squatter)).To(Succeed())
			w.restart()
		}),
	)

	DescribeTable("keeps its secret and gets right again after somebody",
		func(harm func(*world, *v1alpha1.Merchant)) {
			w := newWorld()
			merchant := w.merchant(aMerchant("coffee").webhook())
			record, copied := w.webhookRecord(Default, merchant), w.secret(w.namespace, "coffee-webhook")
			harm(w, merchant)
			Eventually(func(g Gomega) {
				g.Expect(w.webhookRecord(g, merchant)).To(Equal(record))
				g.Expect(w.signingSecret(merchant).Data).To(HaveLen(1))
				got := w.secret(w.namespace, "coffee-webhook")
				g.Expect(got).NotTo(BeNil())
				g.Expect(got.Data).To(Equal(copied.Data))
				g.Expect(got.Labels).To(Equal(copied.Labels))
			}).Should(Succeed())
		},
		Entry("deleted the merchant's copy", func(w *world, _ *v1alpha1.Merchant) { w.delete(w.secret(w.namespace, "coffee-webhook")) }),
		Entry("deleted the merchant's copy while no operator ran", func(w *world, _ *v1alpha1.Merchant) {
			w.stop()
			w.delete(w.secret(w.namespace, "coffee-webhook"))
			w.restart()
		}),
		Entry("edited the merchant's copy", func(w *world, _ *v1alpha1.Merchant) {
			change(w, w.secret(w.namespace, "coffee-webhook"), func(s *secretObject) { s.Data["secret"] = []byte("whsec_x") })
		}),
		Entry("added to the merchant's copy", func(w *world, _ *v1alpha1.Merchant) {
			change(w, w.secret(w.namespace, "coffee-webhook"), func(s *secretObject) { s.Data["more"] = []byte("x") })
		}),
		Entry("took the copy's label", func(w *world, _ *v1alpha1.Merchant) {
			change(w, w.secret(w.namespace, "coffee-webhook"), func(s *secretObject) { s.Labels = nil })
		}),
		Entry("took the published one's label", func(w *world, m *v1alpha1.Merchant) {
			change(w, w.signingSecret(m), func(s *secretObject) { s.Labels = nil })
		}),
		Entry("added to the published one", func(w *world, m *v1alpha1.Merchant) {
			change(w, w.signingSecret(m), func(s *secretObject) { s.Data["more"] = []byte("x") })
		}),
		Entry("renamed the published one's source", func(w *world, m *v1alpha1.Merchant) {
			record := w.webhookRecord(Default, m)
			record.Source.Namespace = "elsewhere"
			secret, err := published.EncodeWebhook(w.credentials, record)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.kube.Update(GinkgoT().Context(), secret)).To(Succeed())
		}),
		Entry("lost the status", func(w *world, m *v1alpha1.Merchant) {
			Expect(w.kube.Status().Patch(GinkgoT().Context(), m, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`)))).To(Succeed())
			w.awaitReady(m)
			Expect(m.Status.WebhookSecretName).To(Equal("coffee-webhook"))
		}),
	)

	It("keeps what others put on the merchant's copy", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		change(w, w.secret(w.namespace, "coffee-webhook"), func(s *secretObject) {
			s.Annotations = map[string]string{"replicate-to": "elsewhere"}
			s.Data["secret"] = []byte("whsec_x")
		})
		w.awaitVerifiable(merchant, "coffee-webhook")
		Expect(w.secret(w.namespace, "coffee-webhook").Annotations).To(Equal(map[string]string{"replicate-to": "elsewhere"}))
	})

	It("loses no secret when a pass ends between publishing and delivering", func() {
		var crash atomic.Bool
		crash.Store(true)
		w := newWorld(beforeDelivering(func() error {
			if crash.Load() {
				return errCrash
			}
			return nil
		}))
		merchant := aMerchant("coffee").webhook().Merchant
		w.apply(merchant)
		w.awaitFailed(merchant)
		record := w.webhookRecord(Default, merchant)
		Expect(w.merchantRecord(Default, merchant).Webhook).NotTo(BeNil())
		crash.Store(false)
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "coffee-webhook")
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record))
	})
})
