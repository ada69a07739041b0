package rail_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// read returns what a rail reads of a session, without sessionId, which it compares itself.
func (f *fixture) read(id, account string) map[string]any {
	f.t.Helper()
	got := f.get(id, account).Want(f.t, http.StatusOK)
	if got.Header.Get("Cache-Control") != "no-store" || got.Text("sessionId") != id {
		f.t.Errorf("%s %s", got.Header, got.Raw)
	}
	delete(got.Body, "sessionId")
	return got.Body
}

// A rail reads what is to be paid, to whom, and what was reported, before and after each report. It learns nothing of the payer.
func TestGet(t *testing.T) {
	f := newFixture(t)
	id := f.createOf(f.acme, func(s *store.NewSession) {
		s.Charge = session.Charge{AmountCents: 1250, OrderRef: "order-77", CustomerEmail: "ada@example.com", TaxCents: new(int64(200))}
	})
	want := func(status, payments string) {
		t.Helper()
		got := f.read(id, bank)
		var expected map[string]any
		text := `{"status": "` + status + `", "amountCents": 1250, "currency": "EUR", "payments": [` + payments + `],
			"merchant": {"id": "mer_` + f.acme.MerchantID + `", "displayName": "Acme acme", "namespace": "shops", "name": "acme", "state": "Active"}}`
		if err := json.Unmarshal([]byte(text), &expected); err != nil {
			t.Fatal(err)
		}
		if expiresAt := float64(f.session(id).ExpiresAt.UnixMilli()); got["expiresAt"] != expiresAt {
			t.Errorf("expiresAt is %v, want %v", got["expiresAt"], expiresAt)
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
	f.settle(id, bank, `{"paymentRef":"bank-0","outcome":"COMPLETED","amountCents":1250,"currency":"GBP"}`).Want(t, http.StatusOK)
	const mismatch = `{"paymentRef": "bank-0", "own": true, "outcome": "COMPLETED", "amountCents": 1250, "currency": "GBP", "action": "REFUND_REQUIRED"}`
	want("PENDING", mismatch)
	f.settle(id, bank, `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1250,"paidAt":1795246300000}`).Want(t, http.StatusOK)
	const settled = `{"paymentRef": "bank-1", "own": true, "outcome": "COMPLETED", "amountCents": 1250, "currency": "EUR", "paidAt": 1795246300000}, `
	want("COMPLETED", settled+mismatch)
	if raw := string(f.get(id, bank).Raw); strings.Contains(raw, "ada@example.com") || strings.Contains(raw, "order-77") {
		t.Errorf("the rail reads of the payer: %s", raw)
	}
	f.get(f.unknownID(), bank).WantError(t, http.StatusNotFound, "session not found")
}

// What a rail reads of the merchant is so now: whether it may be paid, and by which name it is known.
func TestGet_MerchantStates(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]struct {
		change func(f *fixture, merchant published.MerchantRecord)
		want   map[string]any // none: 503
	}{
		"suspended":   {inState(v1alpha1.MerchantSuspended), map[string]any{"state": "Suspended", "namespace": "shops", "name": "suspended"}},
		"deleted":     {withdrawn, map[string]any{"state": "Deleted"}},
		"unpublished": {unpublished, nil},
	} {
		t.Run(name, func(t *testing.T) {
			merchant := f.Merchant(name)
			id := f.createOf(merchant)
			test.change(f, merchant)
			got := f.get(id, bank)
			if test.want == nil {
				if got.Want(t, http.StatusServiceUnavailable).Header.Get("Retry-After") == "" {
					t.Errorf("headers %v", got.Header)
				}
				return
			}
			test.want["id"], test.want["displayName"] = "mer_"+merchant.MerchantID, "Acme "+name
			if diff := cmp.Diff(any(test.want), got.Want(t, http.StatusOK).Body["merchant"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
