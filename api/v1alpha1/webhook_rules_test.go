package v1alpha1_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = DescribeTable("A webhook URL is refused that",
	func(ctx SpecContext, url, message string) {
		expectRefused(ctx, object(merchantManifest, text("spec.webhook.url", url)), "spec.webhook.url", message)
	},
	Entry("is empty", "", "absolute http(s) URL"),
	Entry("is too long", "https://shop.example/"+strings.Repeat("a", 2028), "may not be more than 2048"),
	Entry("is a hostname", "shop.example", "absolute http(s) URL"),
	Entry("is relative", "/hooks", "absolute http(s) URL"),
	Entry("has no scheme", "//shop.example/hooks", "absolute http(s) URL"),
	Entry("has another scheme", "ftp://shop.example/hooks", "absolute http(s) URL"),
	Entry("has the scheme of a script", "javascript:alert(1)", "absolute http(s) URL"),
	Entry("has the scheme of a file", "file:///etc/passwd", "absolute http(s) URL"),
	Entry("has no host", "https:///hooks", "absolute http(s) URL"),
	Entry("has a port but no host", "https://:443/hooks", "absolute http(s) URL"),
	Entry("is opaque", "https:shop.example", "absolute http(s) URL"),
	Entry("has an unfinished IPv6 host", "https://[2001:db8::1/hooks", "absolute http(s) URL"),
	Entry("has a bad escape", "https://shop.example/%zz", "absolute http(s) URL"),
	Entry("has a user", "https://user@shop.example/hooks", "user info"),
	Entry("has a user and a password", "https://user:word@shop.example/hooks", "user info"),
	Entry("has an empty user", "https://@shop.example/hooks", "user info"),
	Entry("has a fragment", "https://shop.example/hooks#top", "fragment"),
	Entry("has an empty fragment", "https://shop.example/hooks#", "fragment"),
	Entry("has a space in its host", "https://shop example/hooks", "absolute http(s) URL"),
	Entry("has a space in its path", "https://shop.example/the hooks", "visible ASCII"),
	Entry("has a space after it", "https://shop.example/hooks ", "visible ASCII"),
	Entry("has a newline after it", "https://shop.example/hooks\n", "absolute http(s) URL"),
	Entry("has a control character", "https://shop.example/\x01", "absolute http(s) URL"),
	Entry("has a letter outside ASCII", "https://kaffee-ähre.example/", "visible ASCII"),
	Entry("has port zero", "https://shop.example:0/hooks", "port from 1 to 65535"),
	Entry("has a port beyond 65535", "https://shop.example:65536/hooks", "port from 1 to 65535"),
	Entry("has a port beyond all numbers", "https://shop.example:99999999999999999999/hooks", "port from 1 to 65535"),
	Entry("has a port that is a word", "https://shop.example:https/hooks", "absolute http(s) URL"),
)

var _ = DescribeTable("A webhook URL is accepted that",
	func(ctx SpecContext, url string) {
		Expect(kube.Create(ctx, object(merchantManifest, text("spec.webhook.url", url)), client.DryRunAll)).To(Succeed())
	},
	Entry("is only a host", "https://shop.example"),
	Entry("has a path and a query", "https://shop.example/hooks?till=1&mail=a@b"),
	Entry("has an @ in its path", "https://shop.example/@hooks"),
	Entry("has a port", "https://shop.example:65535/hooks"),
	Entry("has an IPv6 host", "https://[2001:db8::1]:8443/hooks"),
	Entry("has a punycode host", "https://xn--kaffee-hre-z5a.example/"),
	Entry("has the scheme http", "http://127.0.0.1:9000/hooks"),
	Entry("has escapes", "https://shop.example/%20hooks"),
	Entry("is as long as can be", "https://shop.example/"+strings.Repeat("a", 2027)),
)
