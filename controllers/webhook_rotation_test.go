package controllers

import (
	"encoding/base64"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func (w *world) rotateSigning(merchant *v1alpha1.Merchant, trigger string) published.WebhookRecord {
	GinkgoHelper()
	change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.RotationTrigger = trigger })
	w.awaitReady(merchant)
	w.awaitVerifiable(merchant, "coffee-webhook")
	record := w.webhookRecord(Default, merchant)
	Expect(record.HandledTrigger).To(Equal(trigger))
	return record
}

var _ = Describe("A rotation of a signing secret", func() {
	It("delivers a new one, and for a day both sign", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		old := w.verifier("coffee-webhook")
		record := w.rotateSigning(merchant, "b")
		fresh := w.verifier("coffee-webhook")
		Expect(fresh.Equal(old)).To(BeFalse())
		Expect(record.SigningSecrets(w.clock.Now())).To(Equal([]published.SigningSecret{fresh, old}))
		Expect(record.Retired[0].ValidUntil).To(BeTemporally("~", w.clock.Now().Add(24*time.Hour), time.Minute))
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("Normal SigningSecretRotated:")))

		w.clock.advance(24*time.Hour + time.Minute)
		Expect(record.SigningSecrets(w.clock.Now())).To(Equal([]published.SigningSecret{fresh}))
		w.poke(merchant, "merchant") // it looks by itself as well, at that time
		Eventually(func(g Gomega) { g.Expect(w.webhookRecord(g, merchant).Retired).To(BeEmpty()) }).Should(Succeed())
		Expect(string(w.signingSecret(merchant).Data["webhook.json"])).NotTo(ContainSubstring(old.Reveal()))
		w.awaitVerifiable(merchant, "coffee-webhook")
	})

	It("happens once for each change of the trigger, whatever is restarted or lost", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook(func(h *v1alpha1.Webhook) { h.RotationTrigger = "a" }))
		Expect(w.webhookRecord(Default, merchant).Retired).To(BeEmpty(), "the first secret is none's successor")
		record := w.rotateSigning(merchant, "b")
		w.restart()
		w.poke(merchant, "merchant")
		w.awaitReady(merchant)
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(w.rotateSigning(merchant, "a").Retired).To(HaveLen(2), "also back to an earlier one")
		Expect(w.rotateSigning(merchant, "").Retired).To(HaveLen(3), "also to none")
	})

	It("is not caused by anything else in the webhook", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		record := w.webhookRecord(Default, merchant)
		change(w, merchant, func(m *v1alpha1.Merchant) {
			m.Spec.Webhook.URL = "https://shop.example/elsewhere"
			m.Spec.Webhook.ResumeTrigger = "again"
			m.Spec.Webhook.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
		})
		w.awaitReady(merchant)
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(w.merchantRecord(Default, merchant).Webhook.ResumeTrigger).To(Equal("again"), "the dispatcher hears of it")
	})
})

var _ = Describe("A signing secret", func() {
	It("is in the published and the delivered Secret, and nowhere else", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		secrets := []string{w.verifier("coffee-webhook").Reveal()}
		w.rotateSigning(merchant, "b")
		secrets = append(secrets, w.verifier("coffee-webhook").Reveal())
		change(w, w.signingSecret(merchant), func(s *secretObject) { s.Data["webhook.json"] = []byte(`{"version":1,"current":` + secrets[0]) })
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("SigningSecretLost")))
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "moved" })
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "moved")
		secrets = append(secrets, w.verifier("moved").Reveal())
		for where, text := range w.everything() {
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
