package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCancelSession(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, colleague := f.key("till", acme), f.key("colleague", acme)
	r, other := f.start(), f.start()
	created := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250, "orderRef": "1001"}`).want(t, http.StatusCreated)
	path := sessions + "/" + created.text("sessionId")

	cancelled := r.call(http.MethodPost, path+"/cancel", key, "").want(t, http.StatusOK)
	endedAt, _ := cancelled.body["endedAt"].(float64)
	want := map[string]any{
		"sessionId": created.body["sessionId"], "status": "CANCELLED", "amountCents": 1250.0, "orderRef": "1001",
		"createdAt": created.body["expiresAt"].(float64) - 900_000, "expiresAt": created.body["expiresAt"],
		"qrPayload": created.body["qrPayload"], "endedAt": endedAt,
	}
	if diff := cmp.Diff(want, cancelled.body); diff != "" || endedAt < want["createdAt"].(float64) {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if cancelled.header.Get("RateLimit") == "" {
		t.Error("an admitted answer without RateLimit")
	}
	for _, got := range []result{
		other.call(http.MethodPost, path+"/cancel", key, ""), // an answer that was lost
		other.call(http.MethodPost, path+"/cancel", colleague, ""),
		other.call(http.MethodGet, path, key, ""),
	} {
		if diff := cmp.Diff(want, got.want(t, http.StatusOK).body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
	}
	if got := other.call(http.MethodGet, public+"/"+created.text("sessionId"), "", ""); got.text("status") != "CANCELLED" {
		t.Errorf("the payer sees %s", got.raw)
	}
}

func TestCancelReadsNoBody(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, body := range []string{"{}", "{", `{"status":"COMPLETED"}`, "\x00\xff", strings.Repeat("x", 200_000)} {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
		if got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, body).want(t, http.StatusOK); got.text("status") != "CANCELLED" {
			t.Errorf("%.20q: %s", body, got.raw)
		}
	}
}

func TestCancelOfAnEndedSession(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	for outcome, report := range map[string]string{"COMPLETED": paid(1), "FAILED": failure(1)} {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
		r.report(id, rail, report).want(t, http.StatusOK)
		got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
		got.wantError(t, http.StatusConflict, "session is already "+outcome)
		if got.header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
		if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != outcome {
			t.Errorf("the session is %s, want %s", status, outcome)
		}
	}
}

func TestCancelOfWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, request := range []struct{ key, segment string }{
		{stranger, id},
		{key, "ps_00000000000000000000000000"},
		{key, "ps_" + otherBucket(id) + id[5:]},
		{key, "x"},
		{key, "%00"},
		{key, id[:10] + "%2F" + id[11:]},
	} {
		got := r.call(http.MethodPost, sessions+"/"+request.segment+"/cancel", request.key, "")
		got.wantError(t, http.StatusNotFound, "session not found")
		if got.header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", "", "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}
