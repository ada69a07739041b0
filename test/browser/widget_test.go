package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

// newShopPage is a page of a shop on its own origin. Its policy allows only the widget's script and the status, no markup from
// strings, and no script or style of its own.
func newShopPage(t *testing.T, language, body string) string {
	t.Helper()
	origin := shared.replicas[0].Public
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src %[1]s; connect-src %[1]s; base-uri 'none'; "+
			"require-trusted-types-for 'script'; trusted-types 'none'", origin))
		header.Set("Cross-Origin-Embedder-Policy", "require-corp")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="%s"><head><title>Shop</title><meta name="viewport" content="width=device-width">
			<meta name="color-scheme" content="light dark"><script type="module" src="%s/widget/v1.js"></script></head>
			<body><main><h1>Shop</h1>%s</main></body></html>`, language, origin, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// recordChanges keeps the events that a shop's page gets.
const recordChanges = `globalThis.changes = [];
	addEventListener('payment-session:change', ({ target, detail }) => changes.push({ on: target.id, ...detail }))`

type change struct {
	On, SessionID, Status, MerchantName string
	AmountCents                         int
}

// visible is what a person sees of a widget, slots included.
func visible(id string) string {
	return fmt.Sprintf(`(() => {
		const status = document.getElementById(%q).shadowRoot.querySelector('[part~=status]');
		const slot = [...status.querySelectorAll('slot')].find(slot => !slot.hidden);
		return slot ? slot.assignedNodes({ flatten: true }).map(node => node.textContent).join('|') : '';
	})()`, id)
}

func awaitVisible(page *browsertest.Page, id, text string) {
	page.Until(id+" shows "+text, fmt.Sprintf("%s.startsWith(%q)", visible(id), text))
}

func TestWidget_TwoOnAnotherOrigin(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first, second := s.charge(t), s.charge(t)
	base := shared.replicas[0].Public
	url := newShopPage(t, "de", fmt.Sprintf(`<payment-session id="first" session-id="%s"><b slot="completed">Danke!</b></payment-session>
		<section id="elsewhere"></section><payment-session id="second" session-id="%s" lang="en"></payment-session>`, first, second))
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: recordChanges})
	page.Open(url)
	awaitVisible(page, "first", "Warten auf die Zahlung")
	awaitVisible(page, "second", "Waiting for payment")
	page.Until("the time left is shown", "/ 1[45]:[0-9][0-9]$/.test(second.shadowRoot.querySelector('[part=remaining]').textContent)")

	page.Do("elsewhere.append(first)") // a move is not an end
	s.end(t, first, "COMPLETED")
	awaitVisible(page, "first", "Danke!")
	awaitVisible(page, "second", "Waiting for payment")
	if total, inFlight, _ := page.Requests(statusURL(base, first)); total != 1 || inFlight != 0 {
		t.Errorf("the first: %d requests, %d in flight", total, inFlight)
	}
	want := []change{
		{"first", first, "COMPLETED", "Acme coffee", 1250}, {"first", first, "PENDING", "Acme coffee", 1250}, {"second", second, "PENDING", "Acme coffee", 1250},
	}
	got := browsertest.Eval[[]change](page, "changes")
	slices.SortFunc(got, func(a, b change) int { return strings.Compare(a.On+a.Status, b.On+b.Status) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if status := browsertest.Eval[string](page, "first.status + ' ' + second.status"); status != "COMPLETED PENDING" {
		t.Errorf("the property status: %s", status)
	}

	page.Do("globalThis.removed = second; second.remove()")
	awaitRequests(t, page, statusURL(base, second), "over", func(_, inFlight int) bool { return inFlight == 0 })
	s.end(t, second, "CANCELLED")
	page.Do("dispatchEvent(new Event('online'))")
	if total, _, _ := page.Requests(statusURL(base, second)); total != 1 || browsertest.Eval[int](page, "changes.length") != 3 {
		t.Errorf("a removed widget sent %d requests", total)
	}
	page.Do("elsewhere.append(removed)") // it begins again
	awaitVisible(page, "second", "Payment cancelled")
}

// The amount is shown only with its currency, which the public status does not have, and with the digits that the currency has.
func TestWidget_Amount(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	var body strings.Builder
	currencies := map[string]string{
		`lang="en" currency="EUR"`: "€12.50", `lang="en" currency="jpy"`: "¥1,250", `lang="en" currency="KWD"`: "KWD\u00a01.250",
		`lang="en" currency="IQD"`: "IQD\u00a01.250", `lang="en" currency="IDR"`: "IDR\u00a012.50", // of which Chrome writes no decimals by itself
		`lang="de" currency="EUR"`: "12,50\u00a0€", `lang="ar" currency="EUR"`: "\u200f12.50\u00a0€",
		`lang="en"`: "", `lang="en" currency=""`: "", `lang="en" currency="EURO"`: "",
	}
	for attributes := range currencies {
		fmt.Fprintf(&body, `<payment-session session-id="%s" %s></payment-session>`, id, attributes)
	}
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.Open(newShopPage(t, "en", body.String()))
	page.Until("all have a status", "[...document.querySelectorAll('payment-session')].every(one => one.status)")
	for attributes, want := range currencies {
		selector := "payment-session[" + strings.ReplaceAll(attributes, " ", "][") + "]"
		if !strings.Contains(attributes, "currency") {
			selector += ":not([currency])"
		}
		shown := browsertest.Eval[string](page, fmt.Sprintf(`(() => {
			const amount = document.querySelector(%q).shadowRoot.querySelector('[part=amount]');
			return amount.clientHeight ? amount.textContent : '';
		})()`, selector))
		if shown != want {
			t.Errorf("%s: %q, want %q", attributes, shown, want)
		}
	}
	if !strings.Contains(page.Logged(), "<payment-session> has a wrong currency") {
		t.Errorf("nobody hears of a wrong currency:\n%s", page.Logged())
	}
	page.Do(`document.querySelector('payment-session[currency=EURO]').setAttribute('currency', 'USD')`)
	page.Until("a changed currency is shown", `document.querySelector('payment-session[currency=USD]').shadowRoot.querySelector('[part=amount]').textContent === '$12.50'`)
}

// Nothing is known of a session that does not exist.
func TestWidget_UnknownSession(t *testing.T) {
	t.Parallel()
	newShop(t)
	id := "ps_aaaaaaaaaaaa" + strings.Repeat("y", 18)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: recordChanges})
	page.AllowErrors("404")
	page.Open(newShopPage(t, "en", fmt.Sprintf(`<payment-session id="one" session-id="%s" currency="EUR"></payment-session>`, id)))
	awaitVisible(page, "one", "Payment not found")
	want := `[{"on":"one","sessionId":"` + id + `","status":"NOT_FOUND"}]`
	if got := browsertest.Eval[string](page, "JSON.stringify(changes)"); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// A developer who forgets the session-id sees an empty place and reads why in the console.
func TestWidget_NoSessionID(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.Open(newShopPage(t, "en", `<payment-session id="none"></payment-session>`))
	await.Until(t, browsertest.Patience, "the console says it", func() bool {
		return strings.Contains(page.Logged(), "console.warning: \"<payment-session> has no session-id\"")
	})
	if shown := browsertest.Eval[bool](page, "none.shadowRoot.querySelector('[part=box]').checkVisibility()"); shown {
		t.Error("it shows an empty box")
	}
	page.Do("none.setAttribute('session-id', '" + s.charge(t) + "')")
	awaitVisible(page, "none", "Waiting for payment")
	page.Do("globalThis.late = document.createElement('payment-session'); none.after(late); late.setAttribute('session-id', none.getAttribute('session-id'))")
	page.Until("the second is shown", "late.status === 'PENDING'")
	if warnings := strings.Count(page.Logged(), "has no session-id"); warnings != 1 {
		t.Errorf("%d warnings, want that of the first alone:\n%s", warnings, page.Logged())
	}
}

func TestWidget_Accessible(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ids := map[string]string{"NOT_FOUND": "ps_aaaaaaaaaaaa" + strings.Repeat("x", 18)}
	for _, state := range states {
		ids[state] = s.charge(t)
		if state != "PENDING" {
			s.end(t, ids[state], state)
		}
	}
	for _, language := range []string{"en", "ar"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			var body strings.Builder
			for state, id := range ids {
				fmt.Fprintf(&body, `<payment-session id="%s" session-id="%s" currency="EUR"></payment-session>`, state, id)
			}
			page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Language: language})
			page.AllowErrors("404") // of the one that is not found
			page.Open(newShopPage(t, language, body.String()))
			for state := range ids {
				page.Until(state+" is shown", visible(state)+" !== '' && "+state+".status === '"+state+"'")
			}
			direction := map[string]string{"en": "ltr", "ar": "rtl"}[language]
			if got := browsertest.Eval[string](page, "getComputedStyle(PENDING.shadowRoot.querySelector('[part=box]')).direction"); got != direction {
				t.Errorf("direction %s", got)
			}
			for name, media := range colours {
				page.SetMedia("", media)
				for _, violation := range page.Violations() {
					t.Errorf("%s: %s", name, violation)
				}
			}
			if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > 320 {
				t.Errorf("%d pixels wide on a screen of 320", wide)
			}
			if shown := browsertest.Eval[string](page, visible("EXPIRED")); language == "en" && !strings.Contains(shown, "do not pay again") {
				t.Errorf("of an expired session it says %q", shown)
			}
		})
	}
}

// Chrome names a status by its content when that is announced.
func TestWidget_Announces(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.Open(newShopPage(t, "en", fmt.Sprintf(`<payment-session id="one" session-id="%s"></payment-session>`, id)))
	awaitVisible(page, "one", "Waiting for payment")
	page.Do(`globalThis.shown = [];
		new MutationObserver((records) => {
			for (const { target } of records) if (!target.hidden) shown.push(target.name)
		}).observe(one.shadowRoot.querySelector('[role=status]'), { subtree: true, attributeFilter: ['hidden'] })`)
	s.end(t, id, "FAILED")
	awaitVisible(page, "one", "Payment failed")
	if shown := browsertest.Eval[[]string](page, "shown"); !slices.Equal(shown, []string{"failed"}) {
		t.Errorf("it showed %q, want failed once", shown)
	}
	if tree := page.AccessibilityTree(); !slices.ContainsFunc(tree, func(n browsertest.Node) bool { return n.Role == "status" }) ||
		!slices.ContainsFunc(tree, func(n browsertest.Node) bool { return strings.HasPrefix(n.Name, "Payment failed") }) {
		t.Errorf("assistive technology sees %v", tree)
	}
}

// The widget is found below another base path.
func TestWidget_AnotherBase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	other := shared.replicas[1].Public
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.AllowErrors("Content Security Policy") // the page's policy names the first replica only
	page.Open(newShopPage(t, "en", fmt.Sprintf(`<payment-session id="one" session-id="%s" base-url="%s/"></payment-session>`, id, other)))
	page.Until("the widget has no connection", "one.shadowRoot.querySelector('slot[name=offline]')?.hidden === false")
	page.Do("one.setAttribute('base-url', '" + shared.replicas[0].Public + "')")
	awaitVisible(page, "one", "Waiting for payment")
}
