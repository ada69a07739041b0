package browser

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

// Every page of the console, on the narrowest phone, in light, dark and forced colours.
func TestEachConsolePageIsAccessible(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName = "The Long Name of a Merchant-in-Donaudampfschifffahrtsgesellschaft"
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff/128"}
		m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/" + strings.Repeat("hooks", 20)}
	})
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	s.issue(page, "a-till-with-a-rather-long-name-at-the-entrance")
	key := "/keys/a-till-with-a-rather-long-name-at-the-entrance"
	for path, status := range map[string]int{
		"/": http.StatusOK, "/?q=nobody": http.StatusOK, "/signed-out": http.StatusOK, "/nothing": http.StatusNotFound,
		s.path: http.StatusOK, s.path + "?address=127.0.0.2": http.StatusOK, s.path + "/new-key": http.StatusOK,
		s.path + key + "/rotate": http.StatusOK, s.path + key + "/disable": http.StatusOK, s.path + key + "/delete": http.StatusOK,
		s.path + "/allowlist": http.StatusOK, s.path + "/webhook": http.StatusOK, s.path + "/webhook/rotate-secret": http.StatusOK,
	} {
		if got := page.Open(shared.console + path); got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
		checkConsolePage(t, page, path)
	}
	page.Open(shared.console + s.path + key + "/rotate")
	page.Click("main form button")
	if shownKey(page) == "" {
		t.Fatalf("there is no key:\n%s", page.Text("main"))
	}
	checkConsolePage(t, page, "the page of a new key")
	s.sendTestEvent(page)
	checkConsolePage(t, page, "the answer to a test event")
	page.Reload()
	reachEverything(t, page)
}

func checkConsolePage(t *testing.T, page *browsertest.Page, name string) {
	t.Helper()
	page.Do("for (const closed of document.querySelectorAll('details')) closed.open = true")
	for colour, media := range colours {
		page.SetMedia("", media)
		for _, violation := range page.Violations() {
			t.Errorf("%s, %s: %s", name, colour, violation)
		}
	}
	if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > 320 {
		t.Errorf("%s: %d pixels wide on a screen of 320", name, wide)
	}
	for _, node := range page.AccessibilityTree() {
		if slices.Contains([]string{"link", "button", "image", "heading", "textbox", "checkbox", "radio"}, node.Role) && node.Name == "" {
			t.Errorf("%s: a %s has no name", name, node.Role)
		}
	}
	if headings := browsertest.Eval[int](page, "document.querySelectorAll('h1').length"); headings != 1 {
		t.Errorf("%s: %d headings of the first level", name, headings)
	}
}

// The keyboard reaches everything that can be used, in the order of the page, and shows where it is.
func TestTheKeyboardReachesEverythingOfAMerchant(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"} })
	page := s.open(alice, browsertest.Settings{})
	s.issue(page, "till-1")
	page.Open(shared.console + s.path)
	page.Do("for (const closed of document.querySelectorAll('main details')) closed.open = true")
	if want := reachEverything(t, page); want < 20 {
		t.Errorf("the page has only %d elements to use", want)
	}
	page.Open(shared.console + s.path)
	page.Press(kb.Tab)
	page.Press(kb.Enter) // skip to the content
	page.Press(kb.Tab)
	if at := browsertest.Eval[string](page, "document.activeElement.innerText"); at != "All merchants" {
		t.Errorf("after the skip link, Tab goes to %q", at)
	}
}

// reachEverything goes through a page with the Tab key, and returns how many elements can be used.
func reachEverything(t *testing.T, page *browsertest.Page) int {
	t.Helper()
	const usable = "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), summary, pre[tabindex]')].filter(e => e.checkVisibility({contentVisibilityAuto: true}))"
	want := browsertest.Eval[int](page, usable+".length")
	for i := range want {
		page.Press(kb.Tab)
		for range 4 { // a field of a date has day, month, year and a button
			if i > 0 && browsertest.Eval[bool](page, "document.activeElement.type === 'date' && "+usable+".indexOf(document.activeElement) < "+strconv.Itoa(i)) {
				page.Press(kb.Tab)
			}
		}
		if at := browsertest.Eval[int](page, usable+".indexOf(document.activeElement)"); at != i {
			t.Fatalf("Tab %d goes to number %d: %s", i, at, browsertest.Eval[string](page, "document.activeElement.outerHTML"))
		}
		if !browsertest.Eval[bool](page, "(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)(getComputedStyle(document.activeElement))") {
			t.Errorf("the focus cannot be seen on %s", browsertest.Eval[string](page, "document.activeElement.outerHTML"))
		}
	}
	return want
}

// Times are those of the shop, and the viewer's own for who asks.
func TestTimesAreTheShops(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.TimeZone = "America/Chicago" })
	page := s.open(alice, browsertest.Settings{})
	s.issue(page, "till-1")
	page.SetTimezone("Asia/Kathmandu") // 5:45 ahead
	page.Open(shared.console + s.path)
	page.Do("for (const closed of document.querySelectorAll('details')) closed.open = true")
	type shown struct{ Text, Shop, Title, Own string }
	times := browsertest.Eval[[]shown](page, `[...document.querySelectorAll('time')].map(time => ({Text: time.textContent, Title: time.title,
		Shop: new Intl.DateTimeFormat('en-GB', {timeStyle: 'short', timeZone: 'America/Chicago'}).format(new Date(time.dateTime)),
		Own: new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'short', timeZone: 'Asia/Kathmandu'}).format(new Date(time.dateTime))}))`)
	if len(times) == 0 {
		t.Error("the page has no times")
	}
	for _, time := range times {
		if !strings.HasSuffix(time.Text, " at "+time.Shop) || time.Title != time.Own {
			t.Errorf("%+v", time)
		}
	}
	if text := page.Text("main"); !strings.Contains(text, "Times are those of America/Chicago.") {
		t.Errorf("the page does not say whose times:\n%s", text)
	}
}
