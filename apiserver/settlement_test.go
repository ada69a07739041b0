package apiserver_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step is one request about a session, and its expected response.
type step struct {
	report string // of a rail; empty: the merchant cancels
	want   string // the answer, but for sessionId and endedAt; or the status code of an error
}

const (
	cancel    = ""
	completed = `{"status":"COMPLETED","applied":true}`
	failed    = `{"status":"FAILED","applied":true}`
)

// check fails the test unless the answer is as the step wants it.
func (s step) check(t *testing.T, number int, got result) {
	t.Helper()
	if len(s.want) == len("409") {
		if strconv.Itoa(got.status) != s.want {
			t.Fatalf("step %d: status %d, want %s: %s", number, got.status, s.want, got.raw)
		}
		return
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(s.want), &want); err != nil {
		t.Fatal(err)
	}
	shown := maps.Clone(got.want(t, http.StatusOK).body)
	delete(shown, "sessionId")
	delete(shown, "endedAt")
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Fatalf("step %d (-want +got):\n%s", number, diff)
	}
}

// What ends a session, and what does not. The steps go to two replicas in turn.
func TestSettlement(t *testing.T) {
	const amount = 1250
	other := report("bank-2", "COMPLETED", amount)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	for name, test := range map[string]struct {
		steps  []step
		status string // in the end
		shown  map[string]any
	}{
		"paid":         {[]step{{paid(amount), completed}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"failed":       {[]step{{failure(amount), failed}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"paid again":   {[]step{{paid(amount), completed}, {paid(amount), completed}, {paid(amount), completed}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"failed again": {[]step{{failure(amount), failed}, {failure(amount), failed}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"failed, with a reason": {[]step{
			{`{"paymentRef":"bank-1","outcome":"FAILED","amountCents":1250,"reason":"insufficient funds","paidAt":"2026-11-21T10:00:00Z"}`, failed},
		}, "FAILED", map[string]any{"paymentRef": "bank-1", "reason": "insufficient funds"}},
		"cancelled":                  {[]step{{cancel, "200"}, {cancel, "200"}}, "CANCELLED", nil},
		"a cancel after the payment": {[]step{{paid(amount), completed}, {cancel, "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"a cancel after the failure": {[]step{{failure(amount), failed}, {cancel, "409"}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"money after the cancel": {[]step{
			{cancel, "200"},
			{paid(amount), `{"status":"CANCELLED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), `{"status":"CANCELLED","applied":false,"action":"REFUND_REQUIRED"}`},
			{cancel, "200"},
		}, "CANCELLED", nil},
		"a failure after the cancel": {[]step{
			{cancel, "200"},
			{failure(amount), `{"status":"CANCELLED","applied":false}`},
			{failure(amount), `{"status":"CANCELLED","applied":false}`},
		}, "CANCELLED", nil},
		"money after the payment": {[]step{
			{paid(amount), completed},
			{other, `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), completed},
			{other, `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"money after the failure, by another attempt": {[]step{
			{failure(amount), failed},
			{other, `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"money after the failure, by the same attempt": {[]step{
			{failure(amount), failed},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"too little, then another with the amount": {[]step{
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{other, `{"status":"COMPLETED","applied":true}`},
			{paid(amount - 1), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-2"}},
		"too much": {[]step{
			{paid(amount + 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "PENDING", nil},
		"too much, then the amount under the same name": {[]step{
			{paid(amount + 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), "409"},
		}, "PENDING", nil},
		"a failure of another amount": {[]step{
			{failure(amount + 1), `{"status":"PENDING","applied":false}`},
			{paid(amount), completed},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"paid, then failed under the same name":     {[]step{{paid(amount), completed}, {failure(amount), "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"paid, then another amount under that name": {[]step{{paid(amount), completed}, {paid(amount + 1), "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := replicas[0].call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated).text("sessionId")
			var endedAt any
			for i, step := range test.steps {
				r := replicas[i%2]
				var got result
				if step.report == cancel {
					got = r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
				} else {
					got = r.report(id, rail, step.report)
				}
				step.check(t, i+1, got)
				if got.status == http.StatusOK && endedAt != nil && got.body["endedAt"] != endedAt {
					t.Errorf("step %d: the session has ended again: %s", i+1, got.raw)
				}
				if got.status == http.StatusOK {
					endedAt = got.body["endedAt"]
				}
			}
			for _, r := range replicas {
				got := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
				if got.body["endedAt"] != endedAt {
					t.Errorf("endedAt is %v for the rail and %v for the merchant", endedAt, got.body["endedAt"])
				}
				if got.text("status") != test.status || got.body["paymentRef"] != test.shown["paymentRef"] || got.body["reason"] != test.shown["reason"] {
					t.Errorf("the merchant sees %s, want %s %v", got.raw, test.status, test.shown)
				}
				if status := r.call(http.MethodGet, public+"/"+id, "", "").text("status"); status != test.status {
					t.Errorf("the payer sees %s, want %s", status, test.status)
				}
			}
		})
	}
}

func TestSettlementOfWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start()
	for _, id := range []string{
		"ps_aaaaaaaaaaaa000000000000000000", "ps_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "ps_000000000000000000000000000000", "x", "%20", "%00", "*",
		"ps_aaaaaaaaaaaa000000000000000000%2Fx", "%7Bb00m%7D:session:ps_aaaaaaaaaaaa000000000000000000",
	} {
		r.report(id, rail, paid(1)).wantError(t, http.StatusNotFound, "session not found")
	}
}

func TestSettlementsAreCounted(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 2}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.report(id, rail, paid(2)).want(t, http.StatusConflict)
	r.report(id, rail, report("bank-2", "FAILED", 1)).want(t, http.StatusOK)
	r.report(id, rail, report("bank-3", "FAILED", 2)).want(t, http.StatusOK)
	r.report(id, rail, report("bank-3", "COMPLETED", 2)).want(t, http.StatusOK)
	r.report("ps_aaaaaaaaaaaa000000000000000000", rail, paid(1)).want(t, http.StatusNotFound)
	r.report(id, rail, `{}`).want(t, http.StatusBadRequest)
	r.report(id, "", paid(1)).want(t, http.StatusUnauthorized)
	for labels, want := range map[string]string{
		`outcome="COMPLETED",result="refund_required"`: "2",
		`outcome="COMPLETED",result="repeated"`:        "1",
		`outcome="COMPLETED",result="conflict"`:        "1",
		`outcome="COMPLETED",result="unknown_session"`: "1",
		`outcome="FAILED",result="not_applied"`:        "1",
		`outcome="FAILED",result="applied"`:            "1",
	} {
		if got := r.metric("merchant_operator_settlements_total{" + labels + "}"); got != want {
			t.Errorf("%s: %q, want %s", labels, got, want)
		}
	}
	if got := r.metric(`merchant_operator_http_unauthorized_total{reason="internal_token"}`); got != "1" {
		t.Errorf("%q reports were refused for their token, want 1", got)
	}
}
