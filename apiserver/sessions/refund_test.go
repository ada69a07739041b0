package sessions_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// mayRefund is a key with these permissions.
func mayRefund(r *published.KeyRecord) {
	r.Permissions = []v1alpha1.Permission{v1alpha1.PermissionCreate, v1alpha1.PermissionRead, v1alpha1.PermissionRefund}
}

var paidByBank = session.Payment{Rail: storetest.Bank, Ref: "bank-1", Outcome: session.Completed, AmountCents: 1250}

// paid creates a session of 12.50 that a rail has settled.
func (f *fixture) paid(key string) (id string) {
	f.t.Helper()
	id = f.create(key)
	f.Report(id, paidByBank)
	return id
}

func (f *fixture) refund(id, key, idempotencyKey, body string) roomtest.Result {
	f.t.Helper()
	if idempotencyKey == "" {
		return f.Call(http.MethodPost, path+"/"+id+"/refunds", key, body)
	}
	return f.Call(http.MethodPost, path+"/"+id+"/refunds", key, body, "Idempotency-Key", idempotencyKey)
}

// A merchant asks for a part and then for the rest, and reads what became of both.
func TestRefund(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"), mayRefund)
	id := f.paid(key)
	asked := f.refund(id, key, "return-1", `{"amountCents": 500, "reason": "one cup was cold"}`).Want(t, http.StatusCreated)
	refundID := asked.Text("refundId")
	if !strings.HasPrefix(refundID, "rf_") || asked.Body["requestedAt"] == nil {
		t.Errorf("the response is %s", asked.Raw)
	}
	times := cmpopts.IgnoreMapEntries(func(name string, _ any) bool {
		return name == "refundId" || name == "refundRef" || strings.HasSuffix(name, "At")
	})
	want := map[string]any{"sessionId": id, "status": "REQUESTED", "amountCents": 500.0, "currency": "EUR", "reason": "one cup was cold", "idempotent": false}
	if diff := cmp.Diff(want, asked.Body, times); diff != "" {
		t.Errorf("the response (-want +got):\n%s", diff)
	}
	rest := f.refund(id, key, "return-2", `{}`).Want(t, http.StatusCreated)
	if rest.Body["amountCents"] != 750.0 || rest.Text("refundId") == refundID {
		t.Errorf("the rest is %s", rest.Raw)
	}

	parsed, err := session.ParseID(id)
	storetest.Must(t, err)
	_, err = f.Refund(t.Context(), parsed, session.Refund{Rail: storetest.Bank, Ref: refundID, PaymentRef: "bank-1", AmountCents: 500})
	storetest.Must(t, err)
	_, err = f.RejectRefund(t.Context(), parsed, store.Rejection{Rail: storetest.Bank, RefundID: rest.Text("refundId"), PaymentRef: "bank-1", Reason: "account closed"})
	storetest.Must(t, err)
	again := f.refund(id, key, "return-1", `{"amountCents": 500}`).Want(t, http.StatusCreated)
	if again.Text("status") != "CONFIRMED" || again.Body["idempotent"] != true || again.Header.Get("Idempotent-Replayed") != "true" || again.Text("refundId") != refundID {
		t.Errorf("the same request is answered with %s", again.Raw)
	}
	read := f.Call(http.MethodGet, path+"/"+id, key, "").Want(t, http.StatusOK)
	requests := []any{
		map[string]any{"status": "CONFIRMED", "amountCents": 500.0, "reason": "one cup was cold"},
		map[string]any{"status": "REJECTED", "amountCents": 750.0, "rejectReason": "account closed"},
	}
	if diff := cmp.Diff(requests, read.Body["refundRequests"], times, cmpopts.SortSlices(func(a, b any) bool {
		return a.(map[string]any)["amountCents"].(float64) < b.(map[string]any)["amountCents"].(float64)
	})); diff != "" || read.Text("status") != "COMPLETED" {
		t.Errorf("the merchant reads (-want +got):\n%s", diff)
	}
	payments, _ := read.Body["payments"].([]any)
	if len(payments) != 1 || payments[0].(map[string]any)["refundedCents"] != 500.0 {
		t.Errorf("payments: %v", payments)
	}
}

// The request is of the session: another key of the merchant, such as the next one, repeats it, in whatever currency.
func TestRefund_AnotherKey(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) { r.Currency = "JPY" })
	till, office, next := f.Key("till", acme), f.Key("office", acme, mayRefund), f.Key("next", acme, mayRefund)
	id := f.paid(till)
	first := f.refund(id, office, "return-1", `{}`).Want(t, http.StatusCreated)
	again := f.refund(id, next, "return-1", `{}`).Want(t, http.StatusCreated)
	if again.Text("refundId") != first.Text("refundId") || again.Body["idempotent"] != true || again.Text("currency") != "JPY" {
		t.Errorf("first %s, then %s", first.Raw, again.Raw)
	}
}

// Each reason has a code of its own, and nothing is asked for.
func TestRefund_Refused(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, till := f.Key("shop", acme, mayRefund), f.Key("till", acme)
	other := f.Key("other", f.Merchant("other"), mayRefund)
	suspended, ofSuspended := f.paidBefore("suspended", inState(v1alpha1.MerchantSuspended))
	closed, ofClosed := f.paidBefore("closed", inState(v1alpha1.MerchantClosed))
	deleted, ofDeleted := f.paidBefore("deleted", (*roomtest.Replica).WithdrawMerchant)
	rotated, dead := f.rotated("rotated", acme)
	paid, pending, testKey := f.paid(key), f.create(key), f.TestKey("test", acme, mayRefund)
	f.refund(paid, key, "first", `{"amountCents": 1000}`).Want(t, http.StatusCreated)
	for name, test := range map[string]struct {
		id, key, idempotency, body string
		status                     int
		code, message              string
	}{
		"a till":                  {paid, till, "a", `{}`, http.StatusForbidden, "permission_missing", "refund"},
		"another merchant":        {paid, other, "a", `{}`, http.StatusNotFound, "session_not_found", "session not found"},
		"a rotated key":           {paid, dead, "a", `{}`, http.StatusUnauthorized, "", "API key"},
		"a key of test mode":      {paid, testKey, "a", `{}`, http.StatusNotFound, "session_not_found", "session not found"},
		"deleted":                 {ofDeleted, deleted, "a", `{}`, http.StatusUnauthorized, "", "API key"},
		"closed":                  {ofClosed, closed, "a", `{}`, http.StatusForbidden, "merchant_not_active", "not active"},
		"suspended":               {ofSuspended, suspended, "a", `{}`, http.StatusForbidden, "merchant_not_active", "not active"},
		"no session":              {"ps_x", key, "a", `{}`, http.StatusNotFound, "session_not_found", "session not found"},
		"pending":                 {pending, key, "a", `{}`, http.StatusConflict, "session_not_completed", "no payment"},
		"no Idempotency-Key":      {paid, key, "", `{}`, http.StatusBadRequest, "invalid_request", "Idempotency-Key is required"},
		"nothing":                 {paid, key, "a", `{"amountCents": 0}`, http.StatusBadRequest, "invalid_request", "amountCents must be"},
		"less than nothing":       {paid, key, "a", `{"amountCents": -1}`, http.StatusBadRequest, "invalid_request", "amountCents must be"},
		"null":                    {paid, key, "a", `{"amountCents": null}`, http.StatusBadRequest, "invalid_request", "amountCents must be"},
		"no number":               {paid, key, "a", `{"amountCents": "1"}`, http.StatusBadRequest, "invalid_request", "amountCents must be"},
		"another currency":        {paid, key, "a", `{"amountCents": 5, "currency": "USD"}`, http.StatusBadRequest, "unknown_field", "currency"},
		"a misspelt amount":       {paid, key, "a", `{"amount": 5}`, http.StatusBadRequest, "unknown_field", "amount"},
		"a reason too long":       {paid, key, "a", `{"reason": "` + strings.Repeat("x", 256) + `"}`, http.StatusBadRequest, "invalid_request", "reason must be"},
		"a reason of two lines":   {paid, key, "a", `{"reason": "a\nb"}`, http.StatusBadRequest, "invalid_request", "reason must be"},
		"no object":               {paid, key, "a", ``, http.StatusBadRequest, "invalid_request", "object"},
		"more than the rest":      {paid, key, "a", `{"amountCents": 251}`, http.StatusConflict, "refund_exceeds_payment", "must not exceed"},
		"the key, another amount": {paid, key, "first", `{"amountCents": 999}`, http.StatusConflict, "refund_conflict", "another amount"},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.refund(test.id, test.key, test.idempotency, test.body).Want(t, test.status)
			if got.Header.Get("Error-Code") != test.code || !strings.Contains(got.Text("error"), test.message) {
				t.Errorf("%s: %s; want %s: … %s …", got.Header.Get("Error-Code"), got.Text("error"), test.code, test.message)
			}
		})
	}
	read := f.Call(http.MethodGet, path+"/"+paid, key, "").Want(t, http.StatusOK)
	if requests, _ := read.Body["refundRequests"].([]any); len(requests) != 1 {
		t.Errorf("asked for: %v", requests)
	}
	f.refund(paid, rotated, "rest", `{}`).Want(t, http.StatusCreated)
}

// paidBefore returns a key of a merchant, and a session that was paid before the merchant was changed.
func (f *fixture) paidBefore(name string, change func(*roomtest.Replica, published.MerchantRecord)) (key, id string) {
	f.t.Helper()
	merchant := f.Merchant(name)
	key = f.Key(name, merchant, mayRefund)
	id = f.paid(key)
	change(f.Replica, merchant)
	return key, id
}

func inState(state v1alpha1.MerchantState) func(*roomtest.Replica, published.MerchantRecord) {
	return func(r *roomtest.Replica, merchant published.MerchantRecord) {
		merchant.State = state
		r.PublishMerchant(merchant)
	}
}

// rotated returns a key after its rotation, and before.
func (f *fixture) rotated(name string, merchant published.MerchantRecord) (key, before string) {
	f.t.Helper()
	first, issued := roomtest.NewKey(f.t, types.UID(storetest.ID()), name, merchant.MerchantID, mayRefund)
	f.PublishKey(issued)
	f.Call(http.MethodGet, path+"/"+f.create(first.Reveal()), first.Reveal(), "").Want(f.t, http.StatusOK)
	return f.Rotate(issued), first.Reveal()
}

// A refund that was asked for before the key of its session was rotated is the same one afterwards.
func TestRefund_KeyRotated(t *testing.T) {
	f := newFixture(t)
	key, issued := roomtest.NewKey(t, types.UID(storetest.ID()), "till", f.Merchant("acme").MerchantID, mayRefund)
	f.PublishKey(issued)
	id := f.paid(key.Reveal())
	first := f.refund(id, key.Reveal(), "return-1", `{"amountCents": 500}`).Want(t, http.StatusCreated)
	rotated := f.Rotate(issued)
	if again := f.refund(id, rotated, "return-1", `{"amountCents": 500}`).Want(t, http.StatusCreated); again.Text("refundId") != first.Text("refundId") {
		t.Errorf("first %s, then %s", first.Raw, again.Raw)
	}
	if rest := f.refund(id, rotated, "return-2", `{}`).Want(t, http.StatusCreated); rest.Body["amountCents"] != 750.0 {
		t.Errorf("the rest is %s", rest.Raw)
	}
}

// However often a refund is asked for at once, no more is asked for than was paid.
func TestRefund_AtOnce(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"), mayRefund)
	for name, test := range map[string]struct {
		key                  func(n int) string
		body                 string
		accepted, exceeding  int
		requests, askedCents int
	}{
		"one key":          {func(int) string { return "return-1" }, `{"amountCents": 500}`, 10, 0, 1, 500},
		"one key, all":     {func(int) string { return "return-1" }, `{}`, 10, 0, 1, 1250},
		"ten keys":         {strconv.Itoa, `{"amountCents": 500}`, 2, 8, 2, 1000},
		"ten keys, all":    {strconv.Itoa, `{}`, 1, 9, 1, 1250},
		"two keys of five": {func(n int) string { return strconv.Itoa(n % 2) }, `{"amountCents": 1250}`, 5, 5, 1, 1250},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.paid(key)
			answers, counts, ids := make([]roomtest.Result, 10), map[string]int{}, map[string]bool{}
			var asking sync.WaitGroup
			for n := range answers {
				asking.Go(func() { answers[n] = f.refund(id, key, test.key(n), test.body) })
			}
			asking.Wait()
			for _, got := range answers {
				counts[fmt.Sprint(got.Status, got.Header.Get("Error-Code"))]++
				if got.Status == http.StatusCreated {
					ids[got.Text("refundId")] = true
				}
			}
			want := map[string]int{"201": test.accepted, "409refund_exceeds_payment": test.exceeding}
			if diff := cmp.Diff(want, counts, cmpopts.IgnoreMapEntries(func(_ string, n int) bool { return n == 0 })); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			read := f.Call(http.MethodGet, path+"/"+id, key, "").Want(t, http.StatusOK)
			requests, _ := read.Body["refundRequests"].([]any)
			asked := 0
			for _, request := range requests {
				asked += int(request.(map[string]any)["amountCents"].(float64))
			}
			if len(ids) != test.requests || len(requests) != test.requests || asked != test.askedCents {
				t.Errorf("%d refunds were accepted, and %v are asked for", len(ids), requests)
			}
		})
	}
}

// A refund counts among the sessions of a day, once: it takes more of Redis than one.
func TestRefund_MaxPerDay(t *testing.T) {
	f := newFixture(t, func(o *sessions.Options) { o.MaxPerDay, o.Now = 3, sync.OnceValue(time.Now) })
	key := f.Key("shop", f.Merchant("acme"), mayRefund)
	id := f.paid(key)
	f.refund(id, key, "a", `{"amountCents": 1251}`).WantCode(t, http.StatusConflict, "refund_exceeds_payment")
	for range 3 {
		f.refund(id, key, "a", `{"amountCents": 1}`).Want(t, http.StatusCreated)
	}
	f.refund(id, key, "b", `{"amountCents": 1}`).Want(t, http.StatusCreated)
	f.refund(id, key, "c", `{"amountCents": 1}`).WantCode(t, http.StatusTooManyRequests, "rate_limited")
}

// An amount in the address would be lost, and the whole payment asked for.
func TestRefund_Query(t *testing.T) {
	f := newFixture(t)
	key := f.Key("shop", f.Merchant("acme"), mayRefund)
	id := f.paid(key)
	got := f.Call(http.MethodPost, path+"/"+id+"/refunds?amountCents=5", key, `{}`, "Idempotency-Key", "a")
	got.WantError(t, http.StatusBadRequest, "a refund takes no query: amountCents belongs into the body")
}

// Nobody confirms refunds of test mode, so they are confirmed at once.
func TestRefund_TestMode(t *testing.T) {
	f := newFixture(t)
	key := f.TestKey("test", f.Merchant("acme"), mayRefund)
	id := f.create(key)
	parsed, err := session.ParseID(id)
	storetest.Must(t, err)
	_, err = f.SettleTest(t.Context(), parsed, paidByBank)
	storetest.Must(t, err)
	got := f.refund(id, key, "a", `{}`).Want(t, http.StatusCreated)
	if got.Text("status") != "CONFIRMED" || got.Body["livemode"] != false {
		t.Errorf("the response is %s", got.Raw)
	}
	f.refund(id, key, "b", `{"ammountCents": 5}`).WantCode(t, http.StatusBadRequest, "unknown_field")
}
