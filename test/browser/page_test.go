package browser

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"github.com/redis/go-redis/v9"

	payerpage "github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

func awaitRequests(t *testing.T, page *browsertest.Page, url, what string, holds func(total, inFlight int) bool) {
	t.Helper()
	await.Until(t, browsertest.Patience, "requests are "+what, func() bool {
		total, inFlight, _ := page.Requests(url)
		return holds(total, inFlight)
	})
}

var states = []string{"PENDING", "COMPLETED", "FAILED", "EXPIRED", "CANCELLED"}

var colours = map[string]map[string]string{
	"light":  {"prefers-color-scheme": "light"},
	"dark":   {"prefers-color-scheme": "dark"},
	"forced": {"forced-colors": "active", "prefers-color-scheme": "dark"},
}

// Each page is checked as served and, where a script shows it, as it changes: in light, dark and forced colours, from left to right and
// from right to left, on the narrowest phone.
func TestPage_Accessible(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, language := range []string{"en", "ar"} {
		for _, state := range states {
			t.Run(language+" "+state, func(t *testing.T) {
				t.Parallel()
				id := s.charge(t)
				if state != "PENDING" && state != "COMPLETED" {
					s.end(t, id, state)
				}
				page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Height: 640, Language: language})
				page.Open(pageURL(id))
				if state == "COMPLETED" { // the one that comes while the page is open
					s.end(t, id, state)
				}
				awaitShown(page, state)
				checkAccessible(t, page, language)
			})
		}
		t.Run(language+" not found", func(t *testing.T) {
			t.Parallel()
			page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Height: 640, Language: language})
			page.AllowErrors("404")
			if status := page.Open(pageURL("ps_aaaaaaaaaaaa" + strings.Repeat("x", 18))); status != http.StatusNotFound {
				t.Errorf("status %d", status)
			}
			checkAccessible(t, page, language)
		})
	}
}

func checkAccessible(t *testing.T, page *browsertest.Page, language string) {
	t.Helper()
	for name, media := range colours {
		page.SetMedia("", media)
		for _, violation := range page.Violations() {
			t.Errorf("%s: %s", name, violation)
		}
	}
	if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > 320 {
		t.Errorf("%d pixels wide on a screen of 320", wide)
	}
	direction := map[string]string{"en": "ltr", "ar": "rtl"}[language]
	if got := browsertest.Eval[string](page, "document.documentElement.lang + ' ' + getComputedStyle(document.body).direction"); got != language+" "+direction {
		t.Errorf("language and direction are %s", got)
	}
	for _, node := range page.AccessibilityTree() {
		if slices.Contains([]string{"link", "button", "image", "heading"}, node.Role) && node.Name == "" {
			t.Errorf("a %s has no name", node.Role)
		}
	}
	if headings := browsertest.Eval[int](page, "[...document.querySelectorAll('h1')].filter(h => h.checkVisibility()).length"); headings != 1 {
		t.Errorf("%d headings of the first level", headings)
	}
}

// What a screen reader says, in order.
const recordAnnouncements = `globalThis.said = []; addEventListener('DOMContentLoaded', () => {
	for (const live of document.querySelectorAll('[role=status], [aria-live=polite], [aria-live=assertive]'))
		new MutationObserver(() => said.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
})`

// A screen reader hears a change once.
func TestPage_AnnouncedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: recordAnnouncements})
	page.Open(pageURL(id))
	awaitStream(t, page, statusURL(shared.replicas[0].Public, id))
	if said := browsertest.Eval[[]string](page, "said"); len(said) > 0 {
		t.Errorf("a page that was just opened says %q", said)
	}
	s.end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	heading := page.Text("section[data-state=COMPLETED] h1")
	page.Until("it is announced", "said.length > 0")
	if said := browsertest.Eval[[]string](page, "said"); len(said) != 1 || said[0] != heading || heading == "" {
		t.Errorf("it said %q, want %q once", said, heading)
	}
	if title := browsertest.Eval[string](page, "document.title"); !strings.Contains(title, heading) {
		t.Errorf("the title is still %q", title)
	}
}

// The keyboard reaches everything.
func TestPage_Keyboard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.Open(pageURL(id))
	awaitStream(t, page, statusURL(shared.replicas[0].Public, id))
	const focused = `document.activeElement.href ?? document.activeElement.localName`
	page.Press(kb.Tab)
	if got := browsertest.Eval[string](page, focused); got != "pay://qr/"+id {
		t.Errorf("the first Tab goes to %s", got)
	}
	if outline := browsertest.Eval[string](page, "getComputedStyle(document.activeElement).outlineStyle"); outline == "none" {
		t.Error("the focus cannot be seen")
	}
	page.Press(kb.Tab)
	if got := browsertest.Eval[string](page, focused); got != "body" {
		t.Errorf("the second Tab goes to %s", got)
	}
	s.end(t, id, "FAILED")
	awaitShown(page, "FAILED")
	page.Press(kb.Tab)
	if got := browsertest.Eval[string](page, focused); got != "https://shop.example/thanks" {
		t.Errorf("after the end, Tab goes to %s", got)
	}
}

func TestPage_NoJavaScript(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{NoJavaScript: true})
	page.Open(pageURL(id))
	awaitShown(page, "PENDING")
	for _, want := range []string{"Acme coffee", "€12.50"} {
		if !strings.Contains(page.Text("main"), want) {
			t.Errorf("the page does not show %s:\n%s", want, page.Text("main"))
		}
	}
	if !browsertest.Eval[bool](page, "document.querySelector('svg.qr').checkVisibility()") {
		t.Error("there is no QR code")
	}
	for _, violation := range page.Violations() {
		t.Error(violation)
	}
	s.end(t, id, "COMPLETED")
	page.Press(kb.Tab)
	page.Press(kb.Tab)
	if got := browsertest.Eval[string](page, "document.activeElement.href"); got != pageURL(id) {
		t.Fatalf("the second Tab goes to %s, not to Check again", got)
	}
	page.Press(kb.Enter)
	awaitShown(page, "COMPLETED")
}

// A clock that is a day off shows neither a false end nor a false time.
func TestPage_WrongClock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, shift := range map[string]time.Duration{"a day ahead": 24 * time.Hour, "a day behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.charge(t)
			page := sharedBrowser.NewPage(t, browsertest.Settings{ClockShift: shift})
			page.Open(pageURL(id))
			awaitStream(t, page, statusURL(shared.replicas[0].Public, id))
			awaitShown(page, "PENDING")
			if left := page.Text("#remaining"); !regexp.MustCompile(`^1[45]:\d\d$`).MatchString(left) {
				t.Errorf("of 15 minutes the page shows %q", left)
			}
			s.end(t, id, "COMPLETED")
			awaitShown(page, "COMPLETED")
		})
	}
}

// On a phone the button that opens the app stands above the code, which that phone cannot scan. Where there is room the code leads.
func TestPage_Layout(t *testing.T) {
	t.Parallel()
	id := newShop(t).charge(t)
	for name, test := range map[string]struct {
		width, height int64
		buttonFirst   bool
	}{
		"phone": {390, 844, true}, "small phone": {320, 568, true}, "phone on its side": {844, 390, true},
		"tablet": {820, 1180, false}, "desktop": {1280, 800, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := sharedBrowser.NewPage(t, browsertest.Settings{Width: test.width, Height: test.height})
			page.Open(pageURL(id))
			awaitShown(page, "PENDING")
			const top = "document.querySelector('%s').getBoundingClientRect().top"
			button, code := browsertest.Eval[float64](page, fmt.Sprintf(top, ".app")), browsertest.Eval[float64](page, fmt.Sprintf(top, ".qr"))
			if (button < code) != test.buttonFirst {
				t.Errorf("the button is at %v and the code at %v", button, code)
			}
			filled := browsertest.Eval[string](page, "getComputedStyle(document.querySelector('.app .button')).backgroundColor") == "rgb(11, 110, 79)"
			if filled != test.buttonFirst {
				t.Errorf("the button has the color of the shop: %v", filled)
			}
			if seen := browsertest.Eval[float64](page, "document.querySelector('.app').getBoundingClientRect().bottom"); test.buttonFirst && seen > float64(test.height) {
				t.Errorf("the button ends at %v, below the screen of %d", seen, test.height)
			}
		})
	}
}

// A name of any length leaves room for the amount, and a receipt on paper has it whole.
func TestPage_LongName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Height: 568})
	page.Open(pageURL(id))
	page.Do("document.querySelector('.merchant bdi').textContent = 'Longname '.repeat(14)")
	const height = "document.querySelector('.merchant bdi').getBoundingClientRect().height"
	if tall := browsertest.Eval[float64](page, height); tall > 60 {
		t.Errorf("the name is %v pixels high, want two lines", tall)
	}
	page.SetMedia("print", nil)
	if !browsertest.Eval[bool](page, "(e => e.scrollHeight <= e.clientHeight + 1)(document.querySelector('.merchant bdi'))") {
		t.Error("printed, the name is cut")
	}
}

// The longest description leaves the button in sight on the smallest phone. After the end the page leads to where the charge says.
func TestPage_DescriptionAndReturnURL(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	description := strings.Repeat("2 flat whites, ", 9) + "water"
	created := call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, s.key,
		fmt.Sprintf(`{"amountCents":1250,"description":%q,"returnUrl":"https://shop.example/orders/1001?session={sessionId}"}`, description))
	id := created.Text("sessionId")
	page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Height: 568})
	page.Open(pageURL(id))
	awaitStream(t, page, statusURL(shared.replicas[0].Public, id))
	if got := page.Text(".description"); got != description {
		t.Errorf("the description is %q", got)
	}
	if seen := browsertest.Eval[float64](page, "document.querySelector('.app').getBoundingClientRect().bottom"); seen > 568 {
		t.Errorf("the button ends at %v, below the screen", seen)
	}
	s.end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	const back = "[...document.querySelectorAll('a')].filter(a => a.checkVisibility()).map(a => a.href)"
	if got := browsertest.Eval[[]string](page, back); !slices.Equal(got, []string{"https://shop.example/orders/1001?session=" + id}) {
		t.Errorf("the paid page leads to %q", got)
	}
	page.Do("document.querySelector('.description bdi').textContent = 'W'.repeat(140)")
	checkAccessible(t, page, "en")
}

// openPaid opens the page of a new session, which records announcements, and returns it when the session is paid and the receipt is complete.
func (s shop) openPaid(t *testing.T) (id string, page *browsertest.Page) {
	t.Helper()
	id = s.charge(t)
	page = sharedBrowser.NewPage(t, browsertest.Settings{Script: recordAnnouncements})
	page.Open(pageURL(id))
	awaitStream(t, page, statusURL(shared.replicas[0].Public, id))
	s.end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	page.Until("the receipt has its time", "document.querySelector('section[data-state=COMPLETED] dl')?.innerText.includes('UTC') === true")
	return id, page
}

// The page that is open when the payment comes becomes the same receipt as one that is opened later.
func TestPage_Receipt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id, open := s.openPaid(t)
	const receipt = "section[data-state=COMPLETED] dl"
	later := sharedBrowser.NewPage(t, browsertest.Settings{NoJavaScript: true})
	later.Open(pageURL(id))
	if got, want := open.Text(receipt), later.Text(receipt); got != want || !regexp.MustCompile(`Reference\s+[0-9A-Z]{4}-[0-9A-Z]{4}\s`).MatchString(got) {
		t.Errorf("the receipt is\n%s\nand later\n%s", got, want)
	}
	if said := browsertest.Eval[[]string](open, "said"); len(said) != 1 {
		t.Errorf("it said %q, want one announcement", said)
	}
	const paper = 219 // 58 mm in CSS pixels
	later.SetMedia("print", nil)
	later.SetViewport(paper, 600, 1)
	if text := later.Text("main"); !strings.Contains(text, "UTC") || !strings.Contains(text, "€12.50") {
		t.Errorf("printed, the receipt is\n%s", text)
	}
	if wide := browsertest.Eval[int](later, "document.documentElement.scrollWidth"); wide > paper {
		t.Errorf("printed, the page is %d pixels wide, the paper %d", wide, paper)
	}
}

// post has the rail report a settlement or a refund of a session.
func (s shop) post(t *testing.T, id, what, body string) {
	t.Helper()
	if answer := call(t, shared.replicas[0].Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/"+what, s.rail, body); answer.Status != http.StatusOK {
		t.Fatalf("%s got %d %s", what, answer.Status, answer.Raw)
	}
}

// awaitRefused waits until the page says this of payments that its session did not take.
func awaitRefused(page *browsertest.Page, text string) {
	page.Until("it says "+text, "document.getElementById('refused').innerText.trim() === '"+text+"'")
}

// A payer who pays another amount than the charge's sees at once that the money came and goes back, and then that it went back; the charge can
// still be paid. So does one who pays late, or twice. The public status says nothing of it.
func TestPage_WrongMoney(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	base := shared.replicas[0].Public
	page, id := openPage(t, base, browsertest.Settings{Script: slow})
	awaitStream(t, page, statusURL(base, id))
	s.post(t, id, "settlement", `{"paymentRef": "wrong", "outcome": "COMPLETED", "amountCents": 1300}`)
	awaitRefused(page, "We received €13.00. It goes back to you.")
	for _, violation := range page.Violations() {
		t.Error(violation)
	}
	s.post(t, id, "refunds", `{"paymentRef": "wrong", "refundRef": "back", "amountCents": 1300}`)
	awaitRefused(page, "€13.00 went back to you.")
	if public := call(t, base, http.MethodGet, "/api/v1/public/sessions/"+id, "", ""); string(public.Raw) != `{"merchantName":"Acme coffee","amountCents":1250,"status":"PENDING"}`+"\n" {
		t.Errorf("the public status is %s", public.Raw)
	}
	s.end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	s.post(t, id, "settlement", `{"paymentRef": "second", "outcome": "COMPLETED", "amountCents": 1250, "currency": "USD"}`)
	page.Do("document.dispatchEvent(new Event('visibilitychange'))") // the payer comes back from the bank
	awaitRefused(page, "We received another payment of $12.50. It goes back to you.\\n\\nAnother payment of €13.00 went back to you.")

	late := s.charge(t)
	s.end(t, late, "CANCELLED")
	s.post(t, late, "settlement", `{"paymentRef": "late", "outcome": "COMPLETED", "amountCents": 1250}`)
	reader := sharedBrowser.NewPage(t, browsertest.Settings{NoJavaScript: true})
	reader.Open(pageURL(late))
	if text := reader.Text("main"); !strings.Contains(text, "We received €12.50. It goes back to you.") || !strings.Contains(text, "cancelled") {
		t.Errorf("of a late payment the page says\n%s", text)
	}
}

// A payer who returns to the page of a payment that was refunded meanwhile sees that, and how much.
func TestPage_Refunded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id, page := s.openPaid(t)
	const shown = "document.querySelector('section[data-state=COMPLETED]').innerText"
	for _, refund := range []struct {
		ref   string
		cents int
		want  string
	}{{"back-1", 500, "€5.00"}, {"back-2", 750, "€12.50"}} {
		s.post(t, id, "refunds", fmt.Sprintf(`{"paymentRef": "bank-%s", "refundRef": %q, "amountCents": %d}`, id, refund.ref, refund.cents))
		page.Do("document.dispatchEvent(new Event('visibilitychange'))")
		page.Until("it says "+refund.want, shown+".includes('Refunded') && "+shown+".includes('"+refund.want+"')")
	}
	page.Until("it is refunded as a whole", "document.title.startsWith('Refunded') && document.querySelector('section[data-state=COMPLETED] h1').innerText === 'Refunded'")
	if said := browsertest.Eval[[]string](page, "said"); len(said) != 2 || said[1] != "Refunded" {
		t.Errorf("it said %q", said)
	}
}

// A page about an error asks by itself until there is another answer, also after the phone was without a network.
func TestPage_ErrorThatPasses(t *testing.T) {
	t.Parallel()
	id := newShop(t).charge(t)
	pages, err := payerpage.New()
	if err != nil {
		t.Fatal(err)
	}
	backend, err := url.Parse(shared.replicas[0].Public)
	if err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]int{"too many requests": http.StatusTooManyRequests, "unavailable": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, works atomic.Int32
			proxy := httputil.NewSingleHostReverseProxy(backend)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if works.Load() > 0 || strings.HasPrefix(r.URL.Path, payerpage.AssetPrefix) {
					proxy.ServeHTTP(w, r)
					return
				}
				asked.Add(1)
				problem, err := pages.Problem("en", status)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				w.WriteHeader(status)
				_, _ = w.Write(problem.Content)
			}))
			t.Cleanup(server.Close)
			p := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
			p.AllowErrors(strconv.Itoa(status), "net::ERR_INTERNET_DISCONNECTED")
			p.Open(server.URL + "/pay/" + id)
			for _, violation := range p.Violations() {
				t.Error(violation)
			}
			await.Until(t, browsertest.Patience, "the page asks again and again", func() bool { return asked.Load() > 3 })
			p.SetOffline(true)
			works.Store(1)
			p.SetOffline(false)
			awaitShown(p, "PENDING")
		})
	}
}

// openPage opens the page of a new session at base and waits for its stream.
func openPage(t *testing.T, base string, settings browsertest.Settings) (page *browsertest.Page, id string) {
	t.Helper()
	id = newShop(t).charge(t)
	page = sharedBrowser.NewPage(t, settings)
	page.Open(base + "/pay/" + id)
	awaitStream(t, page, statusURL(base, id))
	return page, id
}

// Timers do not fire on these pages: what is shown comes with the return.
func TestPage_PhoneReturns(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	base := shared.replicas[0].Public
	for name, away := range map[string]struct{ leave, comeBack func(*browsertest.Page) }{
		"frozen":  {(*browsertest.Page).Freeze, (*browsertest.Page).Resume},
		"offline": {func(p *browsertest.Page) { p.SetOffline(true) }, func(p *browsertest.Page) { p.SetOffline(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, id := openPage(t, base, browsertest.Settings{Script: slow})
			page.AllowErrors("net::ERR_INTERNET_DISCONNECTED")
			away.leave(page)
			awaitRequests(t, page, statusURL(base, id), "over", func(_, inFlight int) bool { return inFlight == 0 })
			if name == "offline" {
				page.Until("it says so", "document.getElementById('offline').checkVisibility() && document.getElementById('check').checkVisibility()")
			}
			s.end(t, id, "COMPLETED")
			away.comeBack(page)
			awaitShown(page, "COMPLETED")
			if _, _, most := page.Requests(statusURL(base, id)); most != 1 {
				t.Errorf("%d requests at once", most)
			}
		})
	}
}

const countEvents = `globalThis.events = 0;
	const read = ReadableStreamDefaultReader.prototype.read;
	ReadableStreamDefaultReader.prototype.read = async function () {
		const result = await read.call(this);
		events++;
		return result;
	}`

// A change of which no message comes is shown when the replica reads the session again: at the latest after its interval.
func TestPage_LostMessage(t *testing.T) { //nolint:tparallel // one loss after the other: a new subscription reads both sessions
	t.Parallel()
	for _, lost := range []string{"message", "subscription"} {
		t.Run(lost, func(t *testing.T) {
			page, id := openPage(t, shared.replicas[0].Public, browsertest.Settings{Script: countEvents})
			page.Until("the replica has read the session", "globalThis.events > 0")
			if lost == "subscription" {
				client := redis.NewClient(&redis.Options{Addr: shared.Redis.Addr()})
				defer func() { _ = client.Close() }()
				if err := client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
					t.Fatal(err)
				}
			}
			expire(t, id) // which says nothing to anybody
			awaitShown(page, "EXPIRED")
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A payer does not notice a rolling restart.
func TestPage_RollingRestart(t *testing.T) {
	t.Parallel()
	var serving atomic.Value // the address of the replica that the proxy asks
	use := func(replica string) { serving.Store(strings.TrimPrefix(replica, "http://")) }
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" },
		FlushInterval: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			ask := func() (*http.Response, error) {
				r.URL.Host = serving.Load().(string)
				return http.DefaultTransport.RoundTrip(r)
			}
			response, err := ask()
			if err != nil { // the old replica went before it took the request: like other proxies, ask another one
				response, err = ask()
			}
			return response, err
		}),
	})
	t.Cleanup(proxy.Close)
	first, stopFirst := shared.APIServer(t, "old", patient)
	use(first.Public)
	page, id := openPage(t, proxy.URL, browsertest.Settings{Script: fast})
	second, _ := shared.APIServer(t, "new", patient)
	use(second.Public)
	stopFirst()
	awaitRequests(t, page, statusURL(proxy.URL, id), "sent to the new replica", func(total, inFlight int) bool { return total > 1 && inFlight == 1 })
	awaitShown(page, "PENDING")
	newShop(t).end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
	if _, _, most := page.Requests(statusURL(proxy.URL, id)); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

// nginx starts a proxy with its defaults, which buffer answers, before the first replica. settings are of the server block.
func nginx(t *testing.T, settings string) (base string) {
	t.Helper()
	var address string
	if err := fixture.Choose(&address); err != nil {
		t.Fatal(err)
	}
	proxytest.Nginx(t, address, fmt.Sprintf("events {} http { %s server { listen %s; location / { proxy_pass %s; %s } } }",
		proxytest.NginxTemporary, address, shared.replicas[0].Public, settings))
	return "http://" + address
}

// Streams pass a proxy that buffers.
func TestPage_BufferingProxy(t *testing.T) {
	t.Parallel()
	base := nginx(t, "")
	page, id := openPage(t, base, browsertest.Settings{Script: slow}) // so a stream that is stuck stays stuck
	first := browsertest.Eval[string](page, fmt.Sprintf(`fetch('/api/v1/public/sessions/%s?second', { headers: { Accept: 'text/event-stream' } })
		.then(async ({ body }) => {
			const reader = body.getReader(), { value } = await reader.read();
			reader.cancel();
			return new TextDecoder().decode(value);
		})`, id))
	if !strings.Contains(first, "event: status\n") {
		t.Errorf("while the stream is open, %q comes through", first)
	}
	newShop(t).end(t, id, "COMPLETED")
	awaitShown(page, "COMPLETED")
}

// Long polls pass a proxy that buffers streams. They do not say that money came which the session did not take: the page finds that itself.
func TestPage_LongPollsThroughProxy(t *testing.T) {
	t.Parallel()
	base := nginx(t, "proxy_ignore_headers X-Accel-Buffering;")
	page, id := openPage(t, base, browsertest.Settings{Script: fast})
	awaitRequests(t, page, statusURL(base, id), "a stream and polls", func(total, inFlight int) bool { return total > 2 && inFlight == 1 })
	s := newShop(t)
	s.post(t, id, "settlement", `{"paymentRef": "wrong", "outcome": "COMPLETED", "amountCents": 1300}`)
	awaitRefused(page, "We received €13.00. It goes back to you.")
	s.end(t, id, "CANCELLED")
	awaitShown(page, "CANCELLED")
	if _, _, most := page.Requests(statusURL(base, id)); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

// decode reads the QR code in a screenshot.
func decode(t *testing.T, screenshot []byte) string {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	code, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_TRY_HARDER: true})
	if err != nil {
		t.Errorf("read the QR code: %v", err)
		return ""
	}
	return code.GetText()
}

// What a camera sees: on a phone in light, dark and forced colours, on paper of 58 mm, and of the code by itself.
func TestPage_QRCode(t *testing.T) {
	t.Parallel()
	id := newShop(t).charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Language: "ar"})
	page.Open(pageURL(id))
	for name, media := range colours {
		page.SetMedia("", media)
		if got := decode(t, page.Screenshot()); got != "pay://qr/"+id {
			t.Errorf("%s: %q", name, got)
		}
	}
	const paper, dotsPerPixel = 219, 203.0 / 96 // 58 mm in CSS pixels, and a receipt printer's 203 dots per inch
	page.SetMedia("print", map[string]string{"prefers-color-scheme": "dark"})
	page.SetViewport(paper, 600, dotsPerPixel)
	if got := decode(t, page.Screenshot()); got != "pay://qr/"+id {
		t.Errorf("printed: %q", got)
	}
	if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > paper {
		t.Errorf("printed, the page is %d pixels wide, the paper %d", wide, paper)
	}
	if browsertest.Eval[bool](page, "[...document.querySelectorAll('.screen')].some(e => e.checkVisibility())") {
		t.Error("printed, the page shows what only a screen can")
	}
	code := sharedBrowser.NewPage(t, browsertest.Settings{Media: colours["dark"]})
	code.Open(pageURL(id) + "/qr.svg")
	if got := decode(t, code.Screenshot()); got != "pay://qr/"+id {
		t.Errorf("qr.svg: %q", got)
	}
}
