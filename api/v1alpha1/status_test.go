package v1alpha1_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

var owner = client.FieldOwner("merchant-operator")

func readyCondition(generation int64) *metav1ac.ConditionApplyConfiguration {
	return metav1ac.Condition().
		WithType(v1alpha1.ReadyCondition).
		WithStatus(metav1.ConditionTrue).
		WithReason(v1alpha1.ReasonPublished).
		WithMessage("published").
		WithObservedGeneration(generation).
		WithLastTransitionTime(metav1.NewTime(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)))
}

var _ = Describe("The status of a Merchant", func() {
	var merchant *v1alpha1.Merchant

	BeforeEach(func(ctx SpecContext) {
		merchant = &v1alpha1.Merchant{
			ObjectMeta: metav1.ObjectMeta{Name: "acme-coffee", Namespace: "default"},
			Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme Coffee"},
			Status:     v1alpha1.MerchantStatus{ObservedGeneration: 7, MerchantID: "mer_forged"},
		}
		create(ctx, merchant)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
	})

	It("says, before the operator does, that nothing was observed", func() {
		Expect(merchant.Status).To(Equal(v1alpha1.MerchantStatus{ObservedGeneration: -1}))
	})

	It("is what the operator applies, and its spec cannot be changed that way", func(ctx SpecContext) {
		status := ac.MerchantStatus().WithObservedGeneration(1).WithMerchantID("mer_abcdefgh2345").WithConditions(readyCondition(1))
		applied := ac.Merchant(merchant.Name, merchant.Namespace).
			WithSpec(ac.MerchantSpec().WithDisplayName("Another")).
			WithStatus(status)
		Expect(kube.Status().Apply(ctx, applied, owner)).To(Succeed())

		var read v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), &read)).To(Succeed())
		Expect(read.Spec).To(Equal(merchant.Spec))
		Expect(read.Generation).To(Equal(merchant.Generation))
		Expect(read.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(read.Status.MerchantID).To(Equal("mer_abcdefgh2345"))
		Expect(read.Status.Conditions).To(HaveLen(1))

		By("applying the same again, which writes nothing")
		Expect(kube.Status().Apply(ctx, applied, owner)).To(Succeed())
		var again v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), &again)).To(Succeed())
		Expect(again.ResourceVersion).To(Equal(read.ResourceVersion))
	})

	It("loses a condition that the operator no longer applies", func(ctx SpecContext) {
		reconciling := readyCondition(1).WithType(v1alpha1.ReconcilingCondition)
		status := ac.MerchantStatus().WithObservedGeneration(1).WithConditions(readyCondition(1), reconciling)
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())
		status = ac.MerchantStatus().WithObservedGeneration(2).WithConditions(readyCondition(2))
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		Expect(merchant.Status.ObservedGeneration).To(BeEquivalentTo(2))
		Expect(merchant.Status.Conditions).To(HaveExactElements(HaveField("Type", v1alpha1.ReadyCondition)))
	})

	It("is kept by whoever applies the spec", func(ctx SpecContext) {
		status := ac.MerchantStatus().WithObservedGeneration(1)
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())
		spec := ac.Merchant(merchant.Name, merchant.Namespace).
			WithSpec(ac.MerchantSpec().WithDisplayName("Acme Tea")).
			WithStatus(ac.MerchantStatus().WithObservedGeneration(9))
		Expect(kube.Apply(ctx, spec, client.FieldOwner("gitops"), client.ForceOwnership)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		Expect(merchant.Spec.DisplayName).To(Equal("Acme Tea"))
		Expect(merchant.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(merchant.Generation).To(BeEquivalentTo(2))
	})
})

var _ = Describe("The status of an ApiKey", func() {
	var key *v1alpha1.ApiKey

	BeforeEach(func(ctx SpecContext) {
		key = &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Name: "acme-till-1", Namespace: "default"},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"}},
		}
		create(ctx, key)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(key), key)).To(Succeed())
	})

	It("says, before the operator does, that nothing was observed", func() {
		Expect(key.Status).To(Equal(v1alpha1.ApiKeyStatus{ObservedGeneration: -1}))
	})

	It("takes everything the operator has to say", func(ctx SpecContext) {
		moment := metav1.NewTime(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC))
		status := ac.ApiKeyStatus().
			WithObservedGeneration(1).
			WithKeyID("abcdefgh2345").
			WithPrefix("mk_live_abcdefgh2345_0123").
			WithKeyGeneration(2).
			WithLastRotation(ac.RotationStatus().WithTime(moment).WithCause(v1alpha1.RotationTrigger)).
			WithNextRotationTime(moment).
			WithObservedTrigger("2026-11-21").
			WithConditions(readyCondition(1))
		Expect(kube.Status().Apply(ctx, ac.ApiKey(key.Name, key.Namespace).WithStatus(status), owner)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(key), key)).To(Succeed())
		Expect(key.Status.KeyID).To(Equal("abcdefgh2345"))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(2))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(key.Status.NextRotationTime.Time).To(BeTemporally("==", moment.Time))
		Expect(key.Status.ObservedTrigger).To(Equal("2026-11-21"))
	})

	It("refuses a cause that is none", func(ctx SpecContext) {
		status := ac.ApiKeyStatus().WithLastRotation(ac.RotationStatus().WithTime(metav1.Now()).WithCause("Whim"))
		err := kube.Status().Apply(ctx, ac.ApiKey(key.Name, key.Namespace).WithStatus(status), owner)
		expectInvalid(err, "status.lastRotation.cause", "Unsupported value")
	})
})
