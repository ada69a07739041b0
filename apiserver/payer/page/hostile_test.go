package page

import (
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Whoever writes the Merchant, or the session in Redis, must not get markup, a script or the rest of the line.
func TestPage_HostileTexts(t *testing.T) {
	pages := newPages(t)
	for _, name := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</bdi></p><h1>Paid</h1>`, `{{.Payload}}`, "' onload='x", "\u202eeeffoC emcA", "<!--",
		strings.Repeat("A", 4000), "\x00\xff", "Z\u0351\u0352\u0353", "javascript:alert(1)",
	} {
		for _, status := range states {
			payment := newPayment(status)
			plain, err := pages.Payment("ar", payment)
			if err != nil {
				t.Fatal(err)
			}
			payment.MerchantName, payment.Receipt.Order = name, name
			hostile, err := pages.Payment("ar", payment)
			if err != nil {
				t.Fatal(err)
			}
			if before, after := outline(parse(t, plain)), outline(parse(t, hostile)); before != after {
				t.Errorf("%.20q changes the page from\n%s\nto\n%s", name, before, after)
			}
		}
	}
	payment := newPayment(session.Completed)
	for _, returnURL := range []string{"javascript:alert(1)", "http://shop.example", "data:text/html,x", "//shop.example", "/relative", "%", " https://x"} {
		payment.ReturnURL = returnURL
		rendered, err := pages.Payment("en", payment)
		if err != nil {
			t.Fatal(err)
		}
		if got := links(parse(t, rendered)); len(got) > 0 {
			t.Errorf("%s: the page links to %v", returnURL, got)
		}
	}
}

// outline are the elements of a page with the names of their attributes.
func outline(root *html.Node) string {
	var outline strings.Builder
	for node := range root.Descendants() {
		if node.Type == html.ElementNode {
			outline.WriteString("<" + node.Data)
			for _, a := range node.Attr {
				outline.WriteString(" " + a.Key)
			}
			outline.WriteString(">")
		}
	}
	return outline.String()
}
