package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("Finalizers of others", func() {
	theirs := []string{"example.com/backup", "example.com/audit"}

	DescribeTable("survive creation and deletion of",
		func(apply func(*fixture) client.Object) {
			f := newFixture()
			object := apply(f)
			f.awaitReady(object)
			Expect(object.GetFinalizers()).To(ConsistOf(append([]string{v1alpha1.Finalizer}, theirs...)))

			f.delete(object)
			Eventually(func() []string {
				f.read(object)
				return object.GetFinalizers()
			}).Should(Equal(theirs))
			change(f, object, func(o client.Object) { o.SetFinalizers(nil) })
			f.awaitGone(object)
		},
		Entry("a Merchant", func(f *fixture) client.Object {
			merchant := aMerchant("coffee").Merchant
			merchant.Finalizers = theirs
			f.apply(merchant)
			return merchant
		}),
		Entry("an ApiKey", func(f *fixture) client.Object {
			f.merchant(aMerchant("coffee"))
			key := aKey("till", "coffee").ApiKey
			key.Finalizers = theirs
			f.apply(key)
			return key
		}),
	)
})
