package controllers

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/audittest"
)

// audited returns how many lines of the audit log have these fields.
func (f *fixture) audited(fields audittest.Line) int {
	GinkgoHelper()
	count := 0
	for _, line := range audittest.Lines(GinkgoTB(), f.logs.String()) {
		if line.Has(fields) {
			count++
		}
	}
	return count
}

func (f *fixture) awaitAudited(fields audittest.Line) {
	GinkgoHelper()
	Eventually(func() int { return f.audited(fields) }).Should(BeNumerically(">", 0), "a line has %v", fields)
}

// withoutAnswer lets the next write of a Secret in the credentials namespace fail after it was done, while armed: the operator does not
// know of it, as if it was killed after it.
func withoutAnswer(armed *atomic.Bool) interceptor.Funcs {
	lost := func(object client.Object, err error) error {
		_, isSecret := object.(*corev1.Secret)
		if err == nil && isSecret && strings.HasPrefix(object.GetNamespace(), "credentials-") && armed.CompareAndSwap(true, false) {
			return errors.New("no answer")
		}
		return err
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return lost(object, c.Create(ctx, object, options...))
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return lost(object, c.Update(ctx, object, options...))
		},
	}
}

var _ = Describe("The audit log", func() {
	It("has a line for each change of a key, and none without a change", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").trigger("a"))
		about := audittest.Line{
			"namespace": f.namespace, "name": "till", "keyID": published.ID(key.UID), "merchantID": published.ID(merchant.UID), "generation": 1.0,
		}
		line := func(change, by string, more audittest.Line) audittest.Line {
			want := audittest.Line{"change": change, "by": by}
			maps.Copy(want, about)
			maps.Copy(want, more)
			return want
		}
		f.awaitAudited(line("issued", "spec", audittest.Line{"cause": "Initial"}))
		end := f.clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
		for _, step := range []struct {
			edit func(*v1alpha1.ApiKey)
			want audittest.Line
		}{
			{func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled }, line("disabled", "spec", nil)},
			{func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyActive }, line("enabled", "spec", nil)},
			{func(k *v1alpha1.ApiKey) { k.Spec.Permissions = []v1alpha1.Permission{"create", "read"} },
				line("permissions", "spec", audittest.Line{"to": "create,read"})},
			{func(k *v1alpha1.ApiKey) { k.Spec.Permissions = nil }, line("permissions", "spec", audittest.Line{"to": "all"})},
			{func(k *v1alpha1.ApiKey) { k.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} },
				line("allowlist", "spec", audittest.Line{"to": "203.0.113.0/24"})},
			{func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = aKey("", "").expires(end).Spec.ExpiresAt },
				line("expiry", "spec", audittest.Line{"to": end.Format(time.RFC3339)})},
			{func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" },
				line("rotated", "spec", audittest.Line{"cause": "Trigger", "generation": 2.0})},
		} {
			change(f, key, step.edit)
			f.awaitAudited(step.want)
		}
		about["generation"] = 2.0
		f.clock.advance(2 * time.Hour)
		f.poke(key, "apikey")
		f.awaitAudited(line("expired", "schedule", audittest.Line{"changedAt": end.Format(time.RFC3339)}))
		f.awaitUnusable(key, v1alpha1.ReasonExpired)

		By("restarting")
		before := f.audited(nil)
		f.restart()
		f.poke(key, "apikey")
		f.poke(merchant, "merchant")
		f.poke(key, "apikey")
		Expect(f.audited(line("expired", "schedule", nil))).To(Equal(2), "one of each operator")
		Expect(f.audited(nil)).To(Equal(before+1), "nothing changed")

		f.delete(key)
		f.awaitGone(key)
		Expect(f.audited(line("deleted", "spec", nil))).To(BeNumerically(">", 0))
	})

	// The API writes a line of its own, with address and request. This is what is left if it was killed before it could.
	It("has a line for each rotation over HTTP, also of a replica that was killed", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		id := published.ID(key.UID)
		f.rotateOverHTTP(key)
		f.awaitAudited(audittest.Line{"change": "rotated", "by": "key", "cause": "API", "keyID": id, "generation": 2.0})
		f.awaitReady(key)

		By("rotating while there is no operator")
		f.stop()
		f.rotateOverHTTP(key)
		f.rotateOverHTTP(key)
		f.startOperator()
		f.awaitAudited(audittest.Rotation(id, 3))
		f.awaitAudited(audittest.Line{"change": "rotated", "by": "key", "cause": "API", "keyID": id, "generation": 4.0})

		By("deleting it before an operator has seen the rotation")
		f.awaitReady(key)
		f.stop()
		f.rotateOverHTTP(key)
		f.delete(key)
		f.startOperator()
		f.awaitGone(key)
		f.awaitAudited(audittest.Rotation(id, 5))
		f.awaitAudited(audittest.Line{"change": "deleted", "keyID": id, "generation": 5.0})
	})

	It("has a line for a rotation after which its ApiKey went without an operator", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		id := published.ID(key.UID)
		f.stop()
		f.rotateOverHTTP(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Finalizers = nil })
		f.delete(key)
		f.startOperator()
		f.awaitAudited(audittest.Rotation(id, 2))
		f.awaitAudited(audittest.Line{"change": "deleted", "keyID": id, "generation": 2.0})
	})

	It("has no line because of a forged status", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		reported := func() {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				f.read(key)
				g.Expect(key.Status.KeyGeneration).To(BeEquivalentTo(4))
				g.Expect(key.Status.Conditions).NotTo(BeEmpty())
			}).Should(Succeed())
		}
		for range 3 {
			f.rotateOverHTTP(key)
		}
		reported()
		before := f.audited(nil)
		for range 2 {
			f.forgeStatus(key, map[string]any{"keyGeneration": 1, "conditions": nil})
			reported()
			f.forgeStatus(key, map[string]any{"lastRotation": nil, "conditions": nil})
			reported()
		}
		Expect(f.audited(nil)).To(Equal(before))
	})

	It("has one line for the end of a key, whatever its status says", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		end := f.clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
		key := f.key(aKey("till", "coffee").expires(end))
		f.awaitReady(key)
		f.stop()
		condition := func(kind, status string) map[string]any {
			return map[string]any{
				"type": kind, "status": status, "reason": v1alpha1.ReasonExpired, "message": "forged", "lastTransitionTime": end.Format(time.RFC3339),
			}
		}
		f.forgeStatus(key, map[string]any{"conditions": []any{condition("Ready", "True"), condition("Usable", "False")}})
		f.clock.advance(2 * time.Hour)
		f.startOperator()
		expired := audittest.Line{"change": "expired", "by": "schedule", "changedAt": end.Format(time.RFC3339)}
		f.awaitAudited(expired)

		By("taking the conditions away")
		Eventually(func() string { // the line comes before the status
			f.read(key)
			return readyMessage(key)
		}).ShouldNot(Equal("forged"))
		f.awaitUnusable(key, v1alpha1.ReasonExpired)
		f.forgeStatus(key, map[string]any{"conditions": nil})
		Eventually(func(g Gomega) {
			f.read(key)
			g.Expect(key.Status.Conditions).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(f.audited(expired)).To(Equal(1))

		By("moving the end, and back")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = nil })
		f.awaitReady(key)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = aKey("", "").expires(end).Spec.ExpiresAt })
		f.awaitUnusable(key, v1alpha1.ReasonExpired)
		Expect(f.audited(expired)).To(Equal(2))
	})

	It("has a line for what an operator wrote and was killed before it knew", func() {
		var armed atomic.Bool
		f := newFixture(withoutAnswer(&armed))
		merchant := f.merchant(aMerchant("coffee").webhook())
		key := f.key(aKey("till", "coffee").trigger("a"))
		id := published.ID(key.UID)
		rotated := audittest.Line{"change": "rotated", "by": "spec", "cause": "Trigger", "keyID": id, "generation": 2.0}
		disabled := audittest.Line{"change": "disabled", "keyID": id, "generation": 2.0}
		signing := audittest.Line{"change": "signing secret", "cause": "Trigger", "merchantID": published.ID(merchant.UID)}

		armed.Store(true)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitAudited(rotated)
		Expect(armed.Load()).To(BeFalse())
		f.awaitReady(key)

		armed.Store(true)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		f.awaitAudited(disabled)
		f.awaitUnusable(key, v1alpha1.ReasonDisabled)
		Expect(armed.Load()).To(BeFalse())

		armed.Store(true)
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.RotationTrigger = "b" })
		f.awaitAudited(signing)
		f.awaitReady(merchant)
		Expect(armed.Load()).To(BeFalse())
	})

	It("has a line for each signing secret", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee").webhook())
		about := func(cause string, at time.Time) audittest.Line {
			return audittest.Line{
				"change": "signing secret", "by": "spec", "cause": cause, "namespace": f.namespace, "name": "coffee",
				"merchantID": published.ID(merchant.UID), "changedAt": at.UTC().Format(time.RFC3339Nano),
			}
		}
		f.awaitAudited(about("Initial", f.webhookRecord(Default, merchant).Current.CreatedAt))
		change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.Webhook.RotationTrigger = "b" })
		Eventually(func(g Gomega) { g.Expect(f.webhookRecord(g, merchant).HandledTrigger).To(Equal("b")) }).Should(Succeed())
		f.awaitAudited(about("Trigger", f.webhookRecord(Default, merchant).Current.CreatedAt))

		By("losing it")
		f.delete(f.signingSecret(merchant))
		f.awaitAudited(audittest.Line{"change": "signing secret", "by": "service", "cause": "Recovery", "name": "coffee"})

		f.delete(merchant)
		f.awaitGone(merchant)
		Expect(f.audited(audittest.Line{"change": "signing secret", "to": "none", "name": "coffee"})).To(BeNumerically(">", 0))
	})
})
