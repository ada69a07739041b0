package v1alpha1_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var defaultMerchantSpec = v1alpha1.MerchantSpec{
	DisplayName:     "Acme Coffee",
	State:           v1alpha1.MerchantActive,
	Currency:        v1alpha1.DefaultCurrency,
	IPAllowlistMode: v1alpha1.IPAllowlistEnforce,
	RateLimit:       v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
	Sessions:        v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
}

var defaultApiKeySpec = v1alpha1.ApiKeySpec{
	MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"},
	State:       v1alpha1.ApiKeyActive,
	Mode:        v1alpha1.ModeLive,
	Rotation:    v1alpha1.Rotation{OverlapSeconds: new(int32(86400))},
}

var _ = DescribeTable("A Merchant gets the defaults when it leaves out",
	func(ctx SpecContext, mutate mutation, change func(*v1alpha1.MerchantSpec)) {
		manifest := object(merchantManifest, mutate)
		create(ctx, manifest)
		var merchant v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), &merchant)).To(Succeed())
		want := *defaultMerchantSpec.DeepCopy()
		if change != nil {
			change(&want)
		}
		Expect(merchant.Spec).To(Equal(want))
	},
	Entry("everything", remove("spec.state"), nil),
	Entry("by null", set("spec", "{displayName: Acme Coffee, state: null, ipAllowlistMode: null, rateLimit: null, sessions: null}"), nil),
	Entry("what is in empty objects", set("spec", "{displayName: Acme Coffee, rateLimit: {}, sessions: {}}"), nil),
	Entry("half of the rate limit", set("spec.rateLimit", "{burst: 7}"),
		func(spec *v1alpha1.MerchantSpec) { spec.RateLimit.Burst = 7 }),
	Entry("half of the session settings", set("spec.sessions", "{idempotencyMismatch: Reject}"),
		func(spec *v1alpha1.MerchantSpec) {
			spec.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject
		}),
	Entry("fractions that are none", set("spec.rateLimit", "{requestsPerSecond: 20.0}"),
		func(spec *v1alpha1.MerchantSpec) { spec.RateLimit.RequestsPerSecond = 20 }),
)

var _ = DescribeTable("An ApiKey gets the defaults when it leaves out",
	func(ctx SpecContext, mutate mutation, change func(*v1alpha1.ApiKeySpec)) {
		manifest := object(apiKeyManifest, mutate)
		create(ctx, manifest)
		var key v1alpha1.ApiKey
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), &key)).To(Succeed())
		want := *defaultApiKeySpec.DeepCopy()
		if change != nil {
			change(&want)
		}
		Expect(key.Spec).To(Equal(want))
	},
	Entry("everything", remove("spec.state"), nil),
	Entry("by null", set("spec", "{merchantRef: {name: acme-coffee}, state: null, rotation: null}"), nil),
	Entry("the overlap", set("spec.rotation", "{trigger: a}"),
		func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.Trigger = "a" }),
	Entry("nothing of the overlap, which is zero", set("spec.rotation", "{overlapSeconds: 0}"),
		func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.OverlapSeconds = new(int32(0)) }),
	Entry("the policy and the retention", set("spec.delivery", "{secretName: till-1}"),
		func(spec *v1alpha1.ApiKeySpec) {
			spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliverySecret, SecretName: "till-1", RetainSeconds: new(int32(0))}
		}),
)

// A field nobody knows is a typing error: kubectl asks for this validation by default.
var _ = Describe("An unknown field", func() {
	It("is named and refused", func(ctx SpecContext) {
		misspelt := object(merchantManifest, set("spec.ipAllowList", "[203.0.113.0/24]"))
		err := kube.Create(ctx, misspelt, client.DryRunAll, client.FieldValidation("Strict"))
		Expect(err).To(MatchError(ContainSubstring(`unknown field "spec.ipAllowList"`)))
	})
})
