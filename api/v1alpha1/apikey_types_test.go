package v1alpha1_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var someDigest = strings.Repeat("0123456789abcdef", 4)

var _ = DescribeTable("An ApiKey is refused with",
	func(ctx SpecContext, mutate mutation, field, message string) {
		expectRefused(ctx, object(apiKeyManifest, mutate), field, message)
	},
	Entry("no spec", remove("spec"), "spec", "Required value"),
	Entry("a name of 64 characters", text("metadata.name", strings.Repeat("a", 64)), "metadata.name", "no more than 63 characters"),

	Entry("no merchantRef", remove("spec.merchantRef"), "spec.merchantRef", "Required value"),
	Entry("a merchantRef without a name", set("spec.merchantRef", "{}"), "spec.merchantRef.name", "Required value"),
	Entry("a merchantRef with an empty name", text("spec.merchantRef.name", ""), "spec.merchantRef.name", "must be the name of a Merchant in the same namespace"),
	Entry("a merchantRef in upper case", text("spec.merchantRef.name", "Acme"), "spec.merchantRef.name", "must be the name of a Merchant in the same namespace"),
	Entry("a merchantRef in another namespace", text("spec.merchantRef.name", "shops/acme"), "spec.merchantRef.name", "must be the name of a Merchant in the same namespace"),
	Entry("a merchantRef with an empty label", text("spec.merchantRef.name", "acme..coffee"), "spec.merchantRef.name", "must be the name of a Merchant in the same namespace"),
	Entry("a merchantRef of 64 characters", text("spec.merchantRef.name", strings.Repeat("a", 64)), "spec.merchantRef.name", "at most 63 lower-case letters"),
	Entry("a merchantRef that is a word", set("spec.merchantRef", "acme-coffee"), "spec.merchantRef", "must be of type object"),

	Entry("an unknown state", set("spec.state", "Paused"), "spec.state", `"Active", "Disabled"`),
	Entry("a merchant's state", set("spec.state", "Suspended"), "spec.state", "Unsupported value"),

	Entry("no permission at all", set("spec.permissions", "[]"), "spec.permissions", "at least 1 items"),
	Entry("an unknown permission", set("spec.permissions", "[read, payout]"), "spec.permissions[1]", `"create", "read", "list", "cancel", "rotate", "refund"`),
	Entry("a permission in upper case", set("spec.permissions", "[Read]"), "spec.permissions[0]", "Unsupported value"),
	Entry("all permissions in a word", set("spec.permissions", "['*']"), "spec.permissions[0]", "Unsupported value"),
	Entry("a permission twice", set("spec.permissions", "[read, read]"), "spec.permissions", "must not have the same permission twice"),
	Entry("permissions that are a word", set("spec.permissions", "read"), "spec.permissions", "must be of type array"),

	Entry("an allowlist with a hostname", set("spec.ipAllowlist", "[203.0.113.0/24, shop.example]"), "spec.ipAllowlist[1]", "must be an IP address"),
	Entry("an allowlist with host bits", set("spec.ipAllowlist", "[203.0.113.7/24]"), "spec.ipAllowlist[0]", "without host bits"),
	Entry("an allowlist with an address twice", set("spec.ipAllowlist", "[203.0.113.7, 203.0.113.7]"), "spec.ipAllowlist", "must not have the same entry twice"),
	Entry("an allowlist of 65 entries", set("spec.ipAllowlist", addresses(65)), "spec.ipAllowlist", "must have at most 64 items"),

	Entry("an empty Secret name", set("spec.delivery", "{secretName: ''}"), "spec.delivery.secretName", "must be the name of a Secret"),
	Entry("a Secret name with an underscore", set("spec.delivery", "{secretName: till_1}"), "spec.delivery.secretName", "must be the name of a Secret"),
	Entry("a Secret name with an empty label", set("spec.delivery", "{secretName: till..1}"), "spec.delivery.secretName", "must be the name of a Secret"),
	Entry("a Secret name that ends with a dash", set("spec.delivery", "{secretName: till-}"), "spec.delivery.secretName", "must be the name of a Secret"),
	Entry("a Secret name of 254 characters", text("spec.delivery.secretName", strings.Repeat("a", 254)), "spec.delivery.secretName", "may not be more than 253"),
	Entry("a negative retention", set("spec.delivery", "{retainSeconds: -1}"), "spec.delivery.retainSeconds", "greater than or equal to 0"),
	Entry("a retention above a year", set("spec.delivery", "{retainSeconds: 31536001}"), "spec.delivery.retainSeconds", "less than or equal to 31536000"),

	Entry("an unknown policy of delivery", set("spec.delivery", "{policy: Mail}"), "spec.delivery.policy", `"Secret", "None"`),
	Entry("a Secret to deliver nothing to", set("spec.delivery", "{policy: None, secretName: till-1}"), "spec.delivery.secretName", "needs policy Secret"),
	Entry("a retention of nothing", set("spec.delivery", "{policy: None, retainSeconds: 60}"), "spec.delivery.retainSeconds", "needs policy Secret"),
	Entry("a trigger for a key that nobody would get", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {policy: None}, rotation: {trigger: a}}"),
		"spec.rotation.trigger", "needs delivery.policy Secret"),
	Entry("a schedule of keys that nobody would get", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {policy: None}, rotation: {everySeconds: 86400}}"),
		"spec.rotation.everySeconds", "needs delivery.policy Secret"),
	Entry("a digest and no delivery", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {policy: None}, keyDigest: "+someDigest+"}"),
		"spec.keyDigest", "exclude each other"),

	Entry("a digest of 63 digits", text("spec.keyDigest", someDigest[1:]), "spec.keyDigest", "must be the SHA-256 of the key, as 64 lower-case hex digits"),
	Entry("a digest of 65 digits", text("spec.keyDigest", someDigest+"0"), "spec.keyDigest", "must be the SHA-256 of the key"),
	Entry("a digest in upper case", text("spec.keyDigest", strings.ToUpper(someDigest)), "spec.keyDigest", "must be the SHA-256 of the key, as 64 lower-case hex digits"),
	Entry("a digest with its algorithm", text("spec.keyDigest", "sha256:"+someDigest[7:]), "spec.keyDigest", "must be the SHA-256 of the key, as 64 lower-case hex digits"),
	Entry("a digest with a newline after it", text("spec.keyDigest", someDigest[1:]+"\n"), "spec.keyDigest", "must be the SHA-256 of the key, as 64 lower-case hex digits"),
	Entry("an empty digest", text("spec.keyDigest", ""), "spec.keyDigest", "must be the SHA-256 of the key, as 64 lower-case hex digits"),
	Entry("a digest of zeros", text("spec.keyDigest", strings.Repeat("0", 64)), "spec.keyDigest", "not a placeholder"),
	Entry("a digest and a delivery", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {secretName: till-1}, keyDigest: "+someDigest+"}"),
		"spec.keyDigest", "exclude each other"),
	Entry("a digest and an empty delivery", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {}, keyDigest: "+someDigest+"}"),
		"spec.keyDigest", "exclude each other"),

	Entry("a trigger of 257 characters", text("spec.rotation.trigger", strings.Repeat("a", 257)), "spec.rotation.trigger", "may not be more than 256"),
	Entry("a trigger that is a number", set("spec.rotation.trigger", "20261121"), "spec.rotation.trigger", "must be of type string"),
	Entry("a schedule below the bound", set("spec.rotation", "{everySeconds: 299, overlapSeconds: 0}"), "spec.rotation.everySeconds", "greater than or equal to 300"),
	Entry("a schedule above the bound", set("spec.rotation.everySeconds", "315360001"), "spec.rotation.everySeconds", "less than or equal to 315360000"),
	Entry("an overlap above the schedule", set("spec.rotation", "{everySeconds: 3600, overlapSeconds: 3601}"), "spec.rotation.overlapSeconds", "must not be longer than everySeconds"),
	Entry("the default overlap above the schedule", set("spec.rotation", "{everySeconds: 86399}"), "spec.rotation.overlapSeconds", "overlapSeconds (default: 86400, one day) must not be longer than everySeconds"),
	Entry("a negative overlap", set("spec.rotation.overlapSeconds", "-1"), "spec.rotation.overlapSeconds", "greater than or equal to 0"),
	Entry("an overlap above a year", set("spec.rotation.overlapSeconds", "31536001"), "spec.rotation.overlapSeconds", "less than or equal to 31536000"),
)

var _ = DescribeTable("An ApiKey is accepted with",
	func(ctx SpecContext, mutate mutation) {
		Expect(kube.Create(ctx, object(apiKeyManifest, mutate), client.DryRunAll)).To(Succeed())
	},
	Entry("a name of 63 characters", text("metadata.name", strings.Repeat("a", 63))),
	Entry("state Disabled", set("spec.state", "Disabled")),
	Entry("one permission", set("spec.permissions", "[read]")),
	Entry("all permissions", set("spec.permissions", "[rotate, cancel, list, read, create]")),
	Entry("an empty allowlist", set("spec.ipAllowlist", "[]")),
	Entry("an allowlist of 64 entries", set("spec.ipAllowlist", addresses(64))),
	Entry("an empty delivery", set("spec.delivery", "{}")),
	Entry("the longest Secret name", text("spec.delivery.secretName", strings.Repeat("a", 253))),
	Entry("a Secret name with dots", set("spec.delivery", "{secretName: acme.till-1.key, retainSeconds: 31536000}")),
	Entry("no delivery", set("spec.delivery", "{policy: None}")),
	Entry("no delivery, and what means nothing", set("spec", "{merchantRef: {name: acme-coffee}, delivery: {policy: None, retainSeconds: 0}, rotation: {trigger: '', overlapSeconds: 60}}")),
	Entry("the default policy in full", set("spec.delivery", "{policy: Secret, secretName: till-1, retainSeconds: 60}")),
	Entry("a digest", text("spec.keyDigest", someDigest)),
	Entry("no overlap", set("spec.rotation.overlapSeconds", "0")),
	Entry("the longest overlap", set("spec.rotation.overlapSeconds", "31536000")),
	Entry("the shortest schedule", set("spec.rotation", "{everySeconds: 300, overlapSeconds: 300}")),
	Entry("the longest schedule", set("spec.rotation.everySeconds", "315360000")),
	Entry("an empty trigger", text("spec.rotation.trigger", "")),
	Entry("a trigger of 256 characters of any kind", text("spec.rotation.trigger", strings.Repeat("☕", 256))),
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
