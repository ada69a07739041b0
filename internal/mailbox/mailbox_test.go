package mailbox_test

import (
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/mailbox"
)

// A receipt goes to mailboxes on the internet only.
func TestRecipient(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a mailbox", "ada@example.com", "ada@example.com"},
		{"as it is typed", "Ada.Lovelace@Example.COM", "Ada.Lovelace@Example.COM"},
		{"with a plus and a dot", "ada.l+till@shop.example.co.uk", "ada.l+till@shop.example.co.uk"},
		{"with an apostrophe", "o'neill@example.com", "o'neill@example.com"},
		{"an underscore in the domain", "ada@my_shop.example.com", "ada@my_shop.example.com"},
		{"254 characters", strings.Repeat("a", 242) + "@example.com", strings.Repeat("a", 242) + "@example.com"},

		{"an umlaut in the domain", "ada@müller.example", "ada@xn--mller-kva.example"},
		{"an umlaut of two characters", "ada@mu\u0308ller.example", "ada@xn--mller-kva.example"},
		{"a capital umlaut", "ada@MÜLLER.example", "ada@xn--mller-kva.example"},
		{"a sharp s", "ada@straße.example", "ada@xn--strae-oqa.example"},
		{"a domain in Chinese", "ada@例え.中国", "ada@xn--r8jz45g.xn--fiqs8s"},
		{"a domain in Hebrew", "ada@דוגמה.קום", "ada@xn--6dbbec0c.xn--9dbq2a"},
		{"a last label in its own script", "ada@example.рф", "ada@example.xn--p1ai"},
		{"punycode already", "ada@example.xn--55qx5d", "ada@example.xn--55qx5d"},
		{"an ideographic full stop", "ada@例え。中国", "ada@xn--r8jz45g.xn--fiqs8s"},
		{"an umlaut before the at sign", "jörg@müller.example", "jörg@xn--mller-kva.example"},

		{"characters that ASCII drops", "ada@exam" + strings.Repeat("\u00ad", 120) + "ple.com", ""},
		{"nothing", "", ""},
		{"no address", "n/a", ""},
		{"half an address", "ada", ""},
		{"no local part", "@example.com", ""},
		{"no domain", "ada@", ""},
		{"two at signs", "ada@@example.com", ""},
		{"a display name", "Ada <ada@example.com>", ""},
		{"angle brackets", "<ada@example.com>", ""},
		{"mailto", "mailto:ada@example.com", ""},
		{"two addresses", "ada@example.com, bob@example.com", ""},
		{"two addresses, semicolon", "ada@example.com;bob@example.com", ""},
		{"a comment", "ada@example.com (Ada)", ""},
		{"a quoted local part", `"ada b"@example.com`, ""},
		{"space around", " ada@example.com", ""},
		{"space inside", "ada @example.com", ""},
		{"a header behind", "ada@example.com\r\nBcc: bob@example.com", ""},
		{"a command behind", "ada@example.org>\r\nRCPT TO:<eve@example.org", ""},
		{"a final dot", "ada@example.com.", ""},
		{"two dots", "ada@example..com", ""},
		{"255 characters", strings.Repeat("a", 243) + "@example.com", ""},
		{"255 characters in punycode", strings.Repeat("a", 235) + "@mülle.example", ""},
		{"a label that is too long in punycode", "ada@" + strings.Repeat("ü", 60) + ".example", ""},
		{"invalid UTF-8", "ad\xffa@example.com", ""},
		{"an invisible character", "a\u200bda@example.com", ""},
		{"a space that does not break", "ada\u00a0b@example.com", ""},

		{"an address literal", "root@[10.0.0.5]", ""},
		{"an address literal of IPv6", "root@[IPv6:::1]", ""},
		{"an address without brackets", "root@10.0.0.5", ""},
		{"an address in hexadecimal", "root@0x7f.0x1", ""},
		{"one label", "a@localhost", ""},
		{"a local name", "a@mail.localhost", ""},
		{"a Service", "a@smtp.mail.svc.cluster.local", ""},
		{"a name of a cloud", "a@metadata.google.INTERNAL", ""},
		{"a route by percent", "a%internal.example@example.com", ""},
		{"a route by bang", "internal!a@example.com", ""},
		{"a route by colon", "internal:a@example.com", ""},
		{"a route by percent in the domain", "a@internal.example%example.com", ""},
		{"a route by bang in the domain", "a@internal.example!example.com", ""},
		{"a sign that no domain has", "a@example|cat.com", ""},
		{"an address in wide digits", "root@１０.０.０.５", ""},
		{"an address with ideographic dots", "root@10。0。0。5", ""},
		{"an address in circled digits", "root@①⓪.0.0.⑤", ""},
		{"a local name in wide letters", "a@mail.ｌｏｃａｌ", ""},
		{"a local name with an ideographic dot", "a@mail。localhost", ""},
		{"a local name with a hidden hyphen", "a@mail.lo\u00adcal", ""},
		{"a local name with a long s", "a@mail.ſvc", ""},
		{"one label with an ideographic dot", "a@localhost。", ""},
		{"brackets in wide letters", "root@［10.0.0.5］", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := mailbox.Recipient(test.text); got != test.want || ok != (test.want != "") {
				t.Errorf("%q: a receipt goes to %q, %t; want %q", test.text, got, ok, test.want)
			}
		})
	}
}

// What people cannot see costs no receipt.
func TestTrim(t *testing.T) {
	for text, want := range map[string]string{
		"ada@example.com":                    "ada@example.com",
		" ada@example.com ":                  "ada@example.com",
		"\tada@example.com\r\n":              "ada@example.com",
		"\u00a0ada@example.com\u3000":        "ada@example.com",
		"\ufeffada@example.com\u200b":        "ada@example.com",
		"\u202aada@example.com\u202c":        "ada@example.com",
		"ada@example.com\x00":                "ada@example.com",
		" \n ":                               "",
		"\u200b":                             "",
		" ada@example.com\nbob@example.com ": "ada@example.com\nbob@example.com",
	} {
		if got := mailbox.Trim(text); got != want {
			t.Errorf("%q is trimmed to %q, want %q", text, got, want)
		}
	}
}
