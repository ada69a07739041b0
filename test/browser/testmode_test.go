package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// The page of a test session and the widget say that it is no payment, before and after it is paid; those of live sessions do not.
func TestTestMode_Shown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	base := shared.replicas[0].Public
	live := s.charge(t)
	test := call(t, base, http.MethodPost, fixture.Sessions, s.testKey, `{"amountCents":1250}`).Text("sessionId")
	for language, says := range map[string]string{"en": "not a real payment", "ar": "اختبار"} {
		page := sharedBrowser.NewPage(t, browsertest.Settings{Width: 320, Height: 640, Language: language})
		page.Open(pageURL(test))
		if title := browsertest.Eval[string](page, "document.title"); !strings.Contains(title, says) {
			t.Errorf("%s: the title is %q", language, title)
		}
		if banner := page.Text(".test"); !strings.Contains(banner, says) {
			t.Errorf("%s: the page says %q", language, banner)
		}
		checkAccessible(t, page, language)
	}
	page := sharedBrowser.NewPage(t, browsertest.Settings{})
	page.Open(pageURL(test))
	if browsertest.Eval[bool](page, "document.forms.length !== 1") {
		t.Error("the page of a test session has no buttons to play with")
	}
	shop := sharedBrowser.NewPage(t, browsertest.Settings{})
	shop.Open(newShopPage(t, "en", fmt.Sprintf(
		`<payment-session id="live" session-id="%s"></payment-session><payment-session id="trial" session-id="%s"></payment-session>`, live, test)))
	awaitVisible(shop, "live", "Waiting for payment")
	awaitVisible(shop, "trial", "Waiting for payment")
	if answer := call(t, base, http.MethodPost, "/api/v1/test/sessions/"+test+"/settle", s.testKey, ""); answer.Text("status") != "COMPLETED" {
		t.Fatalf("settle: %d %s", answer.Status, answer.Raw)
	}
	awaitShown(page, "COMPLETED")
	if banner, title := page.Text(".test"), browsertest.Eval[string](page, "document.title"); !strings.Contains(banner, "not a real payment") ||
		!strings.Contains(title, "not a real payment") {
		t.Errorf("the paid page says %q, and its title is %q", banner, title)
	}
	awaitVisible(shop, "trial", "Paid")
	const marked = `(id => { const part = document.getElementById(id).shadowRoot.querySelector('[part=test]');
		return part.checkVisibility() ? part.textContent : ''; })`
	if says := browsertest.Eval[string](shop, marked+"('trial')"); !strings.Contains(says, "not a real payment") {
		t.Errorf("the widget of a test session says %q", says)
	}
	if says := browsertest.Eval[string](shop, marked+"('live')"); says != "" {
		t.Errorf("the widget of a live session says %q", says)
	}
}

// The buttons of a test session's page play the rail, with JavaScript and without.
func TestTestMode_Buttons(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for button, status := range map[string]string{"COMPLETED": "COMPLETED", "FAILED": "FAILED"} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s without JavaScript %v", button, plain), func(t *testing.T) {
				t.Parallel()
				id := call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, s.testKey, `{"amountCents":1250}`).Text("sessionId")
				page := sharedBrowser.NewPage(t, browsertest.Settings{NoJavaScript: plain})
				page.Open(pageURL(id))
				awaitShown(page, "PENDING")
				if code := page.Click("button[value=" + button + "]"); code != http.StatusOK {
					t.Errorf("the button is answered with %d", code)
				}
				awaitShown(page, status)
				read := call(t, shared.replicas[1].Public, http.MethodGet, fixture.Sessions+"/"+id, s.testKey, "")
				if read.Text("status") != status {
					t.Errorf("the session is %s", read.Raw)
				}
			})
		}
	}
}
