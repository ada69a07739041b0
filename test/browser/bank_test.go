package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
)

// bankShop is a shop whose payers pay at the demo bank.
type bankShop struct {
	fixture.Tenant

	bank   *fixture.Bank
	public string // URL of the replica whose pages lead to the bank
	key    string
	hooks  *inbox.Recorder
}

func newBankShop(t *testing.T) bankShop {
	t.Helper()
	s := bankShop{Tenant: fixture.NewTenant(t, shared.Client), hooks: inbox.NewRecorder(nil)}
	receiver := httptest.NewServer(s.hooks)
	t.Cleanup(receiver.Close)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) {
		m.Spec.DisplayName, m.Spec.Currency = "Acme Coffee", "EUR"
		m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL + "/hooks"}
	})
	_, s.key = s.ApiKey("till", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = v1alpha1.Permissions() })
	s.hooks.VerifyWith(s.Delivered("coffee-webhook", "secret"))
	s.bank = fixture.StartBank(t, shared.replicas[0].Internal, s.RailToken(), shared.replicas[0].Public+"/pay/{sessionId}")
	replica, _ := shared.APIServer(t, "apiserver-"+s.Namespace, func(o *apiserver.Options) {
		patient(o)
		o.PaymentAppURL = s.bank.URL + "/pay/{sessionId}"
	})
	s.public = replica.Public
	s.Eventually("the key works", func() bool {
		return call(t, s.public, http.MethodGet, fixture.Me, s.key, "").Status == http.StatusOK
	})
	return s
}

func (s bankShop) charge(t *testing.T) string {
	t.Helper()
	return call(t, s.public, http.MethodPost, fixture.Sessions, s.key, `{"amountCents":1250,"orderRef":"1001","taxCents":110,"customerEmail":"ada@`+s.Namespace+`.example"}`).Text("sessionId")
}

// openBank opens the page of a session as a phone does, and goes to the bank by its button.
func (s bankShop) openBank(t *testing.T, id string) *browsertest.Page {
	t.Helper()
	phone := sharedBrowser.NewPage(t, browsertest.Settings{Width: 390, Height: 844})
	phone.Open(s.public + "/pay/" + id)
	awaitShown(phone, "PENDING")
	if code := decode(t, phone.Screenshot()); code != "pay://qr/"+id {
		t.Errorf("the QR code holds %q", code)
	}
	if status := phone.Click(".app a"); status != http.StatusOK {
		t.Fatalf("the bank answers with %d\n%s", status, &s.bank.Output)
	}
	for _, want := range []string{"Acme Coffee", "12.50 EUR", "Pay", "Decline"} {
		if text := phone.Text("body"); !strings.Contains(text, want) {
			t.Errorf("the bank does not show %s:\n%s", want, text)
		}
	}
	return phone
}

// A payer with a phone: from the page of a fresh session through the bank to the receipt. The shop's server hears of it, and the customer
// has a mail.
func TestBank_Pay(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	id := s.charge(t)
	desk := sharedBrowser.NewPage(t, browsertest.Settings{Width: 1280, Height: 800}) // the screen of the shop that shows the code
	desk.Open(s.public + "/pay/" + id)
	awaitStream(t, desk, statusURL(s.public, id))
	phone := s.openBank(t, id)
	for _, violation := range phone.Violations() {
		t.Error(violation)
	}
	if wide := browsertest.Eval[int](phone, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("the bank's page is %d pixels wide on a phone of 390", wide)
	}
	takeScreenshot(t, phone, "bank-page", "light", 390, 480)
	phone.Click("button[value=pay]")
	if heading := phone.Text("h1"); heading != "Paid" {
		t.Fatalf("the bank says %q\n%s", heading, &s.bank.Output)
	}
	awaitShown(desk, "COMPLETED")
	phone.Click("main a")
	awaitShown(phone, "COMPLETED")
	reference := regexp.MustCompile(`\s[0-9A-Z]{4}-[0-9A-Z]{4}\s`)
	phone.Until("the receipt has its reference", "document.querySelector('main').innerText.includes('UTC')")
	paid := phone.Text("main")
	if !strings.Contains(paid, "€12.50") || !reference.MatchString(paid) {
		t.Errorf("the receipt is\n%s", paid)
	}
	s.Eventually("the shop's server has a webhook that it can verify", func() bool {
		return len(s.hooks.About(id)) > 0
	})
	for _, attempt := range s.hooks.About(id) {
		if err := inbox.Verify(s.Delivered("coffee-webhook", "secret"), []byte(attempt.Body), attempt.Header); err != nil ||
			!strings.Contains(attempt.Body, `"session.completed"`) || !strings.Contains(attempt.Body, s.bank.Payments()[0].Ref) {
			t.Errorf("the webhook is %s, %v", attempt.Body, err)
		}
	}
	var mails []mailtest.Message
	s.Eventually("the customer has the receipt", func() bool {
		mails = slices.DeleteFunc(shared.mails.Messages(), func(m mailtest.Message) bool { return m.To != "ada@"+s.Namespace+".example" })
		return len(mails) > 0
	})
	if mail := mails[0]; mail.Subject != "Receipt from Acme Coffee" || !strings.Contains(mail.Text, "12.50") || !strings.Contains(mail.Text, strings.TrimSpace(reference.FindString(paid))) {
		t.Errorf("the receipt by mail is %+v", mail)
	}
}

// Two phones with the same page of the bank: the one that is later is refused before it pays.
func TestBank_TwoPhones(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	id := s.charge(t)
	first, second := s.openBank(t, id), s.openBank(t, id)
	first.Click("button[value=pay]")
	if heading := first.Text("h1"); heading != "Paid" {
		t.Errorf("the first phone sees %q\n%s", heading, &s.bank.Output)
	}
	second.Click("button[value=pay]")
	if page := second.Text("main"); !strings.Contains(page, "Nothing to pay") || !strings.Contains(page, "paid already") {
		t.Errorf("the second phone sees\n%s", page)
	}
	read := call(t, s.public, http.MethodGet, fixture.Sessions+"/"+id, s.key, "")
	if payments := s.bank.Payments(); len(payments) != 1 || read.Text("status") != "COMPLETED" || strings.Contains(string(read.Raw), "refused") {
		t.Errorf("the bank has %v, the session is %s", payments, read.Raw)
	}
}

// A payer whose code is being paid elsewhere is refused before money moves, in words that help. On a phone the page fits.
func TestBank_SomebodyIsPaying(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	id := s.charge(t)
	phone := s.openBank(t, id)
	other := fixture.NewTenant(t, shared.Client).RailToken()
	hold := func(seconds int) fixture.Answer {
		return call(t, shared.replicas[0].Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/hold", other, fmt.Sprintf(`{"paymentRef":"card-1","seconds":%d}`, seconds))
	}
	s.Eventually("another rail holds the session", func() bool { return hold(120).Status == http.StatusOK })
	phone.Click("button[value=pay]")
	if page := phone.Text("main"); !strings.Contains(page, "Somebody is paying") || !strings.Contains(page, "You have not paid") {
		t.Errorf("the phone shows\n%s\n%s", page, &s.bank.Output)
	}
	if payments := s.bank.Payments(); len(payments) > 0 {
		t.Errorf("the bank has moved money: %v", payments)
	}
	if wide := browsertest.Eval[int](phone, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("the page is %d pixels wide on a phone of 390", wide)
	}
	hold(0)
	phone.Click("main a.first") // Look again
	phone.Click("button[value=pay]")
	s.Eventually("the session is paid", func() bool {
		return call(t, s.public, http.MethodGet, fixture.Sessions+"/"+id, s.key, "").Text("status") == "COMPLETED"
	})
}

func TestBank_Decline(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	id := s.charge(t)
	phone := s.openBank(t, id)
	phone.Click("button[value=decline]")
	if heading := phone.Text("h1"); heading != "Declined" {
		t.Errorf("the bank says %q\n%s", heading, &s.bank.Output)
	}
	phone.Click("main a")
	awaitShown(phone, "FAILED")
}

// What the shop gives back, the payer sees at the bank. To a closed account nothing goes back, and the shop hears that.
func TestBank_Refund(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	id := s.charge(t)
	phone := s.openBank(t, id)
	phone.Click("button[value=pay]")
	refund := func(key, status string) {
		t.Helper()
		asked := call(t, s.public, http.MethodPost, fixture.Sessions+"/"+id+"/refunds", s.key, `{"amountCents":500}`, "Idempotency-Key", key)
		if asked.Status != http.StatusCreated {
			t.Fatalf("%d %s", asked.Status, asked.Raw)
		}
		s.Eventually("the refund is "+status, func() bool {
			read := call(t, s.public, http.MethodGet, fixture.Sessions+"/"+id, s.key, "")
			return strings.Contains(string(read.Raw), `"refundId":"`+asked.Text("refundId")+`","status":"`+status+`"`)
		})
	}
	refund("return-1", "CONFIRMED")
	phone.Open(s.bank.URL + "/pay/" + id)
	if page := phone.Text("main"); !strings.Contains(page, "The shop gave 5.00 EUR back.") {
		t.Errorf("the bank says\n%s", page)
	}
	for _, violation := range phone.Violations() {
		t.Error(violation)
	}
	phone.Click("button[value=close]")
	if heading := phone.Text("h1"); heading != "Account closed" {
		t.Errorf("the bank says %q", heading)
	}
	refund("return-2", "REJECTED")
	phone.Open(s.bank.URL + "/pay/" + id)
	if page := phone.Text("main"); strings.Contains(page, "Close the account") || !strings.Contains(page, "The shop gave 5.00 EUR back.") {
		t.Errorf("the bank says\n%s", page)
	}
}
