package sessions_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestCancel(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, colleague := f.Key("till", acme), f.Key("colleague", acme)
	created := f.Call(http.MethodPost, path, key, `{"amountCents": 1250, "orderRef": "1001"}`).Want(t, http.StatusCreated)
	one := path + "/" + created.Text("sessionId")

	cancelled := f.Call(http.MethodPost, one+"/cancel", key, "").Want(t, http.StatusOK)
	endedAt, _ := cancelled.Body["endedAt"].(float64)
	want := map[string]any{
		"sessionId": created.Body["sessionId"], "status": "CANCELLED", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20], "orderRef": "1001",
		"createdAt": created.Body["expiresAt"].(float64) - 900_000, "expiresAt": created.Body["expiresAt"],
		"qrPayload": created.Body["qrPayload"], "endedAt": endedAt,
	}
	if diff := cmp.Diff(want, cancelled.Body); diff != "" || endedAt < want["createdAt"].(float64) {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if cancelled.Header.Get("RateLimit") == "" {
		t.Error("an admitted answer without RateLimit")
	}
	for _, got := range []roomtest.Result{
		f.Call(http.MethodPost, one+"/cancel", key, ""), // an answer that was lost
		f.Call(http.MethodPost, one+"/cancel", colleague, ""),
		f.Call(http.MethodGet, one, key, ""),
	} {
		if diff := cmp.Diff(want, got.Want(t, http.StatusOK).Body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
	}
}

func TestCancel_IgnoresBody(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	for _, body := range []string{"{}", "{", `{"status":"COMPLETED"}`, "\x00\xff", strings.Repeat("x", 200_000)} {
		id := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Text("sessionId")
		if got := f.Call(http.MethodPost, path+"/"+id+"/cancel", key, body).Want(t, http.StatusOK); got.Text("status") != "CANCELLED" {
			t.Errorf("%.20q: %s", body, got.Raw)
		}
	}
}

func TestCancel_Ended(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	for outcome, payment := range map[string]session.Payment{"COMPLETED": storetest.Of(1, storetest.Paid("bank-1")), "FAILED": storetest.Of(1, storetest.Failed("bank-1"))} {
		id := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Text("sessionId")
		f.Report(id, payment)
		got := f.Call(http.MethodPost, path+"/"+id+"/cancel", key, "")
		got.WantError(t, http.StatusConflict, "session is already "+outcome)
		if got.Header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
		if status := f.Call(http.MethodGet, path+"/"+id, key, "").Text("status"); status != outcome {
			t.Errorf("the session is %s, want %s", status, outcome)
		}
	}
}

func TestCancel_NotFound(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	stranger := f.Key("stranger", f.Merchant("books"))
	id := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Text("sessionId")
	for _, request := range []struct{ key, segment string }{
		{stranger, id},
		{key, "ps_aaaaaaaaaaaa000000000000000000"},
		{key, roomtest.UnknownIDs(id)["another bucket"]},
		{key, "x"},
		{key, "%00"},
		{key, id[:10] + "%2F" + id[11:]},
	} {
		got := f.Call(http.MethodPost, path+"/"+request.segment+"/cancel", request.key, "")
		got.WantError(t, http.StatusNotFound, "session not found")
		if got.Header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
	}
	f.Call(http.MethodPost, path+"/"+id+"/cancel", "", "").Want(t, http.StatusUnauthorized)
	if status := f.Call(http.MethodGet, path+"/"+id, key, "").Text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// A session cannot be cancelled while a payment holds it. The merchant hears when to try again.
func TestCancel_Held(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.create(key)
	f.hold(id)
	got := f.Call(http.MethodPost, path+"/"+id+"/cancel", key, "").WantCode(t, http.StatusConflict, "payment_in_progress")
	if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After %q", got.Header.Get("Retry-After"))
	}
}
