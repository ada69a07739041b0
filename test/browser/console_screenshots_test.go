package browser

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

// `make screenshots` sets it.
var screenshots = flag.String("screenshots", "", "directory to write the screenshots of docs/console.md to; empty: nowhere")

// What is another in each run becomes what it is in the documentation.
const sampleTexts = `
	const samples = [[/mk_live_[a-z2-7]{12}_[0-9A-Za-z]{38}/g, 'mk_live_2yylmkzckvhj_THISISASAMPLEANDNOKEYATALL000000000000'],
		[/mk_live_[a-z2-7]{12}_[0-9A-Za-z]{4}\b/g, 'mk_live_2yylmkzckvhj_THIS'], [/mer_[a-z2-7]{12}/g, 'mer_45tolpnyxhz4'], [/shop-[a-z0-9]{5}\b/g, 'shops'], [/http:\/\/127[.]0[.]0[.]1:\d+/g, 'https://shop.example/hooks']];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) for (const [real, sample] of samples) texts.currentNode.data = texts.currentNode.data.replace(real, sample);
	for (const time of document.querySelectorAll('time[data-shop]')) time.textContent = time.textContent.includes('today') ? 'today at 10:00' : '21 Nov, 10:00';
	for (const [i, date] of ['Sat 21 Nov', 'Fri 20 Nov'].entries()) for (const day of [...document.querySelectorAll('.day h2 span, #today h2 span')].slice(i, i + 1)) day.textContent = date;
	for (const time of document.querySelectorAll('time:not([data-shop])'))
		time.textContent = 'Nov 21, 2026, ' + (time.parentElement.parentElement.innerText.includes('works until') ? '11:00 AM' : '10:00 AM');
	for (const field of document.querySelectorAll('input#q')) field.value = 'shops';
	document.activeElement.blur()`

// The picture of payments in docs/console.md.
func TestScreenshotsOfTheConsole_Payments(t *testing.T) {
	t.Parallel()
	s, _ := payingShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.Open(shared.console + s.path + "/payments")
	takeScreenshot(t, page, "console-payments", "light", 900, 700)
}

// The pictures of docs/console.md, each small.
func TestScreenshotsOfTheConsole(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(receiver.Close)
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.Currency = "Acme Coffee", "EUR"
		m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL}
		m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100}
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48"}
	})
	s.Merchant("bakery", func(m *v1alpha1.Merchant) { m.Spec.DisplayName = "Blue Bakery" })
	s.Merchant("cinema", func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.State = "Cinema Ritz", v1alpha1.MerchantSuspended
	})
	page := s.open(alice, browsertest.Settings{})
	take := func(name, colour string, width, height int64) {
		t.Helper()
		takeScreenshot(t, page, name, colour, width, height)
	}
	key := s.issue(page, "till-1")
	s.rotate(page, "till-1", prefixOf(key), "3600")
	take("console-rotate", "light", 360, 730)
	page.Click("main form button")
	take("console-key", "dark", 360, 730)
	rail, newest := s.RailToken(), shownKey(page)
	_, paid := s.ApiKey("web-shop", s.merchant.Name)
	s.awaitKey(paid)
	for i, cents := range []int{1250, 480, 2350} {
		id := s.charge(paid, cents, strconv.Itoa(1001+i))
		s.pay(rail, id, "card-"+strconv.Itoa(1001+i), "COMPLETED", cents)
	}
	page.Click("main a.button")
	s.Eventually("the webhook is disabled, and the page has all that needs attention", func() bool {
		page.Open(shared.console + s.path)
		return strings.Contains(page.Text("#attention"), "we stopped sending") && strings.Contains(page.Text("#attention"), "not delivered") && strings.Contains(page.Text("#keys"), "web-shop Live")
	})
	s.wantNowhere("on the merchant's page", page, newest)
	s.Eventually("the list shows all merchants", func() bool {
		page.Open(shared.console + "/?q=" + s.Namespace)
		return strings.Contains(page.Text("main"), "3 merchants")
	})
	take("console-merchants", "light", 900, 400)
	page.Open(shared.console + s.path)
	take("console-merchant", "light", 1000, 800)
	take("console-merchant-phone", "dark", 390, 844)
}

func takeScreenshot(t *testing.T, page *browsertest.Page, name, colour string, width, height int64) {
	t.Helper()
	const most = 100_000 // bytes
	page.SetMedia("", colours[colour])
	page.SetViewport(width, height, 1)
	page.Do(sampleTexts)
	picture := page.WindowScreenshot()
	if len(picture) > most {
		t.Errorf("%s: %d bytes", name, len(picture))
	}
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600); err != nil {
		t.Error(err)
	}
}
