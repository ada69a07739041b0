package controllers

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

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
		f.poke(merchant, "merchant") // it also checks by itself, once a minute
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
		f.poke(merchant, "merchant") // it also checks by itself, at that time
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
