package controllers

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// tearOut deletes an object without any regard for its finalizer, while no operator runs.
func (w *world) tearOut(object client.Object) {
	GinkgoHelper()
	w.read(object)
	before := object.DeepCopyObject().(client.Object)
	object.SetFinalizers(nil)
	Expect(w.kube.Patch(context.Background(), object, client.MergeFrom(before))).To(Succeed())
	w.delete(object)
	w.awaitGone(object)
}

func (w *world) publishedNames() []string {
	GinkgoHelper()
	var names []string
	var secrets corev1.SecretList
	Expect(w.kube.List(context.Background(), &secrets, client.InNamespace(w.credentials))).To(Succeed())
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	var configMaps corev1.ConfigMapList
	selector := client.MatchingLabels{published.Label: published.LabelMerchant}
	Expect(w.kube.List(context.Background(), &configMaps, client.InNamespace(w.credentials), selector)).To(Succeed())
	for i := range configMaps.Items {
		names = append(names, configMaps.Items[i].Name)
	}
	return names
}

var _ = Describe("A Merchant with a webhook that went without its finalizer", func() {
	It("leaves nothing that signs, and takes nobody else's", func() {
		w := newWorld()
		coffee, books := w.merchant(aMerchant("coffee").webhook()), w.merchant(aMerchant("books").webhook())
		w.stop()
		w.tearOut(coffee)
		Expect(w.publishedNames()).To(HaveLen(4), "nobody was there to clean up")
		w.startOperator()
		Eventually(w.publishedNames).Should(ConsistOf(
			published.WebhookName(published.ID(books.UID)), published.MerchantName(published.ID(books.UID))))
	})

	It("is noticed while the operator runs", func() {
		w := newWorld()
		w.tearOut(w.merchant(aMerchant("coffee").webhook()))
		Eventually(w.publishedNames).Should(BeEmpty())
	})
})

var _ = Describe("An object that went without its finalizer", func() {
	It("leaves no key that works, and takes nobody else's", func() {
		w := newWorld()
		coffee, books := w.merchant(aMerchant("coffee")), w.merchant(aMerchant("books"))
		till, web := w.key(aKey("till", "coffee")), w.key(aKey("web", "books"))
		w.stop()
		w.tearOut(till)
		w.tearOut(coffee)
		Expect(w.publishedNames()).To(HaveLen(4), "nobody was there to clean up")

		w.startOperator()
		Eventually(w.publishedNames).Should(ConsistOf(
			published.KeyName(published.ID(web.UID)), published.MerchantName(published.ID(books.UID))))
		Expect(w.record(web).Generation).To(BeEquivalentTo(1))
	})

	It("is noticed while the operator runs", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		till := w.key(aKey("till", "coffee"))
		name := published.KeyName(published.ID(till.UID))
		w.tearOut(till)
		Eventually(w.publishedNames).ShouldNot(ContainElement(name))
	})

	It("is left alone in namespaces of another operator", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		till := w.key(aKey("till", "coffee"))
		record := w.record(till)
		w.stop()
		record.KeyID, record.Source = "abcdefgh2345", published.Source{Namespace: "elsewhere", Name: "till", UID: "1"}
		foreign, err := published.EncodeKey(w.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.kube.Create(context.Background(), foreign)).To(Succeed())
		before := w.versions()
		seen := passes("orphaned-key")
		w.startOperator()
		Eventually(func() int { return passes("orphaned-key") }).Should(BeNumerically(">=", seen+2))
		Expect(w.versions()).To(Equal(before))
		Expect(till.Status.KeyGeneration).To(BeEquivalentTo(1))
	})
})
