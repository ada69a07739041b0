package v1alpha1_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// allowlist puts the entry in second place, so that the message must find it.
func allowlist(entry string) mutation {
	return set("spec.ipAllowlist", fmt.Sprintf("[203.0.113.0/24, %q]", entry))
}

var _ = DescribeTable("An allowlist entry is refused that is",
	func(ctx SpecContext, entry, message string) {
		expectRefused(ctx, object(merchantManifest, allowlist(entry)), "spec.ipAllowlist[1]", message)
	},
	Entry("empty", "", "must be an IP address"),
	Entry("a hostname", "shop.example", "must be an IP address"),
	Entry("a block with host bits", "198.51.100.7/24", "without host bits"),
	Entry("an IPv6 block with host bits", "2001:db8::1/48", "without host bits"),
	Entry("IPv4 mapped into IPv6", "::ffff:198.51.100.7", "must be an IP address"),
	Entry("IPv4 mapped into IPv6, in hex", "::ffff:c633:6407", "must be an IP address"),
	Entry("a block of IPv4 mapped into IPv6", "::ffff:198.51.100.0/120", "must be an IP address"),
	Entry("an address with a zone", "fe80::1%eth0", "must be an IP address"),
	Entry("a block with a zone", "fe80::%eth0/64", "must be an IP address"),
	Entry("an address with a leading zero", "198.51.100.007", "must be an IP address"),
	Entry("three octets", "198.51.100", "must be an IP address"),
	Entry("an octet beyond 255", "198.51.100.256", "must be an IP address"),
	Entry("a prefix length beyond the address", "198.51.100.0/33", "must be an IP address"),
	Entry("a negative prefix length", "198.51.100.0/-1", "must be an IP address"),
	Entry("a prefix length with a leading zero", "198.51.100.0/024", "must be an IP address"),
	Entry("a netmask", "198.51.100.0/255.255.255.0", "must be an IP address"),
	Entry("a range", "198.51.100.1-198.51.100.9", "must be an IP address"),
	Entry("an address with a port", "198.51.100.7:443", "must be an IP address"),
	Entry("an address in brackets", "[2001:db8::1]", "must be an IP address"),
	Entry("an address with a space", " 198.51.100.7", "must be an IP address"),
	Entry("a wildcard", "198.51.100.*", "must be an IP address"),
	Entry("longer than any address", strings.Repeat("1", 44), "must be an IP address"),
	Entry("there already", "203.0.113.0/24", "Duplicate value"),
)

var _ = Describe("An allowlist", func() {
	It("is refused when it has 65 entries", func(ctx SpecContext) {
		entries := make([]string, 65)
		for i := range entries {
			entries[i] = fmt.Sprintf("203.0.113.%d", i)
		}
		tooLong := object(merchantManifest, set("spec.ipAllowlist", "["+strings.Join(entries, ", ")+"]"))
		expectRefused(ctx, tooLong, "spec.ipAllowlist", "must have at most 64 items")
	})
})

var _ = DescribeTable("An allowlist entry is accepted that is",
	func(ctx SpecContext, entry string) {
		Expect(kube.Create(ctx, object(merchantManifest, allowlist(entry)), client.DryRunAll)).To(Succeed())

		// What the CRD lets pass, the data plane must be able to read.
		_, err := published.ParseAllowlist([]v1alpha1.IPBlock{v1alpha1.IPBlock(entry)})
		Expect(err).NotTo(HaveOccurred())
	},
	Entry("an IPv4 address", "198.51.100.7"),
	Entry("an IPv4 block", "198.51.100.0/25"),
	Entry("a block of one address", "198.51.100.7/32"),
	Entry("all of IPv4", "0.0.0.0/0"),
	Entry("an IPv6 address", "2001:db8::7"),
	Entry("an IPv6 block", "2001:db8::/48"),
	Entry("an IPv6 block in upper case", "2001:DB8:A::/48"),
	Entry("the shortest address", "::"),
	Entry("the longest block", "2001:0db8:0000:0000:0000:0000:0000:0000/128"),
	Entry("all of IPv6", "::/0"),
)
