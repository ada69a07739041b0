package browser

import (
	"flag"
	"os"
	"path/filepath"
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
		[/mk_live_[a-z2-7]{12}_[0-9A-Za-z]{4}\b/g, 'mk_live_2yylmkzckvhj_THIS'], [/mer_[a-z2-7]{12}/g, 'mer_45tolpnyxhz4'], [/shop-[a-z0-9]{5}\b/g, 'shops']];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) for (const [real, sample] of samples) texts.currentNode.data = texts.currentNode.data.replace(real, sample);
	for (const time of document.querySelectorAll('time[data-shop]')) time.textContent = '21 Nov, 10:00';
	for (const [i, date] of ['Sat 21 Nov', 'Fri 20 Nov'].entries()) for (const day of [...document.querySelectorAll('.day h2 span')].slice(i, i + 1)) day.textContent = date;
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
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName = "Acme Coffee"
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
	page.Click("main a.button")
	s.Eventually("the list shows all merchants", func() bool {
		page.Open(shared.console + "/?q=" + s.Namespace)
		return strings.Contains(page.Text("main"), "3 merchants")
	})
	take("console-merchants", "light", 900, 400)
	page.Open(shared.console + s.path)
	take("console-merchant", "light", 900, 760)
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
