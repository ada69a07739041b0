package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// publishLastUse does what the dispatcher does.
func (f *fixture) publishLastUse(key *v1alpha1.ApiKey, used time.Time) {
	GinkgoHelper()
	keyID := published.ID(key.UID)
	shard := published.LastUseShard(keyID)
	Eventually(func(g Gomega) {
		configMap := &corev1.ConfigMap{}
		name := types.NamespacedName{Namespace: f.credentials, Name: published.LastUseName(shard)}
		g.Expect(f.kube.Get(context.Background(), name, configMap)).To(Succeed(), "the operator creates it")
		uses, err := published.DecodeLastUses(configMap)
		g.Expect(err).NotTo(HaveOccurred())
		uses[keyID] = used
		want, err := published.EncodeLastUses(f.credentials, shard, uses)
		g.Expect(err).NotTo(HaveOccurred())
		want.ResourceVersion = configMap.ResourceVersion
		g.Expect(f.kube.Update(context.Background(), want)).To(Succeed())
	}).Should(Succeed())
}

func (f *fixture) awaitLastUse(key *v1alpha1.ApiKey, used time.Time) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(key)
		g.Expect(key.Status.LastUsedTime).NotTo(BeNil())
		g.Expect(key.Status.LastUsedTime.Time).To(BeTemporally("==", used))
	}).Should(Succeed())
}

var _ = Describe("The last use of a key", func() {
	It("is in its status, which no reconciliation takes away and no older use turns back", func() {
		f := newFixture()
		f.stop()
		f.startOperator(func(o *Options) { o.LastUseInterval = 20 * time.Millisecond })
		f.merchant(aMerchant("coffee"))
		key, other := f.key(aKey("till", "coffee")), f.key(aKey("web", "coffee"))
		Expect(key.Status.LastUsedTime).To(BeNil())
		used := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		f.publishLastUse(key, used)
		f.awaitLastUse(key, used)

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		f.awaitLastUse(key, used)

		f.publishLastUse(key, used.Add(-time.Hour))
		for minute := range 3 { // rounds in which the older use is seen
			f.publishLastUse(other, used.Add(time.Duration(minute)*time.Minute))
			f.awaitLastUse(other, used.Add(time.Duration(minute)*time.Minute))
		}
		f.awaitLastUse(key, used)
		f.publishLastUse(key, used.Add(time.Hour))
		f.awaitLastUse(key, used.Add(time.Hour))
		f.read(other)
		version := other.ResourceVersion
		f.poke(other, "apikey")
		f.read(other)
		Expect(other.ResourceVersion).To(Equal(version), "nothing is written again")
	})

	It("of a ConfigMap that cannot be read is nobody's, and the others' are reported", func() {
		f := newFixture()
		f.stop()
		f.startOperator(func(o *Options) { o.LastUseInterval = 20 * time.Millisecond })
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		f.publishLastUse(key, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
		for shard := range published.LastUseShards {
			if shard != published.LastUseShard(published.ID(key.UID)) {
				configMap := &corev1.ConfigMap{}
				configMap.Namespace, configMap.Name = f.credentials, published.LastUseName(shard)
				change(f, configMap, func(c *corev1.ConfigMap) { c.Data = map[string]string{"uses.json": "{"} })
			}
		}
		later := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
		f.publishLastUse(key, later)
		f.awaitLastUse(key, later)
	})
})
