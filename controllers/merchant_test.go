package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// configMap returns what is published of a Merchant; nil: nothing.
func (w *world) configMap(merchant *v1alpha1.Merchant) *corev1.ConfigMap {
	GinkgoHelper()
	configMap := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: w.credentials, Name: published.MerchantName(published.ID(merchant.UID))}
	err := w.kube.Get(context.Background(), name, configMap)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return configMap
}

// merchantRecord returns what the data plane reads of a Merchant.
func (w *world) merchantRecord(g Gomega, merchant *v1alpha1.Merchant) published.MerchantRecord {
	GinkgoHelper()
	configMap := w.configMap(merchant)
	g.Expect(configMap).NotTo(BeNil())
	g.Expect(configMap.Labels).To(HaveKeyWithValue(published.Label, published.LabelMerchant))
	record, err := published.DecodeMerchant(configMap)
	g.Expect(err).NotTo(HaveOccurred())
	return record
}

var _ = Describe("A Merchant", func() {
	It("is published as its spec says, and shows its id", func() {
		w := newWorld()
		merchant := aMerchant("coffee").Merchant
		merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
		merchant.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
		w.apply(merchant)
		w.awaitReady(merchant)
		Expect(w.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
		Expect(merchant.Status.MerchantID).To(Equal("mer_" + published.ID(merchant.UID)))
		Eventually(func() []string { return w.events(merchant) }).Should(ContainElement(ContainSubstring("Normal Published:")))
	})

	It("is suspended for the data plane as well, and comes back", func() {
		w := newWorld()
		merchant := w.merchant(aMerchant("coffee"))
		for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantActive} {
			change(w, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = state })
			w.awaitReady(merchant)
			Expect(w.merchantRecord(Default, merchant).State).To(Equal(state))
		}
	})

	DescribeTable("gets its ConfigMap back as it was after somebody",
		func(harm func(*world, *corev1.ConfigMap)) {
			w := newWorld()
			merchant := w.merchant(aMerchant("coffee").state(v1alpha1.MerchantSuspended))
			want := w.configMap(merchant)
			harm(w, want.DeepCopy())
			Eventually(func(g Gomega) {
				got := w.configMap(merchant)
				g.Expect(got).NotTo(BeNil())
				g.Expect(got.Data).To(Equal(want.Data))
				g.Expect(got.Labels).To(Equal(want.Labels))
			}).Should(Succeed())
		},
		Entry("edited it", func(w *world, c *corev1.ConfigMap) {
			c.Data["merchant.json"] = `{"version":1,"state":"Active"}`
			Expect(w.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("added to it", func(w *world, c *corev1.ConfigMap) {
			c.Data["more"] = "x"
			Expect(w.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("took its label", func(w *world, c *corev1.ConfigMap) {
			c.Labels = nil
			Expect(w.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("deleted it", func(w *world, c *corev1.ConfigMap) { w.delete(c) }),
	)

	It("takes over a ConfigMap that has its name and no label", func() {
		w := newWorld()
		w.stop()
		merchant := aMerchant("coffee").Merchant
		w.apply(merchant)
		squatter := &corev1.ConfigMap{}
		squatter.Namespace, squatter.Name = w.credentials, published.MerchantName(published.ID(merchant.UID))
		squatter.Data = map[string]string{"other": "data"}
		Expect(w.kube.Create(context.Background(), squatter)).To(Succeed())
		w.restart()
		w.awaitReady(merchant)
		Expect(w.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
	})

	It("takes its ConfigMap with it when it is deleted, and leaves what is not its own", func() {
		w := newWorld()
		merchant, other := w.merchant(aMerchant("coffee")), w.merchant(aMerchant("books"))
		w.delete(merchant)
		w.awaitGone(merchant)
		Expect(w.configMap(merchant)).To(BeNil())
		Expect(w.configMap(other)).NotTo(BeNil())
	})

	It("that was deleted and created again is another one", func() {
		w := newWorld()
		former := w.merchant(aMerchant("coffee"))
		w.delete(former.DeepCopy())
		w.awaitGone(former.DeepCopy())
		merchant := w.merchant(aMerchant("coffee"))
		Expect(merchant.Status.MerchantID).NotTo(Equal(former.Status.MerchantID))
		Expect(w.configMap(former)).To(BeNil())
		Expect(w.configMap(merchant)).NotTo(BeNil())
	})
})
