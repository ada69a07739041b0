package v1alpha1_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("An update of an ApiKey", func() {
	var key *v1alpha1.ApiKey

	BeforeEach(func(ctx SpecContext) {
		manifest := object(apiKeyManifest, set("spec.delivery", "{secretName: till-1}"))
		create(ctx, manifest)
		key = &v1alpha1.ApiKey{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), key)).To(Succeed())
	})

	It("cannot change merchantRef", func(ctx SpecContext) {
		key.Spec.MerchantRef.Name = "another"
		expectInvalid(kube.Update(ctx, key), "spec.merchantRef", "immutable")
	})
	It("cannot drop merchantRef", func(ctx SpecContext) {
		key.Spec.MerchantRef = v1alpha1.MerchantReference{}
		expectInvalid(kube.Update(ctx, key), "spec.merchantRef", "Required value")
	})
	It("cannot change the mode, in either direction", func(ctx SpecContext) {
		key.Spec.Mode = v1alpha1.ModeTest
		expectInvalid(kube.Update(ctx, key), "spec.mode", "immutable")
		test := object(apiKeyManifest, set("metadata.name", "acme-test-1"), set("spec.mode", "Test"))
		create(ctx, test)
		for _, mode := range []v1alpha1.ApiKeyMode{v1alpha1.ModeLive, ""} { // left out, it is Live
			var read v1alpha1.ApiKey
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(test), &read)).To(Succeed())
			read.Spec.Mode = mode
			expectInvalid(kube.Update(ctx, &read), "spec.mode", "immutable")
		}
	})
	It("cannot set a digest beside a delivery", func(ctx SpecContext) {
		key.Spec.KeyDigest = someDigest
		expectInvalid(kube.Update(ctx, key), "spec.keyDigest", "exclude each other")
	})
	It("can end the delivery, with its Secret and its rotations, and begin it again", func(ctx SpecContext) {
		key.Spec.Rotation.Trigger = "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
		none := v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
		key.Spec.Delivery = none.DeepCopy()
		expectInvalid(kube.Update(ctx, key.DeepCopy()), "spec.rotation.trigger", "needs delivery.policy Secret")
		key.Spec.Rotation.Trigger = ""
		Expect(kube.Update(ctx, key)).To(Succeed())
		key.Spec.Delivery, key.Spec.Rotation.Trigger = nil, "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
	})
	It("can exchange delivery for a digest, and every other field", func(ctx SpecContext) {
		key.Spec.Delivery = nil
		key.Spec.KeyDigest = someDigest
		key.Spec.State = v1alpha1.ApiKeyDisabled
		key.Spec.Rotation.Trigger = "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
		Expect(key.Generation).To(BeEquivalentTo(2))
	})
	It("is held to the rules", func(ctx SpecContext) {
		key.Spec.State = "Paused"
		expectInvalid(kube.Update(ctx, key), "spec.state", "Unsupported value")
	})
})

var _ = Describe("An update of a Merchant", func() {
	var merchant *v1alpha1.Merchant

	BeforeEach(func(ctx SpecContext) {
		manifest := object(merchantManifest)
		create(ctx, manifest)
		merchant = &v1alpha1.Merchant{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), merchant)).To(Succeed())
	})

	It("can suspend, close and activate", func(ctx SpecContext) {
		for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantClosed, v1alpha1.MerchantActive} {
			merchant.Spec.State = state
			Expect(kube.Update(ctx, merchant)).To(Succeed())
		}
	})
	It("is held to the rules", func(ctx SpecContext) {
		merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.1/24"}
		expectInvalid(kube.Update(ctx, merchant), "spec.ipAllowlist[0]", "without host bits")
	})
})
