package session_test

import (
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestReturnURL_Invalid(t *testing.T) {
	for name, address := range map[string]string{
		"plain http":             "http://shop.example/",
		"a script":               "javascript:alert(1)",
		"a path":                 "/orders/1001",
		"without a scheme":       "//shop.example/",
		"without a host":         "https:///orders",
		"without slashes":        "https:shop.example",
		"a port only":            "https://:443/",
		"user info":              "https://shop.example@evil.example/",
		"a password":             "https://a:b@shop.example/",
		"a backslash":            `https://shop.example\@evil.example/`,
		"a backslash as a slash": `https:\\shop.example`,
		"a space":                "https://shop.example/a b",
		"an umlaut":              "https://shop.example/ä",
		"a line break":           "https://shop.example/\n",
		"a typing error":         "https://shop.example/{sessionID}",
		"an open brace":          "https://shop.example/{sessionId",
		"the id as the host":     "https://{sessionId}/",
		"the id in the host":     "https://{sessionId}.shop.example/",
		"513 characters":         "https://shop.example/" + strings.Repeat("a", 492),
	} {
		err := charge(func(c *session.Charge) { c.ReturnURL = address }).Validate()
		if err == nil || err.Error() != "returnUrl "+session.ReturnURLRule {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, address := range []string{
		"https://shop.example", "HTTPS://shop.example:8443/?a=b@c#d", "https://shop.example/{sessionId}?session={sessionId}#{sessionId}", "https://[2001:db8::1]/",
		"https://shop.example/" + strings.Repeat("a", 491),
	} {
		if err := charge(func(c *session.Charge) { c.ReturnURL = address }).Validate(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The Merchant says to which hosts its pages lead, the charge only to which page there.
func TestReturnURL(t *testing.T) {
	id := session.NewID("abcdefgh2345", false)
	for name, test := range map[string]struct{ merchants, charges, want string }{
		"neither":                          {"", "", ""},
		"the Merchant's":                   {"https://shop.example/thanks?a=b", "", "https://shop.example/thanks?a=b"},
		"the Merchant's with the id":       {"https://shop.example/{sessionId}?s={sessionId}", "", "https://shop.example/ID?s=ID"},
		"the charge's":                     {"https://shop.example/thanks", "https://shop.example/orders/1001", "https://shop.example/orders/1001"},
		"the charge's with the id":         {"https://shop.example", "https://shop.example/orders/1001?s={sessionId}", "https://shop.example/orders/1001?s=ID"},
		"in another spelling":              {"https://shop.example/", "HTTPS://SHOP.example:443/a", "HTTPS://SHOP.example:443/a"},
		"on the same port":                 {"https://shop.example:8443/", "https://shop.example:8443/a", "https://shop.example:8443/a"},
		"on another port":                  {"https://shop.example:8443/", "https://shop.example/a", "https://shop.example:8443/"},
		"another host":                     {"https://shop.example/thanks", "https://evil.example/", "https://shop.example/thanks"},
		"a subdomain":                      {"https://shop.example/thanks", "https://a.shop.example/", "https://shop.example/thanks"},
		"a host that begins like it":       {"https://shop.example/thanks", "https://shop.example.evil.example/", "https://shop.example/thanks"},
		"the host as user info":            {"https://shop.example/thanks", "https://shop.example@evil.example/", "https://shop.example/thanks"},
		"another scheme":                   {"https://shop.example/thanks", "http://shop.example/", "https://shop.example/thanks"},
		"no host":                          {"https://shop.example/thanks", "/orders", "https://shop.example/thanks"},
		"a Merchant without a URL":         {"", "https://shop.example/", ""},
		"a Merchant without, nor the host": {"", "/orders", ""},
	} {
		if got := strings.ReplaceAll(session.ReturnURL(id, test.merchants, test.charges), id.String(), "ID"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
