package rail_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

const refundRefRule = "refundRef must be a string of 1 to 128 visible ASCII characters"

func refundBody(payment, refund string, cents int) string {
	return `{"paymentRef":"` + payment + `","refundRef":"` + refund + `","amountCents":` + strconv.Itoa(cents) + `}`
}

// paid creates a session that the bank has settled.
func (f *fixture) paid() (id string) {
	f.t.Helper()
	id = f.create()
	f.settle(id, bank, paid(1250)).Want(f.t, http.StatusOK)
	return id
}

// countRefunds counts the events of refunds.
func (f *fixture) countRefunds() (n int) {
	for _, entry := range f.events() {
		if entry.Event.Kind == v1alpha1.EventPaymentRefunded {
			n++
		}
	}
	return n
}

// A rail confirms refunds of the payment that paid and of one that was refused. It hears the same when it repeats itself, at any replica.
func TestRefund(t *testing.T) {
	f := newFixture(t)
	id := f.paid()
	f.settle(id, bank, report("bank-2", "COMPLETED", 1250)).Want(t, http.StatusOK)
	first := f.refund(id, bank, refundBody("bank-1", "back-1", 500)).Want(t, http.StatusOK)
	if at, _ := first.Body["refundedAt"].(float64); at == 0 {
		t.Errorf("the response is %s", first.Raw)
	}
	delete(first.Body, "refundedAt")
	want := map[string]any{"sessionId": id, "paymentRef": "bank-1", "refundRef": "back-1", "amountCents": 500.0}
	if diff := cmp.Diff(want, first.Body); diff != "" {
		t.Errorf("the response (-want +got):\n%s", diff)
	}
	f.refund(id, bank, refundBody("bank-2", "back-2", 1250)).Want(t, http.StatusOK)
	if again := f.other().refund(id, bank, refundBody("bank-1", "back-1", 500)).Want(t, http.StatusOK); string(again.Raw) != string(first.Raw) {
		t.Errorf("the response to a repetition is %s, first it was %s", again.Raw, first.Raw)
	}
	payments, _ := f.read(id, bank)["payments"].([]any)
	for i, refunded := range []float64{500, 1250} {
		if payment, _ := payments[i].(map[string]any); payment["refundedCents"] != refunded || payment["action"] != nil {
			t.Errorf("the rail reads %v", payment)
		}
	}
	for result, want := range map[string]string{"recorded": "2", "repeated": "0"} {
		if got := f.Metric(`merchant_operator_refunds_total{result="` + result + `"}`); got != want {
			t.Errorf("%s refunds are counted as %s, want %s", got, result, want)
		}
	}
}

// Each reason has a code of its own.
func TestRefund_Refused(t *testing.T) {
	f := newFixture(t)
	full, known := f.paid(), f.paid()
	for i := range 100 {
		f.refund(full, bank, refundBody("bank-1", strconv.Itoa(i), 1)).Want(t, http.StatusOK)
	}
	f.refund(known, bank, refundBody("bank-1", "back-1", 500)).Want(t, http.StatusOK)
	for name, test := range map[string]struct {
		id, account, body string
		status            int
		code              string
	}{
		"another amount":    {known, bank, refundBody("bank-1", "back-1", 501), http.StatusConflict, "refund_conflict"},
		"another payment":   {known, bank, refundBody("bank-2", "back-1", 500), http.StatusConflict, "refund_conflict"},
		"too much":          {known, bank, refundBody("bank-1", "back-2", 751), http.StatusConflict, "refund_exceeds_payment"},
		"too many":          {full, bank, refundBody("bank-1", "100", 1), http.StatusConflict, "too_many_refunds"},
		"unknown payment":   {known, bank, refundBody("bank-2", "back-2", 1), http.StatusNotFound, "payment_not_found"},
		"another's payment": {known, card, refundBody("bank-1", "back-1", 500), http.StatusNotFound, "payment_not_found"},
		"pending":           {f.create(), bank, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "payment_not_found"},
		"unknown session":   {f.unknownID(), bank, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
		"malformed session": {"ps_1", bank, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
		"session of a test": {f.createTest(), bank, refundBody("bank-1", "back-1", 1), http.StatusNotFound, "session_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			f.refund(test.id, test.account, test.body).WantCode(t, test.status, test.code)
		})
	}
	if n := f.countRefunds(); n != 101 {
		t.Errorf("%d events of refunds: one that was refused has an event", n)
	}
}

// The message names the field, and nothing is recorded.
func TestRefund_BadBodies(t *testing.T) {
	f := newFixture(t)
	id := f.paid()
	long := strings.Repeat("r", 129)
	for name, test := range map[string]struct{ body, message string }{
		"nothing":                 {``, roomtest.NotAnObject},
		"not JSON":                {`paymentRef=bank-1`, roomtest.NotJSON},
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
		"amount of a rejection":   {`{"paymentRef":"bank-1","refundRef":"a","outcome":"REJECTED","amountCents":1}`, "amountCents must be absent when outcome is REJECTED"},
		"amount over the maximum": {refundBody("bank-1", "a", 1_000_000_000_000_001), reportedAmountRule},
	} {
		t.Run(name, func(t *testing.T) {
			f.refund(id, bank, test.body).WantError(t, http.StatusBadRequest, test.message)
		})
	}
	got := f.refund(id, bank, `{"paymentRef":"bank-1","refundRef":"a","amountCents":1,"fee":"x"}`).Want(t, http.StatusOK)
	if got.Header.Get("Ignored-Fields") != "fee" {
		t.Errorf("ignored fields: %s", got.Header)
	}
}

// Money that has moved is recorded, however much it is: many currencies have amounts that no session has. All amounts stay exact.
func TestRefund_HugeAmounts(t *testing.T) {
	f := newFixture(t)
	id := f.create()
	const all = 1_000_000_000_000_000
	body := `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1000000000000000,"currency":"VND"}`
	for range 2 {
		if got := f.settle(id, bank, body).Want(t, http.StatusOK); got.Body["action"] != "REFUND_REQUIRED" || got.Text("status") != "PENDING" {
			t.Errorf("the rail gets %s", got.Raw)
		}
	}
	f.refund(id, bank, refundBody("bank-1", "back-1", all-2)).Want(t, http.StatusOK)
	f.refund(id, bank, refundBody("bank-1", "back-2", 1)).Want(t, http.StatusOK)
	for _, cents := range []int{2, all} {
		if got := f.refund(id, bank, refundBody("bank-1", "back-3", cents)); got.Header.Get("Error-Code") != "refund_exceeds_payment" {
			t.Errorf("%d more than the payment: %d %s", cents, got.Status, got.Raw)
		}
	}
	const left = `"amountCents":1000000000000000,"currency":"VND","refundedCents":999999999999999,"action":"REFUND_REQUIRED"`
	if got := f.get(id, bank); !strings.Contains(string(got.Raw), left) {
		t.Errorf("the rail reads %s", got.Raw)
	}
	f.refund(id, bank, refundBody("bank-1", "back-5", 1)).Want(t, http.StatusOK)
	if got := f.get(id, bank); !strings.Contains(string(got.Raw), `"refundedCents":1000000000000000`) || strings.Contains(string(got.Raw), "REFUND_REQUIRED") {
		t.Errorf("after all went back the rail reads %s", got.Raw)
	}
	var moved []int64
	for _, entry := range f.events() {
		if refund := entry.Event.Session.Refund; refund != nil {
			moved = append(moved, refund.AmountCents, refund.PaymentCents, refund.RefundedCents)
		} else {
			moved = append(moved, entry.Event.Session.Payment.AmountCents)
		}
	}
	if diff := cmp.Diff([]int64{all, all - 2, all, all - 2, 1, all, all - 1, 1, all, all}, moved); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Nobody could hear of it, but the money is accounted for.
func TestRefund_DeletedMerchant(t *testing.T) {
	f := newFixture(t)
	id := f.create()
	f.WithdrawMerchant(f.acme)
	step{paid(1250), refundPending}.check(t, 1, f.settle(id, bank, paid(1250)))
	f.refund(id, bank, refundBody("bank-1", "back-1", 1250)).Want(t, http.StatusOK)
	payments, _ := f.read(id, bank)["payments"].([]any)
	if payment, _ := payments[0].(map[string]any); payment["refundedCents"] != 1250.0 || payment["action"] != nil {
		t.Errorf("the rail reads %v", payments)
	}
}

// A confirmation of which nobody knows whether it was recorded is sent again.
func TestRefund_RedisDown(t *testing.T) {
	redis := redistest.Start(t)
	f := newFixtureOn(t, redis)
	id := f.paid()
	redis.Stop()
	got := f.refund(id, bank, refundBody("bank-1", "back-1", 1250)).WantCode(t, http.StatusServiceUnavailable, "report_unknown")
	if got.Header.Get("Retry-After") == "" {
		t.Errorf("headers %v", got.Header)
	}
}
