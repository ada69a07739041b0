package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// acceptLanguage sends requests with the header.
type acceptLanguage string

// RoundTrip sends a request.
func (a acceptLanguage) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept-Language", string(a))
	return http.DefaultTransport.RoundTrip(r)
}

// in is the browser of a person who reads these languages.
func in(languages string, browser oidctest.Browser) oidctest.Browser {
	client := *browser.Client
	client.Transport = acceptLanguage(languages)
	return oidctest.Browser{Client: &client}
}

// A page is in the language that the browser asks for, and says so to programs and caches, also where nobody is signed in and if something fails.
func TestLanguage_Chosen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for languages, want := range map[string]string{
		"": "en", "de": "de", "de-AT,de;q=0.9,en;q=0.8": "de", "en-GB,de;q=0.9": "en", "fr,de;q=0.5": "de", "fr": "en", "no header at all": "en",
	} {
		stranger := in(languages, oidctest.NewBrowser(t))
		for path, titles := range map[string]map[string]string{
			"/signed-out":      {"en": "<title>Signed out · Merchant console</title>", "de": "<title>Abgemeldet · Händlerkonsole</title>"},
			"/callback?code=a": {"en": "<title>Sign-in failed · Merchant console</title>", "de": "<title>Anmelden fehlgeschlagen · Händlerkonsole</title>"},
		} {
			page := stranger.Get(t, f.URL+path)
			if !strings.Contains(page.Text, `<html lang="`+want+`" dir="ltr">`) || !strings.Contains(page.Text, titles[want]) || page.Header.Get("Vary") != "Accept-Language" {
				t.Errorf("%q, %s: want %s; Vary: %s; %.600s", languages, path, want, page.Header.Get("Vary"), page.Text)
			}
		}
	}
}

// Each page has been translated, with what comes from Go too: there is no word on it that only the English words have.
func TestLanguage_NothingEnglish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.webhook.AnswerTimeout = time.Millisecond // nothing delivers the test event
	m := f.merchant("acme", berlin, euros, withWebhook, func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	suspended := f.merchant("globex", func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
	payment := f.everythingHappens(m)
	f.grant(user(alice), []string{"get", "viewpayments", "refundpayments", "issuekeys", "rotatekeys", "editallowlist", "editwebhook"})
	browser := in("de", f.signedIn(alice))
	const base = "/merchants/NAMESPACE/acme"
	gets := []string{"/?q=NAMESPACE", "/?q=nichts", "/nothing", "/signed-out", "/merchants/NAMESPACE/" + suspended.Name, base + "?address=192.0.2.1", base + "/payments?q=1%2C00", base + "/payments.csv?day=x"}
	for _, route := range merchantRoutes(t) {
		if path, isPage := strings.CutPrefix(route, "GET "); isPage {
			gets = append(gets, base+strings.NewReplacer("/K/", "/kasse-1/", "/P", "/"+payment.String()).Replace(path))
		}
	}
	posts := map[string]url.Values{
		"/new-key":              {"name": {"Kasse 2 (bar)"}},
		"/keys/kasse-1/rotate":  {"overlap": {"7"}},
		"/keys/kasse-1/disable": {"name": {"kasse-2"}},
		"/allowlist":            {"generation": {"1"}, "allowlist": {"203.0.113.7/24"}},
		"/webhook":              {"generation": {"1"}, "url": {"ftp://x"}},
		"/payments/" + payment.String() + "/refund": {"amount": {"1.234"}},
	}
	shown, path := map[string]oidctest.Page{}, strings.NewReplacer("NAMESPACE", f.namespace)
	for _, address := range gets {
		if page := browser.Get(t, f.URL+path.Replace(address)); page.Header.Get("Content-Disposition") == "" {
			shown["GET "+address] = page
		}
	}
	for address, form := range posts {
		page := browser.Post(t, f.URL+path.Replace(base)+address, form)
		if page.Status != http.StatusUnprocessableEntity {
			t.Errorf("POST %s: %d", address, page.Status)
		}
		shown["POST "+address] = page
	}
	english := onlyEnglish(t)
	for address, page := range shown {
		if !strings.Contains(page.Text, `<html lang="de"`) {
			t.Errorf("%s: %d %s", address, page.Status, page.Text)
		}
		text := strings.ReplaceAll(readText(t, page.Text), f.namespace, "")
		for word := range wordsOf(text) {
			if english[word] {
				t.Errorf("%s says %q in\n%s", address, word, text)
			}
		}
	}
	for address, want := range map[string]string{ // so much of it was to be translated
		"GET " + base: "Kassen, die ihn benutzen, werden abgewiesen.", "GET " + base + "/payments": "Teilweise erstattet", "GET /?q=NAMESPACE": "Gesperrt",
		"POST /webhook": "An diese Adresse können keine Ereignisse gesendet werden.",
	} {
		if text := readText(t, shown[address].Text); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q:\n%s", address, want, text)
		}
	}
}

// everythingHappens fills the pages of a merchant, and returns the session of a payment that has everything.
func (f *fixture) everythingHappens(m *v1alpha1.Merchant) session.ID {
	f.t.Helper()
	key := f.apiKey(m, "kasse-1")
	f.create(&v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "kasse-3"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: m.Name}, State: v1alpha1.ApiKeyDisabled, Permissions: v1alpha1.TillPermissions()},
	})
	f.accept(v1alpha1.MerchantActive, key)
	f.event(key.UID, "ApiKey", "kasse-1", "Rotated", "Issued key (generation 2, cause API)")
	f.event(m.UID, "Merchant", "acme", "Timeout", "no answer in 15 s of spec.webhook.url")
	now := metav1.Now()
	m.Status.Allowlist = &v1alpha1.AllowlistStatus{OtherRequests: 3, Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", Requests: 2, LastSeen: now}, {Block: "192.0.2.0/24", KeyID: published.ID(key.UID), Requests: 1, LastSeen: now},
	}}
	if err := cluster.Client.Status().Update(f.t.Context(), m); err != nil {
		f.t.Fatal(err)
	}
	for i := range 2 {
		f.deadLetter(m, strconv.Itoa(i))
	}
	f.disable(m)
	for order, outcome := range map[string]session.Status{"1002": session.Failed, "1003": ""} {
		id := f.charge(m, published.ID(key.UID), session.Charge{AmountCents: 480, OrderRef: order})
		if outcome != "" {
			f.settle(id, session.Payment{Ref: "card-" + order, Outcome: outcome, AmountCents: 480})
		}
	}
	id := f.charge(m, published.ID(key.UID), session.Charge{AmountCents: 123_450, OrderRef: "1001", TaxCents: new(int64(110))})
	f.settle(id, session.Payment{Ref: "card-0", Outcome: session.Completed, AmountCents: 100})
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 123_450, PaidAt: time.Now()})
	if _, err := f.store.Refund(f.t.Context(), id, session.Refund{Ref: "back-1", PaymentRef: "card-1", AmountCents: 500}); err != nil {
		f.t.Fatal(err)
	}
	cents := int64(250)
	idempotency, err := session.ParseIdempotencyKey("one")
	if err == nil {
		_, err = f.store.RequestRefundFor(f.t.Context(), id, store.AskedRefund{Idempotency: idempotency, AmountCents: &cents, Reason: "kalt"})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// onlyEnglish are the words of the English texts that no German text has. Go is a language that the examples name.
func onlyEnglish(t *testing.T) map[string]bool {
	t.Helper()
	words := map[string]map[string]bool{}
	for _, language := range []string{"en", "de"} {
		file, err := os.ReadFile("web/words/" + language + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var texts map[string]string
		if err := json.Unmarshal(file, &texts); err != nil {
			t.Fatal(err)
		}
		words[language] = wordsOf(regexp.MustCompile(`<code>[^{].*?</code>|<[^>]*>`).ReplaceAllString(strings.Join(slices.Collect(maps.Values(texts)), "\n"), " "))
	}
	english := words["en"]
	maps.DeleteFunc(english, func(word string, _ bool) bool { return words["de"][word] || word == "go" || len(word) == 1 })
	if !english["payment"] || !english["the"] || english["server"] {
		t.Fatalf("only English are %v", english)
	}
	return english
}

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for _, word := range regexp.MustCompile(`\p{L}+`).FindAllString(text, -1) {
		words[strings.ToLower(word)] = true
	}
	return words
}

// readText is what a person reads or hears of a page, but code.
func readText(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			if attribute.Key == "aria-label" || strings.HasPrefix(attribute.Key, "data-copy-") || attribute.Key == "title" && node.Data == "time" {
				said = append(said, attribute.Val)
			}
		}
		if node.Type == html.TextNode && !slices.Contains([]string{"code", "pre", "script", "style"}, node.Parent.Data) {
			said = append(said, strings.TrimSpace(node.Data))
		}
	}
	return strings.Join(slices.DeleteFunc(said, func(text string) bool { return text == "" }), "\n")
}

// Amounts, numbers and times are written as the language does, in the table, the totals and the pictures.
func TestLanguage_Payments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin, euros)
	f.advance(time.Until(time.Date(2030, 11, 23, 12, 0, 0, 0, time.UTC)))
	now := f.clock()
	f.payments.Store = &fakePayments{Store: f.store, all: map[store.Account][]store.EndedSession{live(m): {
		ended(m, 1, session.Completed, 123_450, now), refunded(m, 2, 500, now), ended(m, 3, session.Completed, 99, now.Add(-48*time.Hour)),
	}}}
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := in("de", f.signedIn(alice)), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	page := browser.Get(t, path).Text
	if got, want := shownToday(page), "Heute Sa., 23. Nov. Bezahlt 1.234,50 € 1 Zahlung Erstattet 5,00 € Saldo 1.229,50 €"; got != want {
		t.Errorf("today is %q, want %q", got, want)
	}
	for what, want := range map[string]string{
		"the pictures": "Do., 21. Nov. 0,99 € 0,00 € 0,99 €", "the days": "Die letzten 14 Tage Höchstwert 1.234,50 €", "the hours": "12:00 0,00 € 0,00 € 0,00 €",
	} {
		if text := shownText(page, `<div class="charts">`, `<section id="list"`); !strings.Contains(text, want) {
			t.Errorf("%s have no %q: %s", what, want, text)
		}
	}
	if rows := shownText(page, `<table class="money payments">`, "</table>"); !strings.Contains(rows, "Bestellung order-2 23. Nov., 13:00 Erstattung −5,00 € 5,00 € −5,00 €") {
		t.Errorf("the table is %s", rows)
	}
	for text, want := range map[string][]string{
		"1.234,50": {"order-1"}, "1.234,50 €": {"order-1"}, "1234,50": {"order-1"}, "1234.50": {"order-1"}, "5": {"order-2"}, "0,99": {"order-3"}, "1.234": {}, "1,234": {}, "99": {},
	} {
		got := []string{}
		for _, found := range regexp.MustCompile(`>Bestellung (order-[0-9]+)<`).FindAllStringSubmatch(browser.Get(t, path+"?q="+url.QueryEscape(text)).Text, -1) {
			got = append(got, found[1])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q finds (-want +got):\n%s", text, diff)
		}
	}
}

// An amount is understood as its writer means it, to the cent, or refused: nothing is guessed. What the form shows, it reads again.
func TestLanguage_Refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", euros)
	id := f.paid(m, 200_000)
	p := f.refundOf(m, id)
	const none = ""
	for _, test := range []struct{ language, typed, again, cents string }{
		{"de", "12,50", "12,50", "1250"},
		{"de", "12.50", "12,50", "1250"},
		{"de", "1.234,50", "1234,50", "123450"},
		{"de", "1.234", "1.234", none},
		{"de", "1,234", "1,234", none},
		{"de", "", "2000,00", "200000"},
		{"en", "12,50", "12.50", "1250"},
		{"en", "12.50", "12.50", "1250"},
		{"en", "1,234.50", "1234.50", "123450"},
		{"en", "1,234", "1,234", none},
		{"en", "1.234", "1.234", none},
	} {
		person := refundPage{f, in(test.language, p.browser), p.path}
		page := person.send(person.open(), test.typed, "")
		if got := hidden(page).Get("confirmed"); got != test.cents || !strings.Contains(page.Text, `name="amount" value="`+test.again+`"`) {
			t.Errorf("%s: %q is %q, want %q and the text %q: %d %s", test.language, test.typed, got, test.cents, test.again, page.Status, page.Text)
		}
	}
	german := refundPage{f, in("de", p.browser), p.path}
	confirm := german.send(german.open(), "1.234,50", "kalt")
	german.want(confirm, http.StatusOK, "1.234,50 € werden an den Kunden zurückgezahlt.", "1.234,50 € erstatten", "Zum Beispiel 2000,00.")
	german.send(confirm, "1234,50", "kalt")
	if asked := f.story(id).Requests; len(asked) != 1 || asked[0].AmountCents != 123_450 {
		t.Errorf("asked for %+v", asked)
	}
}
