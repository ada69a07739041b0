package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = DescribeTable("A Merchant is refused with",
	func(ctx SpecContext, mutate mutation, field, message string) {
		expectRefused(ctx, object(merchantManifest, mutate), field, message)
	},
	Entry("no spec", remove("spec"), "spec", "Required value"),
	Entry("a name of 64 characters", text("metadata.name", strings.Repeat("a", 64)), "metadata.name", "no more than 63 characters"),

	Entry("no displayName", remove("spec.displayName"), "spec.displayName", "Required value"),
	Entry("an empty displayName", text("spec.displayName", ""), "spec.displayName", "must have 1 to 128 characters"),
	Entry("a displayName of 129 characters", text("spec.displayName", strings.Repeat("a", 129)), "spec.displayName", "must have 1 to 128 characters"),
	Entry("a displayName of spaces", text("spec.displayName", "  "), "spec.displayName", "space"),
	Entry("a displayName that begins with a space", text("spec.displayName", " Acme"), "spec.displayName", "space"),
	Entry("a displayName with a newline", text("spec.displayName", "Acme\nCoffee"), "spec.displayName", "control characters"),
	Entry("a displayName with a NUL", text("spec.displayName", "Acme\x00Coffee"), "spec.displayName", "control characters"),
	Entry("a displayName with DEL", text("spec.displayName", "Acme\x7fCoffee"), "spec.displayName", "control characters"),
	Entry("a displayName with a C1 control", text("spec.displayName", "Acme\u0085Coffee"), "spec.displayName", "control characters"),
	Entry("a displayName with a line separator", text("spec.displayName", "Acme\u2028Coffee"), "spec.displayName", "control characters"),
	Entry("a displayName that turns the direction", text("spec.displayName", "Acme\u202eeeffoC"), "spec.displayName", "control characters"),
	Entry("a displayName that isolates a direction", text("spec.displayName", "Acme\u2066x\u2069y"), "spec.displayName", "control characters"),
	Entry("a displayName of a zero-width space", text("spec.displayName", "\u200b"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a word joiner", text("spec.displayName", "\u2060"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a byte order mark", text("spec.displayName", "\ufeff"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a Hangul filler", text("spec.displayName", "\u3164"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a Braille blank", text("spec.displayName", "\u2800"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a Mongolian vowel separator", text("spec.displayName", "\u180e"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a combining grapheme joiner", text("spec.displayName", "\u034f"), "spec.displayName", "nobody sees"),
	Entry("a displayName of a variation selector", text("spec.displayName", "\ufe0f"), "spec.displayName", "variation selectors"),
	Entry("a displayName of a combining mark", text("spec.displayName", "\u0301"), "spec.displayName", "must have a letter"),
	Entry("a displayName with a soft hyphen", text("spec.displayName", "Acme\u00ad Coffee"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a zero-width space", text("spec.displayName", "Acme\u200b Coffee"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a left-to-right mark", text("spec.displayName", "Acme\u200e Coffee"), "spec.displayName", "nobody sees"),
	Entry("a displayName with an Arabic letter mark", text("spec.displayName", "Acme\u061c Coffee"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a tag", text("spec.displayName", "Acme\U000e0041 Coffee"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a private character", text("spec.displayName", "Acme\ue000"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a noncharacter", text("spec.displayName", "Acme\ufffe"), "spec.displayName", "nobody sees"),
	Entry("a displayName with a joiner after a Latin letter", text("spec.displayName", "Acme\u200d Coffee"), "spec.displayName", "joiners"),
	Entry("a displayName that ends with a joiner", text("spec.displayName", "\u0645\u200c"), "spec.displayName", "joiners"),
	Entry("a displayName with a variation selector after a letter", text("spec.displayName", "Acme\ufe0f Coffee"), "spec.displayName", "variation selectors"),
	Entry("a displayName of a letter with 100 marks", text("spec.displayName", "A"+strings.Repeat("\u0301", 100)), "spec.displayName", "at most 4 marks"),
	Entry("a displayName with a no-break space", text("spec.displayName", "Acme\u00a0Coffee"), "spec.displayName", "plain spaces"),
	Entry("a displayName with a thin space", text("spec.displayName", "Acme\u2009Coffee"), "spec.displayName", "plain spaces"),
	Entry("a displayName with two spaces", text("spec.displayName", "Acme  Coffee"), "spec.displayName", "plain spaces"),
	Entry("a displayName that is a number", set("spec.displayName", "7"), "spec.displayName", "must be of type string"),

	Entry("an unknown state", set("spec.state", "Paused"), "spec.state", `"Active", "Suspended", "Closed"`),
	Entry("a state in lower case", set("spec.state", "active"), "spec.state", "Unsupported value"),
	Entry("an empty state", text("spec.state", ""), "spec.state", "Unsupported value"),

	Entry("an allowlist with an entry twice", set("spec.ipAllowlist", "[203.0.113.0/24, 203.0.113.0/24]"), "spec.ipAllowlist", "must not have the same entry twice"),
	Entry("an allowlist of 65 entries", set("spec.ipAllowlist", addresses(65)), "spec.ipAllowlist", "must have at most 64 items"),

	Entry("an unknown currency", set("spec.currency", "EUX"), "spec.currency", "must be the ISO 4217 code of a currency in use"),
	Entry("a currency in lower case", set("spec.currency", "eur"), "spec.currency", "in upper case"),
	Entry("an empty currency", text("spec.currency", ""), "spec.currency", "must be the ISO 4217 code"),
	Entry("a currency's name", set("spec.currency", "EURO"), "spec.currency", "must be the ISO 4217 code"),
	Entry("a currency's sign", set("spec.currency", "€"), "spec.currency", "must be the ISO 4217 code"),

	Entry("an unknown time zone", set("spec.timeZone", "Europe/Berln"), "spec.timeZone", "must be the name of a time zone"),
	Entry("a time zone in lower case", set("spec.timeZone", "europe/berlin"), "spec.timeZone", "must be the name of a time zone"),
	Entry("an offset", text("spec.timeZone", "+02:00"), "spec.timeZone", "must be the name of a time zone"),
	Entry("an empty time zone", text("spec.timeZone", ""), "spec.timeZone", "must be the name of a time zone"),
	Entry("the zone of the reader", set("spec.timeZone", "Local"), "spec.timeZone", "must be the name of a time zone"),
	Entry("a path", set("spec.timeZone", "../../etc/localtime"), "spec.timeZone", "must be the name of a time zone"),

	Entry("a colour by name", set("spec.page", "{accentColor: red}"), "spec.page.accentColor", "must be a color like #0b6e4f"),
	Entry("a colour that ends the rule", text("spec.page.accentColor", "#fff;}*"), "spec.page.accentColor", "must be a color like #0b6e4f"),
	Entry("a return URL over plain HTTP", text("spec.page.returnURL", "http://shop.example"), "spec.page.returnURL", "must be an absolute https URL"),
	Entry("a return URL that is a script", text("spec.page.returnURL", "javascript:alert(1)"), "spec.page.returnURL", "must be an absolute https URL"),
	Entry("a relative return URL", text("spec.page.returnURL", "/thanks"), "spec.page.returnURL", "must be an absolute https URL"),
	Entry("a return URL with user info", text("spec.page.returnURL", "https://me@shop.example"), "spec.page.returnURL", "user info"),
	Entry("a return URL with another placeholder", text("spec.page.returnURL", "https://shop.example/{sessionID}"), "spec.page.returnURL", "braces only in {sessionId}"),
	Entry("a return URL with a placeholder as its host", text("spec.page.returnURL", "https://{sessionId}.example/"), "spec.page.returnURL", "must be an absolute https URL"),
	Entry("a return URL with a space", text("spec.page.returnURL", "https://shop.example/a b"), "spec.page.returnURL", "must be"),
	Entry("a return URL that is too long", text("spec.page.returnURL", "https://shop.example/"+strings.Repeat("a", 2048)), "spec.page.returnURL", "may not be more than 2048"),

	Entry("an unknown allowlist mode", set("spec.ipAllowlistMode", "Off"), "spec.ipAllowlistMode", `"Enforce", "Report"`),
	Entry("an empty allowlist mode", text("spec.ipAllowlistMode", ""), "spec.ipAllowlistMode", "Unsupported value"),

	Entry("a rate of zero", set("spec.rateLimit.requestsPerSecond", "0"), "spec.rateLimit.requestsPerSecond", "greater than or equal to 1"),
	Entry("a negative rate", set("spec.rateLimit.requestsPerSecond", "-1"), "spec.rateLimit.requestsPerSecond", "greater than or equal to 1"),
	Entry("a rate above the bound", set("spec.rateLimit.requestsPerSecond", "10001"), "spec.rateLimit.requestsPerSecond", "less than or equal to 10000"),
	Entry("a fraction of a rate", set("spec.rateLimit.requestsPerSecond", "0.5"), "spec.rateLimit.requestsPerSecond", "must be of type integer"),
	Entry("a burst of zero", set("spec.rateLimit.burst", "0"), "spec.rateLimit.burst", "greater than or equal to 1"),
	Entry("a burst above the bound", set("spec.rateLimit.burst", "100001"), "spec.rateLimit.burst", "less than or equal to 100000"),
	Entry("a rate limit that is a number", set("spec.rateLimit", "50"), "spec.rateLimit", "must be of type object"),

	Entry("a lifetime below the bound", set("spec.sessions.lifetimeSeconds", "59"), "spec.sessions.lifetimeSeconds", "greater than or equal to 60"),
	Entry("a lifetime above the bound", set("spec.sessions.lifetimeSeconds", "86401"), "spec.sessions.lifetimeSeconds", "less than or equal to 86400"),
	Entry("a lifetime with a unit", set("spec.sessions.lifetimeSeconds", "15m"), "spec.sessions.lifetimeSeconds", "must be of type integer"),
	Entry("an unknown mismatch policy", set("spec.sessions.idempotencyMismatch", "Ignore"), "spec.sessions.idempotencyMismatch", `"Return", "Reject"`),

	Entry("a webhook without url", set("spec.webhook", "{events: [session.completed]}"), "spec.webhook.url", "Required value"),
	Entry("an unknown event", set("spec.webhook", "{url: 'https://shop.example', events: [session.completed, session.lost]}"), "spec.webhook.events[1]", "Unsupported value"),
	Entry("an event twice", set("spec.webhook", "{url: 'https://shop.example', events: [session.failed, session.failed]}"), "spec.webhook.events", "must not have the same event twice"),
	Entry("a webhook Secret in upper case", set("spec.webhook", "{url: 'https://shop.example', secretName: Hooks}"), "spec.webhook.secretName", "must be the name of a Secret"),
	Entry("an empty webhook Secret name", set("spec.webhook", "{url: 'https://shop.example', secretName: ''}"), "spec.webhook.secretName", "must be the name of a Secret"),
)

var _ = DescribeTable("A Merchant is accepted with",
	func(ctx SpecContext, mutate mutation) {
		Expect(kube.Create(ctx, object(merchantManifest, mutate), client.DryRunAll)).To(Succeed())
	},
	Entry("a displayName with an ideographic space", text("spec.displayName", "\u682a\u5f0f\u4f1a\u793e\u3000\u30a2\u30af\u30e1")),
	Entry("a name of 63 characters", text("metadata.name", strings.Repeat("a", 63))),
	Entry("a display name in any script", text("spec.displayName", "Kaffee Ähre & カフェ ☕ (مقهى)")),
	Entry("a display name with a joined emoji", text("spec.displayName", "Acme 👩‍🍳")),
	Entry("a display name with emoji in color", text("spec.displayName", "I ❤\ufe0f Tea 1\ufe0f\u20e3")),
	Entry("a display name with joiners of its script", text("spec.displayName", "می\u200cخواهم क्\u200dष")),
	Entry("a display name with accents of their own", text("spec.displayName", "Cafe\u0301 Ha\u0302\u0301t")),
	Entry("a display name of 128 characters, not bytes", text("spec.displayName", strings.Repeat("カ", 128))),
	Entry("state Suspended", set("spec.state", "Suspended")),
	Entry("state Closed", set("spec.state", "Closed")),
	Entry("a currency without a minor unit", set("spec.currency", "JPY")),
	Entry("a time zone of a city", set("spec.timeZone", "America/Argentina/Buenos_Aires")),
	Entry("a time zone by its offset", set("spec.timeZone", "Etc/GMT+5")),
	Entry("the time zone UTC", set("spec.timeZone", "UTC")),
	Entry("an empty page", set("spec.page", "{}")),
	Entry("a return URL with the id of the session", text("spec.page.returnURL", "https://shop.example/thanks/{sessionId}?session={sessionId}")),
	Entry("a page", set("spec.page", "{accentColor: '#0B6e4f', returnURL: 'https://shop.example/thanks?from=a@b#done'}")),
	Entry("the smallest limits", set("spec.rateLimit", "{requestsPerSecond: 1, burst: 1}")),
	Entry("the largest limits", set("spec.rateLimit", "{requestsPerSecond: 10000, burst: 100000}")),
	Entry("the shortest lifetime", set("spec.sessions.lifetimeSeconds", "60")),
	Entry("the longest lifetime", set("spec.sessions.lifetimeSeconds", "86400")),
	Entry("mismatches rejected", set("spec.sessions.idempotencyMismatch", "Reject")),
	Entry("an empty allowlist", set("spec.ipAllowlist", "[]")),
	Entry("an allowlist of null", set("spec.ipAllowlist", "null")),
	Entry("an allowlist that reports only", set("spec.ipAllowlistMode", "Report")),
	Entry("every event", set("spec.webhook", `{url: "https://shop.example", secretName: acme.hooks-1, events: [session.created,
		session.completed, session.failed, session.expired, session.cancelled, session.late_payment,
		session.payment_mismatch, session.payment_refunded, key.rotated]}`)),
	Entry("no events", set("spec.webhook", "{url: 'https://shop.example', events: []}")),
)

func TestTimeZone_Location(t *testing.T) {
	for zone, want := range map[v1alpha1.TimeZone]string{
		"Europe/Berlin": "Europe/Berlin", "UTC": "UTC", "": "UTC",
		"Moon/Tycho": "UTC", // a merchant must not fail for a zone of a newer database
	} {
		if got := zone.Location().String(); got != want {
			t.Errorf("%q: %s, want %s", zone, got, want)
		}
	}
}

func TestWebhookEvent_Listed(t *testing.T) {
	only := []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated}
	for name, test := range map[string]struct {
		event v1alpha1.WebhookEvent
		list  []v1alpha1.WebhookEvent
		want  bool
	}{
		"no list":              {v1alpha1.EventKeyRotated, nil, true},
		"created, no list":     {v1alpha1.EventSessionCreated, nil, false},
		"listed":               {v1alpha1.EventSessionCreated, only, true},
		"not listed":           {v1alpha1.EventKeyRotated, only, false},
		"a test, no list":      {v1alpha1.EventWebhookTest, nil, true},
		"a test, another list": {v1alpha1.EventWebhookTest, only, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.event.Listed(test.list); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

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
)

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
