package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const refundRefRule = "refundRef must be a string of 1 to 128 visible ASCII characters"

// refund has a rail confirm a refund, and checks the answer against its document.
func (r *replica) refund(sessionID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, "/internal/v1/sessions/"+sessionID+"/refunds", token, body)
}

func refundBody(payment, refund string, cents int) string {
	return `{"paymentRef":"` + payment + `","refundRef":"` + refund + `","amountCents":` + strconv.Itoa(cents) + `}`
}

// A rail confirms refunds of the payment that paid and of one that was refused, and everybody who may know learns of it.
func TestRefund(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	r := replicas[0]
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated).text("sessionId")
	r.report(id, rail, report("bank-1", "COMPLETED", 1250)).want(t, http.StatusOK)
	if before := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK); before.body["payments"] != nil {
		t.Errorf("a payment without more to say of it: %s", before.raw)
	}
	r.report(id, rail, report("bank-2", "COMPLETED", 1250)).want(t, http.StatusOK)
	first := r.refund(id, rail, refundBody("bank-1", "back-1", 500)).want(t, http.StatusOK)
	if at, _ := first.body["refundedAt"].(float64); at == 0 {
		t.Errorf("the answer is %s", first.raw)
	}
	delete(first.body, "refundedAt")
	want := map[string]any{"sessionId": id, "paymentRef": "bank-1", "refundRef": "back-1", "amountCents": 500.0}
	if diff := cmp.Diff(want, first.body); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	r.refund(id, rail, refundBody("bank-2", "back-2", 1250)).want(t, http.StatusOK)
	if again := replicas[1].refund(id, rail, refundBody("bank-1", "back-1", 500)).want(t, http.StatusOK); string(again.raw) != string(first.raw) {
		t.Errorf("a repeat is answered with %s, first with %s", again.raw, first.raw)
	}

	for _, r := range replicas {
		sess := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
		var expected any
		if err := json.Unmarshal([]byte(`[
			{"paymentRef": "bank-1", "amountCents": 1250, "currency": "EUR", "refused": false, "refundedCents": 500, "refunds": [{"refundRef": "back-1", "amountCents": 500}]},
			{"paymentRef": "bank-2", "amountCents": 1250, "currency": "EUR", "refused": true, "refundedCents": 1250, "refunds": [{"refundRef": "back-2", "amountCents": 1250}]}
		]`), &expected); err != nil {
			t.Fatal(err)
		}
		when := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return name == "refundedAt" })
		if diff := cmp.Diff(expected, sess.body["payments"], when); diff != "" || sess.text("status") != "COMPLETED" {
			t.Errorf("the merchant reads %s (-want +got):\n%s", sess.text("status"), diff)
		}
		payments, _ := r.railRead(t, id, rail)["payments"].([]any)
		for i, refunded := range []float64{500, 1250} {
			payment, _ := payments[i].(map[string]any)
			if payment["refundedCents"] != refunded || payment["action"] != nil {
				t.Errorf("the rail reads %v", payment)
			}
		}
		if page := r.payerPage(t, id); !strings.Contains(page, "<h1>Paid</h1>") || !strings.Contains(page, "<dt>Refunded</dt><dd><bdi>€5.00</bdi>") {
			t.Errorf("the payer sees %s", page)
		}
	}
	r.refund(id, rail, refundBody("bank-1", "back-3", 750)).want(t, http.StatusOK)
	if page := r.payerPage(t, id); !strings.Contains(page, "<h1>Refunded</h1>") || !strings.Contains(page, "€12.50") {
		t.Errorf("after all went back the payer sees %s", page)
	}
	events := r.call(http.MethodGet, "/api/v1/events", key, "").want(t, http.StatusOK)
	if n := strings.Count(string(events.raw), `"session.payment_refunded"`); n != 3 {
		t.Errorf("%d events of refunds, want 3: %s", n, events.raw)
	}
	// The list of a day is not netted.
	if day := r.call(http.MethodGet, sessions+"?endedFrom=1", key, "").want(t, http.StatusOK); strings.Count(string(day.raw), id+`","status":"COMPLETED","amountCents":1250`) != 1 || strings.Contains(string(day.raw), "refund") {
		t.Errorf("the day is %s", day.raw)
	}
}

// payerPage is what a payer sees.
func (r *replica) payerPage(t *testing.T, id string) string {
	t.Helper()
	return string(r.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", "en").want(t, http.StatusOK).raw)
}

// Each reason has a code of its own.
func TestRefund_Refused(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, rail, other := f.key("till", acme), f.rail("bank"), f.rail("cards")
	test := f.testKey("test", acme)
	r := f.start()
	paid := func() string {
		id := r.create(key)
		r.report(id, rail, report("bank-1", "COMPLETED", 1250)).want(t, http.StatusOK)
		return id
	}
	played := r.create(test)
	full := paid()
	for i := range 100 {
		r.refund(full, rail, refundBody("bank-1", strconv.Itoa(i), 1)).want(t, http.StatusOK)
	}
	known := paid()
	r.refund(known, rail, refundBody("bank-1", "back-1", 500)).want(t, http.StatusOK)
	for name, test := range map[string]struct {
		id, rail, body string
		status         int
		code           string
	}{
		"another amount":    {known, rail, refundBody("bank-1", "back-1", 501), http.StatusConflict, "refund_conflict"},
		"another payment":   {known, rail, refundBody("bank-2", "back-1", 500), http.StatusConflict, "refund_conflict"},
		"too much":          {known, rail, refundBody("bank-1", "back-2", 751), http.StatusConflict, "refund_exceeds_payment"},
		"too many":          {full, rail, refundBody("bank-1", "100", 1), http.StatusConflict, "too_many_refunds"},
		"unknown payment":   {known, rail, refundBody("bank-2", "back-2", 1), http.StatusNotFound, "payment_not_found"},
		"another's payment": {known, other, refundBody("bank-1", "back-1", 500), http.StatusNotFound, "payment_not_found"},
		"pending":           {r.create(key), rail, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "payment_not_found"},
		"unknown session":   {"ps_" + acme.MerchantID + "aaaaaaaaaaaaaaaaaa", rail, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
		"malformed session": {"ps_1", rail, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
		"session of a test": {played, rail, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
		"no right to do so": {known, f.account("nobody"), refundBody("bank-1", "back-2", 1), http.StatusForbidden, "account_not_allowed"},
		"a merchant's key":  {known, key, refundBody("bank-1", "back-2", 1), http.StatusUnauthorized, ""},
		"no token":          {known, "", refundBody("bank-1", "back-2", 1), http.StatusUnauthorized, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.refund(test.id, test.rail, test.body); got.status != test.status || got.header.Get("Error-Code") != test.code {
				t.Errorf("%d %s %s, want %d %s", got.status, got.header.Get("Error-Code"), got.raw, test.status, test.code)
			}
		})
	}
	if events := r.call(http.MethodGet, "/api/v1/events?limit=200", key, "").want(t, http.StatusOK); strings.Count(string(events.raw), `"session.payment_refunded"`) != 101 {
		t.Error("a refund that was refused has an event")
	}
}

// The message names the field, and nothing is recorded.
func TestRefund_BadBodies(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.create(key)
	r.report(id, rail, report("bank-1", "COMPLETED", 1)).want(t, http.StatusOK)
	long := strings.Repeat("r", 129)
	for name, test := range map[string]struct{ body, message string }{
		"nothing":                 {``, notAnObject},
		"not JSON":                {`paymentRef=bank-1`, notJSON},
		"the refund twice":        {`{"paymentRef":"bank-1","refundRef":"a","refundRef":"b","amountCents":1}`, `duplicate field "refundRef"`},
		"no payment":              {`{"refundRef":"a","amountCents":1}`, paymentRefRule},
		"payment a number":        {`{"paymentRef":1,"refundRef":"a","amountCents":1}`, paymentRefRule},
		"payment too long":        {refundBody(long, "a", 1), paymentRefRule},
		"no refund":               {`{"paymentRef":"bank-1","amountCents":1}`, refundRefRule},
		"refund empty":            {refundBody("bank-1", "", 1), refundRefRule},
		"refund null":             {`{"paymentRef":"bank-1","refundRef":null,"amountCents":1}`, refundRefRule},
		"refund an object":        {`{"paymentRef":"bank-1","refundRef":{},"amountCents":1}`, refundRefRule},
		"refund with a blank":     {refundBody("bank-1", "a b", 1), refundRefRule},
		"refund with an umlaut":   {refundBody("bank-1", "zurück", 1), refundRefRule},
		"refund too long":         {refundBody("bank-1", long, 1), refundRefRule},
		"no amount":               {`{"paymentRef":"bank-1","refundRef":"a"}`, reportedAmountRule},
		"amount null":             {`{"paymentRef":"bank-1","refundRef":"a","amountCents":null}`, reportedAmountRule},
		"amount a string":         {`{"paymentRef":"bank-1","refundRef":"a","amountCents":"1"}`, reportedAmountRule},
		"amount a fraction":       {`{"paymentRef":"bank-1","refundRef":"a","amountCents":0.5}`, reportedAmountRule},
		"amount zero":             {refundBody("bank-1", "a", 0), reportedAmountRule},
		"amount negative":         {refundBody("bank-1", "a", -1), reportedAmountRule},
		"amount over the maximum": {refundBody("bank-1", "a", 1_000_000_000_000_001), reportedAmountRule},
	} {
		t.Run(name, func(t *testing.T) {
			r.refund(id, rail, test.body).wantError(t, http.StatusBadRequest, test.message)
		})
	}
	got := r.refund(id, rail, `{"paymentRef":"bank-1","refundRef":"a","amountCents":1,"reason":"x"}`).want(t, http.StatusOK)
	if got.header.Get("Ignored-Fields") != "reason" {
		t.Errorf("ignored fields: %s", got.header)
	}
}

// Money that has moved is recorded, however much it is: many currencies have amounts that no session has. All amounts stay exact.
func TestRefund_HugeAmounts(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.create(key)
	const all = 1_000_000_000_000_000
	body := `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1000000000000000,"currency":"VND"}`
	for range 2 {
		if got := r.report(id, rail, body).want(t, http.StatusOK); got.body["action"] != "REFUND_REQUIRED" || got.text("status") != "PENDING" {
			t.Errorf("the rail gets %s", got.raw)
		}
	}
	r.refund(id, rail, refundBody("bank-1", "back-1", all-2)).want(t, http.StatusOK)
	r.refund(id, rail, refundBody("bank-1", "back-2", 1)).want(t, http.StatusOK)
	for _, cents := range []int{2, all} {
		if got := r.refund(id, rail, refundBody("bank-1", "back-3", cents)); got.header.Get("Error-Code") != "refund_exceeds_payment" {
			t.Errorf("%d more than the payment: %d %s", cents, got.status, got.raw)
		}
	}
	const left = `"amountCents":1000000000000000,"currency":"VND","refundedCents":999999999999999,"action":"REFUND_REQUIRED"`
	if got := r.internally(http.MethodGet, "/internal/v1/sessions/"+id, rail, ""); !strings.Contains(string(got.raw), left) {
		t.Errorf("the rail reads %s", got.raw)
	}
	r.refund(id, rail, refundBody("bank-1", "back-5", 1)).want(t, http.StatusOK)
	want := `"amountCents":1000000000000000,"currency":"VND","refused":true,"refundedCents":1000000000000000,`
	if got := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK); !strings.Contains(string(got.raw), want) {
		t.Errorf("the merchant reads %s", got.raw)
	}
	feed := string(r.call(http.MethodGet, events, key, "").want(t, http.StatusOK).raw)
	for _, want := range []string{
		`"payment":{"amountCents":1000000000000000,"currency":"VND"}`,
		`"amountCents":999999999999998,"currency":"VND","paymentCents":1000000000000000,"refundedCents":999999999999998}`,
		`"amountCents":1,"currency":"VND","paymentCents":1000000000000000,"refundedCents":1000000000000000}`,
	} {
		if !strings.Contains(feed, want) {
			t.Errorf("no %s in the feed %s", want, feed)
		}
	}
}

// Nobody could hear of it, but the money is accounted for.
func TestRefund_DeletedMerchant(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, rail := f.key("till", acme), f.rail("bank")
	r := f.start()
	id := r.create(key)
	f.withdraw(acme)
	eventually(t, "the payment is to be refunded", func() bool {
		return r.report(id, rail, report("bank-1", "COMPLETED", 1250)).body["action"] == "REFUND_REQUIRED"
	})
	r.refund(id, rail, refundBody("bank-1", "back-1", 1250)).want(t, http.StatusOK)
	payments, _ := r.railRead(t, id, rail)["payments"].([]any)
	if payment, _ := payments[0].(map[string]any); payment["refundedCents"] != 1250.0 || payment["action"] != nil {
		t.Errorf("the rail reads %v", payments)
	}
}

// A confirmation of which nobody knows whether it was recorded is sent again.
func TestRefund_RedisDown(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	redis := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = redis.URL() })
	id := r.create(key)
	r.report(id, rail, report("bank-1", "COMPLETED", 1250)).want(t, http.StatusOK)
	redis.Stop()
	got := r.refund(id, rail, refundBody("bank-1", "back-1", 1250)).want(t, http.StatusServiceUnavailable)
	if got.header.Get("Error-Code") != "report_unknown" || got.header.Get("Retry-After") == "" {
		t.Errorf("%s %s", got.header, got.raw)
	}
}
