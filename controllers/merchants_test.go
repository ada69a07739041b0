package controllers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// configMap returns what is published of a Merchant; nil: nothing.
func (f *fixture) configMap(merchant *v1alpha1.Merchant) *corev1.ConfigMap {
	GinkgoHelper()
	configMap := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: f.credentials, Name: published.MerchantName(published.ID(merchant.UID))}
	err := f.kube.Get(context.Background(), name, configMap)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return configMap
}

// merchantRecord returns what the data plane reads of a Merchant.
func (f *fixture) merchantRecord(g Gomega, merchant *v1alpha1.Merchant) published.MerchantRecord {
	GinkgoHelper()
	configMap := f.configMap(merchant)
	g.Expect(configMap).NotTo(BeNil())
	g.Expect(configMap.Labels).To(HaveKeyWithValue(published.Label, published.LabelMerchant))
	record, err := published.DecodeMerchant(configMap)
	g.Expect(err).NotTo(HaveOccurred())
	return record
}

var _ = Describe("A Merchant", func() {
	It("is published as its spec says, and shows its id", func() {
		f := newFixture()
		merchant := aMerchant("coffee").Merchant
		merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
		merchant.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
		f.apply(merchant)
		f.awaitReady(merchant)
		Expect(f.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
		Expect(merchant.Status.MerchantID).To(Equal("mer_" + published.ID(merchant.UID)))
		Eventually(func() []string { return f.events(merchant) }).Should(ContainElement(ContainSubstring("Normal Published:")))
	})

	It("is suspended for the data plane as well, and comes back", func() {
		f := newFixture()
		merchant := f.merchant(aMerchant("coffee"))
		for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantActive} {
			change(f, merchant, func(m *v1alpha1.Merchant) { m.Spec.State = state })
			f.awaitReady(merchant)
			Expect(f.merchantRecord(Default, merchant).State).To(Equal(state))
		}
	})

	DescribeTable("gets its ConfigMap back as it was after somebody",
		func(harm func(*fixture, *corev1.ConfigMap)) {
			f := newFixture()
			merchant := f.merchant(aMerchant("coffee").state(v1alpha1.MerchantSuspended))
			want := f.configMap(merchant)
			harm(f, want.DeepCopy())
			Eventually(func(g Gomega) {
				got := f.configMap(merchant)
				g.Expect(got).NotTo(BeNil())
				g.Expect(got.Data).To(Equal(want.Data))
				g.Expect(got.Labels).To(Equal(want.Labels))
			}).Should(Succeed())
		},
		Entry("edited it", func(f *fixture, c *corev1.ConfigMap) {
			c.Data["merchant.json"] = `{"version":1,"state":"Active"}`
			Expect(f.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("added to it", func(f *fixture, c *corev1.ConfigMap) {
			c.Data["more"] = "x"
			Expect(f.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("took its label", func(f *fixture, c *corev1.ConfigMap) {
			c.Labels = nil
			Expect(f.kube.Update(context.Background(), c)).To(Succeed())
		}),
		Entry("deleted it", func(f *fixture, c *corev1.ConfigMap) { f.delete(c) }),
	)

	It("takes over a ConfigMap that has its name and no label", func() {
		f := newFixture()
		f.stop()
		merchant := aMerchant("coffee").Merchant
		f.apply(merchant)
		squatter := &corev1.ConfigMap{}
		squatter.Namespace, squatter.Name = f.credentials, published.MerchantName(published.ID(merchant.UID))
		squatter.Data = map[string]string{"other": "data"}
		Expect(f.kube.Create(context.Background(), squatter)).To(Succeed())
		f.restart()
		f.awaitReady(merchant)
		Expect(f.merchantRecord(Default, merchant)).To(Equal(published.NewMerchantRecord(merchant)))
	})

	It("takes its ConfigMap with it when it is deleted, and leaves what is not its own", func() {
		f := newFixture()
		merchant, other := f.merchant(aMerchant("coffee")), f.merchant(aMerchant("books"))
		f.delete(merchant)
		f.awaitGone(merchant)
		Expect(f.configMap(merchant)).To(BeNil())
		Expect(f.configMap(other)).NotTo(BeNil())
	})

	It("that was deleted and created again is another one", func() {
		f := newFixture()
		former := f.merchant(aMerchant("coffee"))
		f.delete(former.DeepCopy())
		f.awaitGone(former.DeepCopy())
		merchant := f.merchant(aMerchant("coffee"))
		Expect(merchant.Status.MerchantID).NotTo(Equal(former.Status.MerchantID))
		Expect(f.configMap(former)).To(BeNil())
		Expect(f.configMap(merchant)).NotTo(BeNil())
	})
})

var _ = Describe("A Merchant that cannot be published", func() {
	It("leaves its ApiKeys waiting, and they are Ready once it is", func() {
		quota, full := errors.New("exceeded quota"), atomic.Bool{}
		full.Store(true)
		f := newFixture(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if _, ok := object.(*corev1.ConfigMap); ok && full.Load() && strings.HasPrefix(object.GetName(), "merchant-") {
					return quota
				}
				return c.Create(ctx, object, options...)
			},
		})
		merchant := aMerchant("coffee").Merchant
		f.apply(merchant)
		f.awaitFailed(merchant)
		key := f.applied(aKey("till", "coffee"))
		f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonMerchantNotPublished)
		Expect(f.delivered("till-key").ID()).To(Equal(published.ID(key.UID)), "the key is issued")
		Expect(f.events(key)).NotTo(ContainElement(HavePrefix("Warning")))
		full.Store(false)
		f.awaitReady(merchant)
		f.awaitReady(key)
	})
})
