package controllers

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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
		w := newWorld()
		foreign := w.squat("taken")
		merchant := aMerchant("coffee").webhook(secretName("taken")).Merchant
		w.apply(merchant)
		w.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(w.secret(w.namespace, "taken")).To(Equal(foreign))
		Expect(w.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
		record := w.webhookRecord(Default, merchant)
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("Warning SecretConflict:")))

		By("suspending it all the same")
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		w.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		Expect(w.merchantRecord(Default, merchant).State).To(Equal(v1alpha1.MerchantSuspended))

		w.delete(foreign)
		w.poke(merchant, "merchant") // it looks by itself as well, once a minute
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "taken")
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record))
	})

	It("is not taken from another Merchant or an ApiKey of the same namespace", func() {
		w := newWorld()
		books := w.merchant(aMerchant("books").webhook(secretName("hooks")))
		w.key(aKey("till", "books"))
		for _, name := range []string{"hooks", "till-key"} {
			before := w.secret(w.namespace, name)
			other := aMerchant("coffee").webhook(secretName(name)).Merchant
			w.apply(other)
			w.awaitStalled(other, v1alpha1.ReasonSecretConflict)
			Expect(w.secret(w.namespace, name)).To(Equal(before))
			w.delete(other)
			w.awaitGone(other)
			Expect(w.secret(w.namespace, name)).To(Equal(before))
		}
		w.awaitVerifiable(books, "hooks")
	})

	It("moves with its name", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		record := w.webhookRecord(Default, merchant)
		change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "hooks" })
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "hooks")
		w.awaitNoSecret("coffee-webhook")
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record))
		Expect(merchant.Status.WebhookSecretName).To(Equal("hooks"))
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("Normal DeliveryRemoved:")))
	})

	It("stays where it is while its new name is taken, and so does the secret", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee").webhook())
		record, foreign := w.webhookRecord(Default, merchant), w.squat("taken")
		change(w, merchant, func(m *v1alpha1.Merchant) {
			m.Spec.Webhook.SecretName = "taken"
			m.Spec.Webhook.RotationTrigger = "b"
		})
		w.awaitStalled(merchant, v1alpha1.ReasonSecretConflict)
		w.awaitVerifiable(merchant, "coffee-webhook")
		Expect(w.webhookRecord(Default, merchant)).To(Equal(record), "a secret that nobody could get would cut the merchant off")
		Expect(merchant.Status.WebhookSecretName).To(Equal("coffee-webhook"))

		w.delete(foreign)
		w.poke(merchant, "merchant")
		w.awaitReady(merchant)
		w.awaitVerifiable(merchant, "taken")
		w.awaitNoSecret("coffee-webhook")
		Expect(w.webhookRecord(Default, merchant).Retired).To(HaveLen(1), "the rotation has happened")
	})
})
