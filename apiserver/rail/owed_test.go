package rail_test

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// ask has acme's people ask for a refund.
func (f *fixture) ask(id, key string, cents int64) (refundID string) {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	got, err := f.RequestRefundFor(f.t.Context(), parsed, store.AskedRefund{Idempotency: storetest.IdempotencyKey(f.t, key), AmountCents: &cents, Reason: "cold"})
	storetest.Must(f.t, err)
	return got.ID
}

func (f *fixture) owed(account, query string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodGet, "/internal/v1/refunds"+query, account, "")
}

// rows returns the refunds of a list.
func rows(result roomtest.Result) []any {
	rows, _ := result.Body["refunds"].([]any)
	return rows
}

// A bank with an empty disk reads what it owes, pays it back, confirms it under the names that it has read, and owes nothing.
func TestListOwed(t *testing.T) {
	server := redistest.Start(t)
	f := newFixtureOn(t, server)
	id := f.paid()
	f.settle(id, bank, report("bank-2", "COMPLETED", 1000)).Want(t, http.StatusOK)
	nextMillisecond() // the order of the list
	f.settle(id, bank, `{"paymentRef":"bank-3","outcome":"COMPLETED","amountCents":900,"currency":"JPY"}`).Want(t, http.StatusOK)
	f.settle(id, card, report("card-1", "COMPLETED", 1250)).Want(t, http.StatusOK)
	nextMillisecond()
	refundID := f.ask(id, "a", 500)
	got := f.owed(bank, "").Want(t, http.StatusOK)
	merchant := published.PublicMerchantID(f.acme.MerchantID)
	want := []any{
		map[string]any{"sessionId": id, "paymentRef": "bank-2", "amountCents": 1000.0, "currency": "EUR", "cause": "late", "merchantId": merchant},
		map[string]any{"sessionId": id, "paymentRef": "bank-3", "amountCents": 900.0, "currency": "JPY", "cause": "late", "merchantId": merchant},
		map[string]any{"sessionId": id, "paymentRef": "bank-1", "refundRef": refundID, "amountCents": 500.0, "currency": "EUR", "cause": "requested", "reason": "cold", "merchantId": merchant},
	}
	vary := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return name == "since" || name == "refundRef" })
	if diff := cmp.Diff(want, rows(got), vary); diff != "" || got.Body["cursor"] != nil {
		t.Errorf("%s (-want +got):\n%s", got.Raw, diff)
	}
	if again := f.other().owed(bank, ""); string(again.Raw) != string(got.Raw) {
		t.Errorf("another replica says %s, the first %s", again.Raw, got.Raw)
	}
	for _, row := range rows(got) {
		row := row.(map[string]any)
		f.refund(id, bank, refundBody(row["paymentRef"].(string), row["refundRef"].(string), int(row["amountCents"].(float64)))).Want(t, http.StatusOK)
	}
	if left := f.owed(bank, "").Want(t, http.StatusOK); len(rows(left)) != 0 {
		t.Errorf("left: %s", left.Raw)
	}
	if others := f.owed(card, "").Want(t, http.StatusOK); len(rows(others)) != 1 {
		t.Errorf("another rail owes %s", others.Raw)
	}
}

// A rail goes on with what a merchant has asked for, whatever becomes of the merchant. One that was deleted hears nothing more of it.
func TestListOwed_MerchantStates(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fixture, published.MerchantRecord)
		events []v1alpha1.WebhookEvent
	}{
		"suspended": {inState(v1alpha1.MerchantSuspended), []v1alpha1.WebhookEvent{v1alpha1.EventPaymentRefunded, v1alpha1.EventRefundRejected}},
		"closed":    {inState(v1alpha1.MerchantClosed), []v1alpha1.WebhookEvent{v1alpha1.EventPaymentRefunded, v1alpha1.EventRefundRejected}},
		"deleted":   {withdrawn, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOn(t, redistest.Start(t))
			id := f.paid()
			paid := f.ask(id, "a", 500)
			nextMillisecond() // the order of the list
			rejected := f.ask(id, "b", 750)
			test.change(f, f.acme)
			before := len(f.events())
			var refs []string
			for _, row := range rows(f.owed(bank, "").Want(t, http.StatusOK)) {
				refs = append(refs, row.(map[string]any)["refundRef"].(string))
			}
			if diff := cmp.Diff([]string{paid, rejected}, refs); diff != "" {
				t.Errorf("the rail reads (-want +got):\n%s", diff)
			}
			for range 2 {
				f.refund(id, bank, refundBody("bank-1", paid, 500)).Want(t, http.StatusOK)
				f.refund(id, bank, `{"paymentRef":"bank-1","refundRef":"`+rejected+`","outcome":"REJECTED"}`).Want(t, http.StatusOK)
			}
			if left := rows(f.owed(bank, "").Want(t, http.StatusOK)); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			var events []v1alpha1.WebhookEvent
			for _, entry := range f.events()[before:] {
				events = append(events, entry.Event.Kind)
			}
			if diff := cmp.Diff(test.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// nextMillisecond returns when the clock shows a later time than any recorded before.
func nextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
		runtime.Gosched()
	}
}

func TestListOwed_Pages(t *testing.T) {
	f := newFixtureOn(t, redistest.Start(t))
	var want, got []string
	for range 5 {
		want = append(want, f.ask(f.paid(), "a", 1))
	}
	for query := "?limit=2"; query != ""; {
		page := f.owed(bank, query).Want(t, http.StatusOK)
		for _, row := range rows(page) {
			got = append(got, row.(map[string]any)["refundRef"].(string))
		}
		query = ""
		if cursor := page.Text("cursor"); cursor != "" {
			query = "?limit=2&after=" + cursor
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?limit=1&limit=2", "?after=x", "?after=", "?after=a&after=b", "?after=OTIyMzM3MjAzNjg1NDc3NTgwNyB4"} {
		f.owed(bank, query).WantCode(t, http.StatusBadRequest, "invalid_request")
	}
}

// A page of the longest refunds is what docs/rail.md says that a rail must be able to read: 1 MiB.
func TestListOwed_Longest(t *testing.T) {
	f := newFixtureOn(t, redistest.Start(t))
	longest, cents := strings.Repeat("<", 128), int64(1) // "<" is six characters of JSON
	for range 10 {
		id := f.create()
		f.settle(id, bank, report(longest, "COMPLETED", 1250)).Want(t, http.StatusOK)
		parsed, err := session.ParseID(id)
		storetest.Must(t, err)
		for i := range 10 {
			_, err := f.RequestRefundFor(t.Context(), parsed, store.AskedRefund{
				Idempotency: storetest.IdempotencyKey(t, strconv.Itoa(i)), AmountCents: &cents, Reason: strings.Repeat("<", 255),
			})
			storetest.Must(t, err)
		}
	}
	page := f.owed(bank, "?limit=100").Want(t, http.StatusOK)
	if n := len(rows(page)); n == 0 || len(page.Raw)/n*100 > 1<<20 {
		t.Errorf("%d refunds in %d bytes: a hundred have more than 1 MiB", n, len(page.Raw))
	}
}

// A rail rejects what was asked for, once, and confirms it should its money have moved after all.
func TestRefund_Rejected(t *testing.T) {
	f := newFixture(t)
	id := f.paid()
	refundID := f.ask(id, "a", 500)
	reject := `{"paymentRef":"bank-1","refundRef":"` + refundID + `","outcome":"REJECTED","reason":"account closed"}`
	f.refund(id, card, reject).WantCode(t, http.StatusNotFound, "refund_not_found")
	first := f.refund(id, bank, reject).Want(t, http.StatusOK)
	if first.Text("outcome") != "REJECTED" || first.Body["amountCents"] != 500.0 || first.Body["rejectedAt"] == nil {
		t.Errorf("the response is %s", first.Raw)
	}
	if again := f.other().refund(id, bank, reject).Want(t, http.StatusOK); string(again.Raw) != string(first.Raw) {
		t.Errorf("the response to a repetition is %s, first it was %s", again.Raw, first.Raw)
	}
	f.refund(id, bank, refundBody("bank-1", refundID, 500)).Want(t, http.StatusOK)
	f.refund(id, bank, refundBody("bank-1", refundID, 499)).WantCode(t, http.StatusConflict, "refund_conflict")
	f.refund(id, bank, reject).WantCode(t, http.StatusConflict, "refund_confirmed")
	for body, message := range map[string]string{
		`{"paymentRef":"bank-1","refundRef":"r","outcome":"REQUESTED"}`:               "outcome must be",
		`{"paymentRef":"bank-1","refundRef":"r","outcome":"REJECTED","reason":"a\t"}`: "reason must be",
		`{"paymentRef":"bank-1","outcome":"REJECTED"}`:                                refundRefRule,
	} {
		if got := f.refund(id, bank, body).Want(t, http.StatusBadRequest); got.Text("error")[:len(message)] != message {
			t.Errorf("%s: %s", body, got.Text("error"))
		}
	}
	for result, want := range map[string]string{"rejected": "1", "confirmed_before": "1", "unknown_request": "1", "recorded": "1"} {
		if got := f.Metric(`merchant_operator_refunds_total{result="` + result + `"}`); got != want {
			t.Errorf("%s refunds are counted as %s, want %s", result, got, want)
		}
	}
}
