package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// railRead has a rail read a session, and returns what it reads without the fields that are compared apart.
func (r *replica) railRead(t *testing.T, id, rail string) map[string]any {
	t.Helper()
	got := r.railGet(id, rail).want(t, http.StatusOK)
	if got.header.Get("Cache-Control") != "no-store" || got.text("sessionId") != id {
		t.Errorf("%s %s", got.header, got.raw)
	}
	delete(got.body, "sessionId")
	return got.body
}

// A rail reads what is to be paid, to whom, and what was reported, before and after each report. It learns nothing of the payer.
func TestRailSession(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, rail := f.key("till", acme), f.rail("bank")
	r := f.start()
	created := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250, "orderRef": "order-77", "customerEmail": "ada@example.com", "taxCents": 200}`).want(t, http.StatusCreated)
	id := created.text("sessionId")
	want := func(status, payments string) {
		t.Helper()
		got := r.railRead(t, id, rail)
		var expected map[string]any
		text := `{"status": "` + status + `", "amountCents": 1250, "currency": "EUR", "payments": [` + payments + `],
			"merchant": {"id": "mer_` + acme.MerchantID + `", "displayName": "Acme acme", "namespace": "shops", "name": "acme", "state": "Active"}}`
		if err := json.Unmarshal([]byte(text), &expected); err != nil {
			t.Fatal(err)
		}
		if got["expiresAt"] != created.body["expiresAt"] {
			t.Errorf("expiresAt is %v, want that of the charge, %v", got["expiresAt"], created.body["expiresAt"])
		}
		if ended := got["endedAt"]; (ended != nil) != (status != "PENDING") {
			t.Errorf("%s, but endedAt is %v", status, ended)
		}
		delete(got, "expiresAt")
		delete(got, "endedAt")
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want("PENDING", "")
	r.report(id, rail, `{"paymentRef":"bank-0","outcome":"COMPLETED","amountCents":1250,"currency":"GBP"}`).want(t, http.StatusOK)
	const mismatch = `{"paymentRef": "bank-0", "own": true, "outcome": "COMPLETED", "amountCents": 1250, "currency": "GBP", "action": "REFUND_REQUIRED"}`
	want("PENDING", mismatch)
	r.report(id, rail, `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1250,"paidAt":1795246300000}`).want(t, http.StatusOK)
	const settled = `{"paymentRef": "bank-1", "own": true, "outcome": "COMPLETED", "amountCents": 1250, "currency": "EUR", "paidAt": 1795246300000}, `
	want("COMPLETED", settled+mismatch)
	if raw := string(r.railGet(id, rail).raw); strings.Contains(raw, "ada@example.com") || strings.Contains(raw, "order-77") {
		t.Errorf("the rail reads of the payer: %s", raw)
	}
	r.railGet("ps_"+acme.MerchantID+"aaaaaaaaaaaaaaaaaa", rail).wantError(t, http.StatusNotFound, "session not found")
}

// What a rail reads of the merchant is so now: whether it may be paid, and by which name it is known.
func TestRailSession_MerchantStates(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start()
	for name, test := range map[string]struct {
		change func(f *fixture, merchant published.MerchantRecord)
		want   map[string]any // none: 503
	}{
		"suspended": {func(f *fixture, merchant published.MerchantRecord) {
			merchant.State = v1alpha1.MerchantSuspended
			f.changeMerchant(merchant)
		}, map[string]any{"state": "Suspended", "namespace": "shops", "name": "suspended"}},
		"deleted":     {(*fixture).withdraw, map[string]any{"state": "Deleted"}},
		"unpublished": {(*fixture).unpublish, nil},
	} {
		t.Run(name, func(t *testing.T) {
			merchant := f.merchant(name)
			key := f.key(name, merchant)
			r.eventuallyStatus(key, http.StatusOK)
			id := r.create(key)
			test.change(f, merchant)
			eventually(t, "the rail reads the merchant as it is now", func() bool {
				got := r.railGet(id, rail)
				if test.want == nil {
					return got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != ""
				}
				test.want["id"], test.want["displayName"] = "mer_"+merchant.MerchantID, "Acme "+name
				return got.status == http.StatusOK && cmp.Equal(got.body["merchant"], any(test.want))
			})
		})
	}
}

// Each right is one of its own: who may only report reads nothing, and who may only read reports nothing.
func TestRailSession_Rights(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	reader, reporter := f.account("reader"), f.account("reporter")
	f.allow("reader", "/internal/v1/sessions/*", "/internal/v1/sessions/x", "get")
	f.allow("reporter", "/internal/v1/sessions/*", "/internal/v1/sessions/x", "post")
	r := f.start()
	id := r.create(key)
	r.railGet(id, reader).want(t, http.StatusOK)
	r.railGet(id, reporter).wantError(t, http.StatusForbidden, notAllowed)
	r.railGet(id, "").wantError(t, http.StatusUnauthorized, notAccepted)
	r.railGet(id, key).wantError(t, http.StatusUnauthorized, notAccepted)
	r.report(id, reader, paid(1250)).wantError(t, http.StatusForbidden, notAllowed)
	r.report(id, reporter, paid(1250)).want(t, http.StatusOK)
}
