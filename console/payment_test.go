package console

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// charge creates a session of the merchant with a key.
func (f *fixture) charge(m *v1alpha1.Merchant, keyID string, charge session.Charge) session.ID {
	f.t.Helper()
	_, created, err := f.store.CreateSession(f.t.Context(), admission.Request{
		MerchantID: published.ID(m.UID), KeyID: keyID, Accepted: true, Limit: ratelimit.Policy{RequestsPerSecond: 1000, Burst: 100_000},
	}, store.NewSession{MerchantName: "ACME", Currency: "EUR", Charge: charge, Lifetime: 15 * time.Minute})
	if err != nil {
		f.t.Fatal(err)
	}
	return created.Session.ID
}

// settle reports a payment, as a rail does.
func (f *fixture) settle(id session.ID, payment session.Payment) {
	f.t.Helper()
	if _, err := f.store.Settle(f.t.Context(), id, payment); err != nil {
		f.t.Fatal(err)
	}
}

// removeSessions does what their TTLs do.
func (f *fixture) removeSessions() {
	f.t.Helper()
	redis := storetest.Inspect(f.t, f.redis)
	keys, err := redis.Keys(f.t.Context(), "*session:*").Result()
	if err == nil && len(keys) > 0 {
		err = redis.Del(f.t.Context(), keys...).Err()
	}
	if err != nil || len(keys) == 0 {
		f.t.Fatalf("removed %v: %v", keys, err)
	}
}

func TestShowPayment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin)
	key := f.apiKey(m, "till-1") // its status names another key id
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments/"
	id := f.charge(m, published.ID(key.UID), session.Charge{AmountCents: 1250, OrderRef: "table 7 <b>", Description: "2 <i>flat whites</i>", TaxCents: new(int64(110)), TipCents: new(int64(0))})
	want := func(when string, texts ...string) {
		t.Helper()
		page := browser.Get(t, path+id.String())
		for _, text := range texts {
			if page.Status != http.StatusOK || !strings.Contains(page.Text, text) {
				t.Errorf("%s: %d, no %q in %s", when, page.Status, text, page.Text)
			}
		}
	}
	want("pending", "€12.50", "Waiting", "The payer has not paid yet.", "Can be paid until", "table 7 &lt;b&gt;", "2 &lt;i&gt;flat whites&lt;/i&gt;", "€1.10", "€0.00", "<dd>till-1</dd>", id.String(), "Europe/Berlin")
	f.settle(id, session.Payment{Ref: "card-0", Outcome: session.Completed, AmountCents: 7, PaidAt: time.Date(2026, 11, 22, 23, 0, 1, 0, time.UTC)})
	want("after a wrong amount", "Waiting", "To be refunded", "€0.07", "It was not the amount that was asked for.", "card-0", "23 Nov 2026, 00:00:01")
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 1250})
	f.settle(id, session.Payment{Ref: "card-2", Outcome: session.Completed, AmountCents: 1250})
	want("paid twice", "Paid", "card-1", "The order was paid already.", "card-2", ">2</span>")
	refund := func(payment, ref string, cents int64) {
		t.Helper()
		if _, err := f.store.Refund(t.Context(), id, session.Refund{Ref: ref, PaymentRef: payment, AmountCents: cents}); err != nil {
			t.Fatal(err)
		}
	}
	refund("card-2", "back-1", 1250)
	want("one refunded", "To be refunded", ">1</span>", ">Refunded</span>", "€12.50 refunded", "back-1")
	refund("card-0", "back-2", 7)
	refund("card-1", "back-3", 500)
	want("all refunded", "Refused and refunded", "It went back to the payer.", "back-2", "<dt>Refunded</dt><dd>€5.00</dd>", "back-3", "What goes back is in the totals of the day on which it goes back.")

	failed := f.charge(m, "gone", session.Charge{AmountCents: 5})
	f.settle(failed, session.Payment{Ref: "card-3", Outcome: session.Failed, AmountCents: 5, Reason: "no funds <b>"})
	id = failed
	want("failed", "Failed", "No money has moved.", "no funds &lt;b&gt;", "a deleted key (gone)")

	other := f.merchant("globex")
	for name, id := range map[string]string{
		"another merchant's": f.charge(other, "gone", session.Charge{AmountCents: 1}).String(), "none": session.NewID(published.ID(m.UID), false).String(),
		"no id": "ps_1", "markup": "%3Cb%3E",
	} {
		if page := browser.Get(t, path+id); page.Status != http.StatusNotFound || !strings.Contains(page.Text, "No such payment") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text)
		}
	}
}

// A session that nobody paid is removed days after its end. Its row in the list is kept for longer, and leads to its end.
func TestShowPayment_RemovedSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin)
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	f.settle(f.charge(m, "key", session.Charge{AmountCents: 99}), session.Payment{Ref: "card-0", Outcome: session.Failed, AmountCents: 99})
	id := f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: "table 7"})
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Failed, AmountCents: 1250, Reason: "no funds"})
	f.removeSessions()
	rows := regexp.MustCompile(`href="[^"]*/payments/(ps_[^"]*)"`).FindAllStringSubmatch(browser.Get(t, path).Text, -1)
	if len(rows) != 2 || !strings.HasPrefix(rows[0][1], id.String()) {
		t.Fatalf("the list has %v, want %s first", rows, id)
	}
	page := browser.Get(t, path+"/"+html.UnescapeString(rows[0][1]))
	for _, text := range []string{"€12.50", "Failed", "table 7", "card-1", "no funds", "Only this is kept of it.", "a deleted key (key)"} {
		if page.Status != http.StatusOK || !strings.Contains(page.Text, text) {
			t.Errorf("%d, no %q in %s", page.Status, text, page.Text)
		}
	}
	_, entry, _ := strings.Cut(rows[0][1], "?")
	other, _, _ := strings.Cut(rows[1][1], "?")
	for name, payment := range map[string]string{
		"without its entry": id.String(), "the entry of another payment": other + "?" + entry, "no entry": id.String() + "?entry=%3Cb%3E",
		"an entry of never": id.String() + "?entry=1-0", "the greatest entry": id.String() + "?entry=9223372036854775807-18446744073709551615",
		"another merchant's": f.charge(f.merchant("globex"), "key", session.Charge{AmountCents: 1}).String() + "?" + entry,
	} {
		if page := browser.Get(t, path+"/"+payment); page.Status != http.StatusNotFound || !strings.Contains(page.Text, "No such payment") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text)
		}
	}
}

// What ends is in the list and in the totals of its mode and its day at once.
func TestListPayments_InRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", berlin, euros)
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments"
	f.settle(f.charge(f.merchant("globex"), "key", session.Charge{AmountCents: 99}), session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 99})
	f.charge(m, "key", session.Charge{AmountCents: 98})
	f.settle(f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: "first"}), session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 1250})
	f.settle(f.charge(m, "key", session.Charge{AmountCents: 700, OrderRef: "second"}), session.Payment{Ref: "card-2", Outcome: session.Failed, AmountCents: 700})
	page := browser.Get(t, path).Text
	if today := shownToday(page); !strings.Contains(today, "Paid €12.50 1 payment Given back €0.00 Net €12.50") {
		t.Errorf("the totals are %q", today)
	}
	if second, first := strings.Index(page, "order second"), strings.Index(page, "order first"); second < 0 || first < second || strings.Contains(page, "€0.9") {
		t.Errorf("the list is %s", page)
	}
	if page := browser.Get(t, path+"?mode=test").Text; !strings.Contains(page, "No payments yet") {
		t.Errorf("of test mode: %s", page)
	}
	if file, err := download(t, browser, path+".csv"); err != nil || strings.Count(file.Text, "\r\n") != 3 || !strings.Contains(file.Text, ",COMPLETED,1250,EUR,12.50,,,first,card-1,") {
		t.Errorf("the CSV is %s, %v", file.Text, err)
	}
	f.advance(24 * time.Hour)
	next := f.signedIn(alice).Get(t, path).Text
	if days := shownRows(next, "day"); !strings.Contains(shownToday(next), "Paid €0.00") || len(days) != 1 || !strings.Contains(days[0], "€12.50 €0.00 €12.50") {
		t.Errorf("the totals of the next day are %q and %q", shownToday(next), days)
	}
}

// An order is searched for in one mode of one merchant, and what has not ended is found too.
func TestListPayments_OrderInRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "viewpayments"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme/payments?order=1001"
	f.charge(f.merchant("globex"), "key", session.Charge{AmountCents: 99, OrderRef: "1001"})
	f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: "1001"})
	paid := f.charge(m, "key", session.Charge{AmountCents: 700, OrderRef: "1001"})
	f.settle(paid, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 700})
	page := browser.Get(t, path).Text
	first, second := strings.Index(page, "€7.00"), strings.Index(page, "€12.50")
	if first < 0 || second < first || strings.Contains(page, "€0.99") || !strings.Contains(page, "Waiting") || !strings.Contains(page, "Paid") {
		t.Errorf("the page shows %s", page)
	}
	if page := browser.Get(t, path+"&mode=test").Text; !strings.Contains(page, "Nothing was found for “1001”") {
		t.Errorf("among test payments: %s", page)
	}
	f.redis.Stop()
	if page := browser.Get(t, path); page.Status != http.StatusServiceUnavailable {
		t.Errorf("without Redis: %d", page.Status)
	}
}
