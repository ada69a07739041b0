package controllers

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// tearOut deletes an object without any regard for its finalizer, while no operator runs.
func (f *fixture) tearOut(object client.Object) {
	GinkgoHelper()
	f.read(object)
	before := object.DeepCopyObject().(client.Object)
	object.SetFinalizers(nil)
	Expect(f.kube.Patch(context.Background(), object, client.MergeFrom(before))).To(Succeed())
	f.delete(object)
	f.awaitGone(object)
}

func (f *fixture) publishedNames() []string {
	GinkgoHelper()
	var names []string
	var secrets corev1.SecretList
	Expect(f.kube.List(context.Background(), &secrets, client.InNamespace(f.credentials))).To(Succeed())
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	var configMaps corev1.ConfigMapList
	selector := client.MatchingLabels{published.Label: published.LabelMerchant}
	Expect(f.kube.List(context.Background(), &configMaps, client.InNamespace(f.credentials), selector)).To(Succeed())
	for i := range configMaps.Items {
		names = append(names, configMaps.Items[i].Name)
	}
	return names
}

var _ = Describe("A Merchant with a webhook that went without its finalizer", func() {
	It("leaves nothing that signs, and takes nobody else's", func() {
		f := newFixture()
		coffee, books := f.merchant(aMerchant("coffee").webhook()), f.merchant(aMerchant("books").webhook())
		f.stop()
		f.tearOut(coffee)
		Expect(f.publishedNames()).To(HaveLen(4), "nobody was there to clean up")
		f.startOperator()
		Eventually(f.publishedNames).Should(ConsistOf(
			published.WebhookName(published.ID(books.UID)), published.MerchantName(published.ID(books.UID))))
	})

	It("is noticed while the operator runs", func() {
		f := newFixture()
		f.tearOut(f.merchant(aMerchant("coffee").webhook()))
		Eventually(f.publishedNames).Should(BeEmpty())
	})
})

var _ = Describe("An object that went without its finalizer", func() {
	It("leaves no key that works, and takes nobody else's", func() {
		f := newFixture()
		coffee, books := f.merchant(aMerchant("coffee")), f.merchant(aMerchant("books"))
		till, web := f.key(aKey("till", "coffee")), f.key(aKey("web", "books"))
		f.stop()
		f.tearOut(till)
		f.tearOut(coffee)
		Expect(f.publishedNames()).To(HaveLen(4), "nobody was there to clean up")

		f.startOperator()
		Eventually(f.publishedNames).Should(ConsistOf(
			published.KeyName(published.ID(web.UID)), published.MerchantName(published.ID(books.UID))))
		Expect(f.record(web).Generation).To(BeEquivalentTo(1))
	})

	It("leaves no record of a newer version", func() {
		f := newFixture()
		coffee := f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		f.stop()
		later := strings.NewReplacer(`"version":1`, `"version":2`, `"lastRotation":`, `"lastRotation":7,"was":`, `"rateLimit":`, `"rateLimit":7,"was":`)
		change(f, f.publishedSecret(till), func(s *secretObject) { s.Data["record.json"] = []byte(later.Replace(string(s.Data["record.json"]))) })
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(coffee.UID))
		change(f, configMap, func(c *corev1.ConfigMap) { c.Data["merchant.json"] = later.Replace(c.Data["merchant.json"]) })
		f.tearOut(till)
		f.tearOut(coffee)
		f.startOperator()
		Eventually(f.publishedNames).Should(BeEmpty())
		for _, name := range []string{published.KeyTombstoneName(published.ID(till.UID)), published.MerchantTombstoneName(published.ID(coffee.UID))} {
			f.read(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.credentials, Name: name}})
		}
	})

	It("is noticed while the operator runs", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		name := published.KeyName(published.ID(till.UID))
		f.tearOut(till)
		Eventually(f.publishedNames).ShouldNot(ContainElement(name))
	})

	It("is left alone in namespaces of another operator", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		till := f.key(aKey("till", "coffee"))
		record := f.record(till)
		f.waitForLastUses()
		f.stop()
		record.KeyID, record.Source = "abcdefgh2345", published.Source{Namespace: "elsewhere", Name: "till", UID: "1"}
		foreign, err := published.EncodeKey(f.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.kube.Create(context.Background(), foreign)).To(Succeed())
		before := f.versions()
		seen := passes("orphaned-key")
		f.startOperator()
		Eventually(func() int { return passes("orphaned-key") }).Should(BeNumerically(">=", seen+2))
		Expect(f.versions()).To(Equal(before))
		Expect(till.Status.KeyGeneration).To(BeEquivalentTo(1))
	})
})
