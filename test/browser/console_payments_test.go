package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// charge creates a session and returns its id.
func (s consoleShop) charge(key string, cents int, order string) string {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, key, fmt.Sprintf(`{"amountCents":%d,"orderRef":%q}`, cents, order))
	if err != nil || answer.Status != http.StatusCreated {
		s.T.Fatalf("%d %s: %v", answer.Status, answer.Raw, err)
	}
	return answer.Text("sessionId")
}

// pay reports a payment at the other replica.
func (s consoleShop) pay(rail, id, ref, outcome string, cents int) {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, shared.replicas[1].Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
		fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":%d,"paidAt":"2026-11-23T14:05:00Z","reason":"insufficient funds"}`, ref, outcome, cents))
	if err != nil || answer.Status != http.StatusOK {
		s.T.Fatalf("%d %s: %v", answer.Status, answer.Raw, err)
	}
}

// payingShop has payments of each kind; paid is one with a second payment to be refunded.
func payingShop(t *testing.T) (s consoleShop, paid string) {
	t.Helper()
	s = newConsoleShop(t, func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.Currency, m.Spec.TimeZone = "Acme Coffee", "EUR", "Europe/Berlin"
	})
	_, key := s.ApiKey("till-1", s.merchant.Name)
	s.awaitKey(key)
	rail := s.RailToken()
	s.charge(key, 1900, "still waiting")
	s.pay(rail, s.charge(key, 2350, "1003"), "card-1003", "FAILED", 2350)
	paid = s.charge(key, 1250, "1002")
	s.pay(rail, paid, "card-1002", "COMPLETED", 1250)
	s.pay(rail, paid, "card-1002-again", "COMPLETED", 1250)
	s.pay(rail, s.charge(key, 480, "1001"), "card-1001", "COMPLETED", 480)
	return s, paid
}

// Was I paid? From the merchant's page to one payment and its file, with the keyboard, and without a script of ours.
func TestPayments(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	for name, settings := range map[string]browsertest.Settings{"with JavaScript": {}, "without": {NoJavaScript: true, Width: 320, Height: 640}} {
		page := s.open(alice, settings)
		page.Click("a[href$='/payments']")
		if text := page.Text(".day"); !strings.Contains(text, "€17.30") || !strings.Contains(text, "2 payments") {
			t.Errorf("%s: today is\n%s", name, text)
		}
		if text := page.Text(".payments"); !strings.Contains(text, "order 1001") || strings.Contains(text, "still waiting") {
			t.Errorf("%s: the list is\n%s", name, text)
		}
		page.Fill("#order", "still waiting")
		page.Press(kb.Enter)
		page.Until("the order is found", "document.querySelector('.payments')?.innerText.includes('Waiting')")
		page.Fill("#order", "1002")
		page.Click("form[role=search] button")
		page.Click(".payments a")
		s.wantPath(page, s.path+"/payments/"+paid)
		text := page.Text("main")
		for _, want := range []string{"€12.50", "Paid", "till-1", "card-1002", "To be refunded", "The order was paid already.", "card-1002-again", "15:05:00"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the payment does not say %q:\n%s", name, want, text)
			}
		}
		page.Open(shared.console + s.path + "/payments")
		page.Click("nav.switch a:last-child")
		if text := page.Text("main"); !strings.Contains(text, "No payments yet") || !strings.Contains(text, "Test payments move no money") {
			t.Errorf("%s: test payments are\n%s", name, text)
		}
	}
}

// Every state of the pages, on the narrowest phone, in light, dark and forced colours; times are the shop's wherever the viewer is.
func TestPaymentsPages_Accessible(t *testing.T) {
	t.Parallel()
	s, paid := payingShop(t)
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	page.SetTimezone("Asia/Kathmandu")
	list := s.path + "/payments"
	for path, status := range map[string]int{
		list: http.StatusOK, list + "?mode=test": http.StatusOK, list + "?order=1002": http.StatusOK, list + "?order=nothing": http.StatusOK,
		list + "?before=1-1": http.StatusOK, list + "/" + paid: http.StatusOK, list + "/none": http.StatusNotFound, list + ".csv?day=no": http.StatusBadRequest,
	} {
		page.AllowErrors("400 (Bad Request)")
		if got := page.Open(shared.console + path); got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
		checkConsolePage(t, page, path)
	}
	page.Open(shared.console + list + "/" + paid)
	if text := page.Text("main"); !strings.Contains(text, "23 Nov 2026, 15:05:00") {
		t.Errorf("the time of the payment is not the shop's:\n%s", text)
	}
	page.Open(shared.console + list)
	reachEverything(t, page)
}
