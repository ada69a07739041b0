package v1alpha1_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// An expiry the API server lets pass but Go cannot decode would make every list of ApiKeys fail, for
// all tenants: the date-time format alone accepts several of these.
var _ = DescribeTable("An expiry is refused that",
	func(ctx SpecContext, expiresAt string) {
		expectRefused(ctx, object(apiKeyManifest, text("spec.expiresAt", expiresAt)), "spec.expiresAt", "")
	},
	Entry("is empty", ""),
	Entry("is a word", "tomorrow"),
	Entry("is a date", "2027-01-01"),
	Entry("has no zone", "2027-01-01T00:00:00"),
	Entry("has a space for the T", "2027-01-01 00:00:00Z"),
	Entry("has a small t", "2027-01-01t00:00:00Z"),
	Entry("has a small z", "2027-01-01T00:00:00z"),
	Entry("has a comma in its seconds", "2027-01-01T00:00:00,5Z"),
	Entry("has a letter in its seconds", "2027-01-01T00:00:00x5Z"),
	Entry("has an offset beyond a day", "2027-01-01T00:00:00+24:00"),
	Entry("has an offset beyond an hour's minutes", "2027-01-01T00:00:00+01:60"),
	Entry("has hour 24", "2027-01-01T24:00:00Z"),
	Entry("has a leap second", "2027-12-31T23:59:60Z"),
	Entry("has a month that is none", "2027-13-01T00:00:00Z"),
	Entry("has a day that is none", "2027-02-29T00:00:00Z"),
	Entry("is of another millennium", "9999-12-31T23:59:59-23:00"),
	Entry("is followed by a newline", "2027-01-01T00:00:00Z\n"),
)

var _ = DescribeTable("An expiry is accepted, and read by Go, that",
	func(ctx SpecContext, expiresAt string) {
		key := object(apiKeyManifest, text("spec.expiresAt", expiresAt))
		create(ctx, key)
		var read v1alpha1.ApiKey
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(key), &read)).To(Succeed())
		Expect(read.Spec.ExpiresAt.IsZero()).To(BeFalse())
		Expect(kube.List(ctx, &v1alpha1.ApiKeyList{})).To(Succeed())
	},
	Entry("is in UTC", "2027-01-01T00:00:00Z"),
	Entry("has an offset", "2027-01-01T00:00:00+05:30"),
	Entry("has the largest offset", "2027-01-01T00:00:00-23:59"),
	Entry("has fractions of a second", "2027-01-01T23:59:59.123456789Z"),
	Entry("is a leap day", "2028-02-29T00:00:00Z"),
	Entry("is the last of its millennium", "2999-12-31T23:59:59Z"),
	Entry("has passed", "2020-01-01T00:00:00Z"),
)
