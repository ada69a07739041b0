package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func euros(m *v1alpha1.Merchant) { m.Spec.Currency = "EUR" }

// paid is the session of a payment of the merchant.
func (f *fixture) paid(m *v1alpha1.Merchant, cents int64) session.ID {
	f.t.Helper()
	id := f.charge(m, "key", session.Charge{AmountCents: cents, OrderRef: "1001"})
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: cents})
	return id
}

func (f *fixture) story(id session.ID) *session.Story {
	f.t.Helper()
	story, err := f.store.ReadStory(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return &story
}

// refundPage is the form that asks for a refund of a payment, in a browser.
type refundPage struct {
	*fixture

	browser oidctest.Browser
	path    string
}

// refundOf returns the form of a payment, for a bookkeeper of the merchant.
func (f *fixture) refundOf(m *v1alpha1.Merchant, id session.ID) refundPage {
	f.t.Helper()
	f.grant(user(alice), []string{"get", "viewpayments", "refundpayments"}, m.Name)
	return refundPage{f, f.signedIn(alice), f.URL + "/merchants/" + f.namespace + "/" + m.Name + "/payments/" + id.String() + "/refund"}
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// hidden are the fields of a form that nobody types.
func hidden(page oidctest.Page) url.Values {
	fields := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page.Text, -1) {
		fields.Set(field[1], field[2])
	}
	return fields
}

// send types into a form that is shown, and sends it.
func (p refundPage) send(shown oidctest.Page, amount, reason string) oidctest.Page {
	p.t.Helper()
	fields := hidden(shown)
	fields.Set("amount", amount)
	fields.Set("reason", reason)
	return p.browser.Post(p.t, p.path, fields)
}

// open shows an empty form.
func (p refundPage) open() oidctest.Page {
	p.t.Helper()
	return p.browser.Get(p.t, p.path)
}

func (p refundPage) want(page oidctest.Page, status int, texts ...string) {
	p.t.Helper()
	text := strings.ReplaceAll(page.Text, "\u00a0", " ")
	for _, want := range texts {
		if page.Status != status || !strings.Contains(text, want) {
			p.t.Errorf("%d, want %d and %q in %s", page.Status, status, want, text)
		}
	}
}

// TestRefund: nothing is asked for before the amount was confirmed; then it is asked for once, and the pages say what became of it.
func TestRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin, euros)
	id := f.paid(m, 1250)
	p := f.refundOf(m, id)
	payment := strings.TrimSuffix(p.path, "/refund")
	if page := p.browser.Get(t, payment); !strings.Contains(page.Text, id.String()+`/refund"`) {
		t.Errorf("the payment does not lead to the form: %s", page.Text)
	}

	form := p.open()
	p.want(form, http.StatusOK, "€12.50 of this payment can be refunded.", "Amount in EUR", "Order 1001", "Continue")
	confirm := p.send(form, "5,00", "one cup was cold <b>")
	p.want(confirm, http.StatusOK, "€5.00 will go back to the payer. You cannot undo this.", `value="5.00"`, `value="one cup was cold &lt;b&gt;"`, "Refund €5.00")
	if asked := f.story(id).Requests; len(asked) > 0 {
		t.Fatalf("before it was confirmed %+v is asked for", asked)
	}
	var sent sync.WaitGroup
	for range 5 { // a person who clicks again
		sent.Go(func() {
			page := p.send(confirm, "5.00", "one cup was cold <b>")
			if page.Status != http.StatusOK || page.URL.Path != strings.TrimPrefix(payment, f.URL) {
				t.Errorf("%d %s: %s", page.Status, page.URL, page.Text)
			}
		})
	}
	sent.Wait()
	asked := f.story(id).Requests
	if len(asked) != 1 || asked[0].AmountCents != 500 || asked[0].Reason != "one cup was cold <b>" {
		t.Fatalf("%+v is asked for, want one refund", asked)
	}
	f.wantEvents("RefundPayment: " + asked[0].ID + " by oidc:alice (generation 1)")
	if log := f.log.String(); strings.Count(log, "action=RefundPayment") != 1 || !strings.Contains(log, "id="+asked[0].ID) || strings.Contains(log, "cold") {
		t.Errorf("the log is %s", log)
	}
	p.want(p.browser.Get(t, payment), http.StatusOK, "Asked for", "<dt>Refund asked for</dt><dd>€5.00</dd>", "one cup was cold &lt;b&gt;", asked[0].ID)
	list := strings.TrimSuffix(payment, "/"+id.String())
	p.want(p.browser.Get(t, list), http.StatusOK, "€5.00 to be refunded")
	p.want(p.browser.Get(t, list+"?order=1001"), http.StatusOK, "€5.00 to be refunded")

	if _, err := f.store.Refund(t.Context(), id, session.Refund{Ref: asked[0].ID, PaymentRef: "card-1", AmountCents: 500}); err != nil {
		t.Fatal(err)
	}
	p.want(p.browser.Get(t, payment), http.StatusOK, `<span class="badge on">Refunded</span>`, "<dt>Refunded</dt><dd>€5.00</dd>")
	p.want(p.browser.Get(t, list), http.StatusOK, "€5.00 refunded")
	shop := f.URL + "/merchants/" + f.namespace + "/acme"
	rest := p.send(p.open(), "", "")
	p.want(rest, http.StatusOK, "€7.50 will go back to the payer.", `value="7.50"`)
	p.send(rest, "7.50", "")
	asked = f.story(id).Requests
	if len(asked) != 2 || asked[1].AmountCents != 750 {
		t.Fatalf("%+v is asked for, want the rest too", asked)
	}
	const overdue = "A refund has waited for more than a week."
	if page := p.browser.Get(t, shop); strings.Contains(page.Text, overdue) {
		t.Error("a new refund needs attention")
	}
	waiting := goredis.Z{Score: float64(time.Now().Add(-8 * 24 * time.Hour).UnixMilli()), Member: id.String() + " " + asked[1].ID}
	key := redis.BucketKeyspace(id.Bucket()).Key("requested:", id.Account())
	if err := storetest.Inspect(t, f.redis).ZAdd(t.Context(), key, waiting).Err(); err != nil {
		t.Fatal(err)
	}
	p.want(p.browser.Get(t, shop), http.StatusOK, overdue, `/payments/`+id.String()+`">Show the oldest`)
	if _, err := f.store.RejectRefund(t.Context(), id, store.Rejection{PaymentRef: "card-1", RefundID: asked[1].ID, Reason: "account closed <b>"}); err != nil {
		t.Fatal(err)
	}
	p.want(p.browser.Get(t, payment), http.StatusOK, `<span class="badge off">Rejected</span>`, "account closed &lt;b&gt;", `/refund"`)
	page := p.browser.Get(t, shop)
	p.want(page, http.StatusOK, "A refund was asked for")
	if strings.Contains(page.Text, overdue) {
		t.Error("a rejected refund needs attention")
	}
}

// What is refused is said beside the form, which keeps what was typed.
func TestRefund_Refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", euros)
	id := f.paid(m, 1250)
	p := f.refundOf(m, id)
	long := strings.Repeat("a", 256)
	for name, test := range map[string]struct{ amount, reason, says string }{
		"more than was paid": {"12.51", "", "That is more than is left: €12.50 can be refunded."},
		"no number":          {"five", "", "This is not an amount. Use a form like 12.50."},
		"nothing":            {"0", "", "This is not an amount."},
		"too many decimals":  {"1.005", "", "This is not an amount."},
		"negative":           {"-1", "", "This is not an amount."},
		"too large":          {"99999999999999999", "", "This is not an amount."},
		"a long reason":      {"5", long, "The reason is too long"},
		"no text":            {"5", "a\x01b", "The reason is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			page := p.send(p.open(), test.amount, test.reason)
			p.want(page, http.StatusUnprocessableEntity, test.says, `role="alert"`, `name="amount" value="`+test.amount+`"`)
			if test.reason == long && !strings.Contains(page.Text, long) {
				t.Error("the reason is lost")
			}
		})
	}
	t.Run("confirmed another amount", func(t *testing.T) {
		p.want(p.send(p.send(p.open(), "5", ""), "6", ""), http.StatusOK, "€6.00 will go back to the payer.")
	})
	if asked := f.story(id).Requests; len(asked) > 0 {
		t.Fatalf("%+v is asked for", asked)
	}

	// Two people refund one payment: the second one hears what is left.
	first, second := p.send(p.open(), "8", ""), p.send(p.open(), "8", "of the second")
	p.send(first, "8.00", "")
	p.want(p.send(second, "8.00", "of the second"), http.StatusConflict, "That is more than is left: €4.50 can be refunded.", `value="8.00"`, `value="of the second"`)
	// The form that was sent, back in the browser, with another amount.
	other := hidden(first)
	other.Set("amount", "1")
	other.Set("confirmed", "100")
	again := p.browser.Post(t, p.path, other)
	p.want(again, http.StatusConflict, "This form was sent before, with another amount, and that refund is asked for. €4.50 can still be refunded.")
	p.send(p.send(again, "1", ""), "1.00", "")
	if asked := f.story(id).AskedCents(); asked != 900 {
		t.Errorf("%d are asked for, want 900", asked)
	}
	p.send(p.send(p.open(), "", ""), "3.50", "")
	p.want(p.open(), http.StatusOK, "Nothing of this payment is left to refund.")
	p.want(p.send(first, "8.00", ""), http.StatusOK, "<dd>€12.50</dd>") // the first form once more
	p.want(p.browser.Post(t, p.path, nil), http.StatusUnprocessableEntity, "Nothing of this payment is left to refund.")
	if page := p.browser.Get(t, strings.TrimSuffix(p.path, "/refund")); strings.Contains(page.Text, `/refund"`) {
		t.Error("a payment of which nothing is left leads to the form")
	}
}

func TestRefund_NoPayment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	p := f.refundOf(m, f.charge(m, "key", session.Charge{AmountCents: 1250}))
	p.want(p.open(), http.StatusOK, "This payment was not paid, so there is nothing to refund.")
	p.want(p.send(p.open(), "5", ""), http.StatusUnprocessableEntity, "This payment was not paid")
	base := p.path[:strings.Index(p.path, "/payments/")]
	for name, id := range map[string]string{
		"another merchant's": f.paid(f.merchant("globex"), 1250).String(), "none": session.NewID(published.ID(m.UID), false).String(), "no id": "ps_1",
	} {
		path := base + "/payments/" + id + "/refund"
		fields := url.Values{"nonce": {"a"}, "amount": {"5"}, "confirmed": {"500"}}
		for _, page := range []oidctest.Page{p.browser.Get(t, path), p.browser.Post(t, path, fields)} {
			p.want(page, http.StatusNotFound, "No such payment")
		}
		if parsed, err := session.ParseID(id); name == "another merchant's" && (err != nil || len(f.story(parsed).Requests) > 0) {
			t.Error("a refund of another merchant's payment is asked for")
		}
	}
}

// Keys of a merchant that is suspended or closed ask for nothing; its bookkeeper does.
func TestRefund_MerchantNotActive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantClosed} {
		m := f.merchant(strings.ToLower(string(state)), func(m *v1alpha1.Merchant) { m.Spec.State = state })
		id := f.paid(m, 1250)
		p := f.refundOf(m, id)
		p.send(p.send(p.open(), "", ""), "12.50", "")
		if asked := f.story(id).AskedCents(); asked != 1250 {
			t.Errorf("%s: %d are asked for", state, asked)
		}
	}
}

// A test payment is refunded at once.
func TestRefund_TestMode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", func(m *v1alpha1.Merchant) { m.Spec.Currency = "KWD" })
	_, created, err := f.store.CreateSession(t.Context(), admission.Request{
		MerchantID: published.ID(m.UID), KeyID: "key", Accepted: true, TestMode: true, Limit: ratelimit.Policy{RequestsPerSecond: 1000, Burst: 1000},
	}, store.NewSession{MerchantName: "ACME", Currency: "KWD", Charge: session.Charge{AmountCents: 1250}, Lifetime: 15 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Session.ID
	if _, err := f.store.SettleTest(t.Context(), id, session.Payment{Rail: session.TestRail, Ref: "test-1", Outcome: session.Completed, AmountCents: 1250}); err != nil {
		t.Fatal(err)
	}
	p := f.refundOf(m, id)
	confirm := p.send(p.open(), "0.5", "")
	p.want(confirm, http.StatusOK, "KWD 0.500 is refunded at once. This is a test payment: no money moves.", `value="0.500"`)
	p.want(p.send(confirm, "0.500", ""), http.StatusOK, "<dt>Refunded</dt><dd>KWD 0.500</dd>", `<span class="badge on">Refunded</span>`)
}

// Without the right the payment does not lead to the form, which is forbidden.
func TestRefund_WithoutTheRight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	id := f.paid(m, 1250)
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments/"+id.String()
	if page := browser.Get(t, path); page.Status != http.StatusOK || strings.Contains(page.Text, `/refund"`) {
		t.Errorf("%d: %s", page.Status, page.Text)
	}
	for _, page := range []oidctest.Page{browser.Get(t, path+"/refund"), browser.Post(t, path+"/refund", url.Values{"nonce": {"a"}, "amount": {"5"}, "confirmed": {"500"}})} {
		if page.Status != http.StatusForbidden || len(f.story(id).Requests) > 0 {
			t.Errorf("%d: %s", page.Status, page.Text)
		}
	}
}

// lostAnswers asks, and loses the answer as often as it is told.
type lostAnswers struct {
	*store.Store

	left int
}

func (l *lostAnswers) RequestRefundFor(ctx context.Context, id session.ID, asked store.AskedRefund) (store.RequestedRefund, error) {
	requested, err := l.Store.RequestRefundFor(ctx, id, asked)
	if l.left--; l.left >= 0 {
		return store.RequestedRefund{}, fmt.Errorf("%w: a test", redis.ErrUnavailable)
	}
	return requested, err
}

// Without an answer nobody knows whether the refund is asked for. The page has the same form, which asks once.
func TestRefund_AnswerLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	id := f.paid(m, 1250)
	p := f.refundOf(m, id)
	f.payments.Store = &lostAnswers{f.store, 1}
	lost := p.send(p.send(p.open(), "5", "cold"), "5.00", "cold")
	p.want(lost, http.StatusServiceUnavailable, "Perhaps asked for", "Send the form again")
	fields := hidden(lost)
	if fields.Get("nonce") == "" || fields.Get("amount") != "5.00" || fields.Get("reason") != "cold" {
		t.Fatalf("the page has the fields %v: %s", fields, lost.Text)
	}
	p.want(p.browser.Post(t, p.path, fields), http.StatusOK, "<dt>Refund asked for</dt><dd>")
	if asked := f.story(id).Requests; len(asked) != 1 {
		t.Errorf("%+v are asked for", asked)
	}
}
