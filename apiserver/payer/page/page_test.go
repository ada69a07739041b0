package page

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func newPages(t *testing.T) *Pages {
	t.Helper()
	pages, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// newPayment is a payment with everything that a page can show.
func newPayment(status session.Status) *Payment {
	id := session.NewID("abcdefgh2345", false)
	return &Payment{
		ID: id, MerchantName: "Acme Coffee", Description: "2 flat whites", AmountCents: 1250, Currency: "EUR", Status: status, ExpiresIn: 871*time.Second + 1,
		Payload: "pay://qr/" + id.String(), QRText: "pay://qr/" + id.String(),
		AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks?a=1&b=2",
		Receipt: Receipt{TaxCents: 110, TipCents: 100, Order: "1001", PaidAt: paidAt},
	}
}

var paidAt = time.Date(2026, 11, 21, 10, 15, 0, 0, time.FixedZone("CET", 3600))

var (
	final  = []session.Status{session.Completed, session.Failed, session.Expired, session.Cancelled}
	states = append([]session.Status{session.Pending}, final...)
)

// The pending page.
func TestPage_Pending(t *testing.T) {
	pages, payment := newPages(t), newPayment(session.Pending)
	rendered, err := pages.Payment("en", payment)
	if err != nil {
		t.Fatal(err)
	}
	page := parse(t, rendered)
	main := one(t, page, "main")
	for name, want := range map[string]string{
		"id": "payment", "data-status": "PENDING", "data-status-url": "/api/v1/public/sessions/" + payment.ID.String(), "data-expires-in": "872",
	} {
		if got := attribute(main, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for i, section := range all(page, "section") {
		if got := attribute(section, "data-state"); got != string(states[i]) {
			t.Errorf("section %d is of %s, want %s", i, got, states[i])
		}
		if hidden := has(section, "hidden"); hidden != (i > 0) {
			t.Errorf("the section of %s is hidden: %v", states[i], hidden)
		}
	}
	text := text(main)
	for _, want := range []string{"Payment to Acme Coffee 2 flat whites €12.50", "Time left 14:32", "Check again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page: %s", want, text)
		}
	}
	links := links(page)
	if want := []string{payment.Payload, "/pay/" + payment.ID.String()}; !slices.Equal(links[:1], want[:1]) || !slices.Contains(links, want[1]) {
		t.Errorf("the links are %v, want %v among them", links, want)
	}
	code, err := NewCode(payment.QRText)
	if err != nil || !bytes.Contains(rendered, []byte(code.Path)) {
		t.Errorf("the QR code is not on the page: %v", err)
	}
	if read, _ := scan(t, code); read != payment.Payload {
		t.Errorf("the QR code holds %q", read)
	}
}

// The final pages say what to do.
func TestPage_Final(t *testing.T) {
	pages := newPages(t)
	const again, refunded = "do not pay again", "is refunded"
	for status, want := range map[session.Status][]string{
		session.Completed: {"Paid", "You can close this page"},
		session.Failed:    {"Payment failed", again, "ask the shop for a new code"},
		session.Expired:   {"This code has expired", again, refunded, "ask the shop for a new code"},
		session.Cancelled: {"Payment cancelled", again, refunded},
	} {
		rendered, err := pages.Payment("en", newPayment(status))
		if err != nil {
			t.Fatal(err)
		}
		page := parse(t, rendered)
		shown := text(one(t, page, "main"))
		for _, part := range append(want, "Payment to Acme Coffee 2 flat whites €12.50") {
			if !strings.Contains(shown, part) {
				t.Errorf("%s: %q is not on the page: %s", status, part, shown)
			}
		}
		if section := one(t, page, "section"); attribute(section, "data-state") != string(status) || has(section, "hidden") {
			t.Errorf("%s: another section is shown", status)
		}
		if got := links(page); !slices.Equal(got, []string{"https://shop.example/thanks?a=1&b=2"}) {
			t.Errorf("%s: the links are %v, want the way back to the shop only", status, got)
		}
		if bytes.Contains(rendered, []byte("pay://")) || strings.Contains(string(rendered), `class="qr"`) {
			t.Errorf("%s: the page still leads to a payment", status)
		}
		if title := text(one(t, page, "title")); !strings.HasPrefix(title, want[0]) {
			t.Errorf("%s: the title is %q", status, title)
		}
	}
}

// The other pages say what to do.
func TestPage_Problem(t *testing.T) {
	pages := newPages(t)
	for status, want := range map[int][]string{
		http.StatusNotFound:            {"Payment not found", "Check the link", "do not pay again"},
		http.StatusTooManyRequests:     {"Too many requests", "Wait a moment", "Check again"},
		http.StatusServiceUnavailable:  {"Temporarily unavailable", "Wait a moment", "do not pay again", "Check again"},
		http.StatusInternalServerError: {"Temporarily unavailable", "Check again"},
	} {
		problem, err := pages.Problem("en", status)
		rendered := problem.Content
		if err != nil {
			t.Fatal(err)
		}
		shown := text(one(t, parse(t, rendered), "main"))
		for _, part := range want {
			if !strings.Contains(shown, part) {
				t.Errorf("%d: %q is not on the page: %s", status, part, shown)
			}
		}
		if asks := strings.Contains(shown, "Check again"); asks != bytes.Contains(rendered, []byte(`<script type="module" src="`+pages.retry.Path)) {
			t.Errorf("%d: the page has another script than one that checks again", status)
		}
	}
}

// The page of a paid session is a receipt. What is not known is left out.
func TestPage_Receipt(t *testing.T) {
	pages := newPages(t)
	for _, test := range []struct {
		name    string
		change  func(*Payment)
		want    string
		heading string
	}{
		{"all", func(*Payment) {}, "Tax €1.10 Tip €1.00 Order 1001 Reference REF Time 2026-11-21 10:15 CET", "Paid"},
		{"neither tax nor tip, hidden order", func(p *Payment) {
			p.Receipt = Receipt{PaidAt: paidAt.UTC()}
		}, "Reference REF Time 2026-11-21 09:15 UTC", "Paid"},
		{"a part went back", func(p *Payment) {
			p.Receipt = Receipt{RefundedCents: 1249}
		}, "Refunded €12.49", "Paid"},
		{"all went back", func(p *Payment) {
			p.Receipt = Receipt{RefundedCents: 1250}
		}, "Refunded €12.50", "Refunded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			payment := newPayment(session.Completed)
			test.change(payment)
			rendered, err := pages.Payment("en", payment)
			if err != nil {
				t.Fatal(err)
			}
			page := parse(t, rendered)
			if heading := text(one(t, page, "h1")); heading != test.heading {
				t.Errorf("the heading is %q, want %q", heading, test.heading)
			}
			reference := session.NewReference(payment.ID, paidAt).String()
			if want, got := strings.ReplaceAll(test.want, "REF", reference), text(one(t, page, "dl")); got != want {
				t.Errorf("the receipt is\n%s, want\n%s", got, want)
			}
		})
	}
}

// A payment that the session did not take goes back, and the payer must not take it for the one that has paid: the page of a paid
// session says in each language that it is another one.
func TestPage_RefusedPayments(t *testing.T) {
	pages := newPages(t)
	refused := []RefusedPayment{{AmountCents: 1300, Currency: "EUR"}, {AmountCents: 700, Currency: "USD", WentBack: true}}
	shown := func(lang string, status session.Status) string {
		t.Helper()
		payment := newPayment(status)
		payment.Refused = refused
		rendered, err := pages.Payment(lang, payment)
		if err != nil {
			t.Fatal(err)
		}
		for _, element := range all(parse(t, rendered), "div") {
			if attribute(element, "id") == "refused" {
				return strings.ReplaceAll(text(element), " .", ".") // an amount has an element of its own
			}
		}
		t.Fatalf("%s, %s: the page has no place for refused payments", lang, status)
		return ""
	}
	for _, status := range states {
		want := "We received €13.00. It goes back to you. $7.00 went back to you."
		if status == session.Completed {
			want = "We received another payment of €13.00. It goes back to you. Another payment of $7.00 went back to you."
		}
		if got := shown("en", status); got != want {
			t.Errorf("%s: the page says %q, want %q", status, got, want)
		}
	}
	for _, in := range pages.translations {
		paid, unpaid := shown(in.Lang, session.Completed), shown(in.Lang, session.Expired)
		for _, amount := range []string{in.amounts.Format(1300, "EUR"), in.amounts.Format(700, "USD")} {
			amount = strings.Join(strings.Fields(amount), " ") // as text has it
			if !strings.Contains(paid, amount) || !strings.Contains(unpaid, amount) {
				t.Errorf("%s: %q is missing in %q or in %q", in.Lang, amount, paid, unpaid)
			}
		}
		if paid == unpaid {
			t.Errorf("%s: a paid session says no more than an unpaid one: %q", in.Lang, paid)
		}
	}
}

// Texts of the Merchant, or of the session in Redis, become no markup and no script.
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
			payment.MerchantName, payment.Description, payment.Receipt.Order = name, name, name
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

// parse reads a page as a browser does.
func parse(t *testing.T, page []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func all(root *html.Node, element string) []*html.Node {
	var found []*html.Node
	for node := range root.Descendants() {
		if node.Type == html.ElementNode && node.Data == element {
			found = append(found, node)
		}
	}
	return found
}

func one(t *testing.T, root *html.Node, element string) *html.Node {
	t.Helper()
	found := all(root, element)
	if len(found) != 1 {
		t.Fatalf("%d elements <%s>, want one", len(found), element)
	}
	return found[0]
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(node *html.Node, name string) bool {
	return slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func links(root *html.Node) []string {
	var found []string
	for _, link := range all(root, "a") {
		found = append(found, attribute(link, "href"))
	}
	return found
}

// text is what can be read of an element, with single spaces.
func text(root *html.Node) string {
	var words []string
	for node := range root.Descendants() {
		if node.Type == html.TextNode {
			words = append(words, strings.Fields(node.Data)...)
		}
	}
	return strings.Join(words, " ")
}
