package apiserver_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestGetSession(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r, other := f.start(), f.start()
	for name, test := range map[string]struct {
		body string
		want map[string]any // beside what every session has
	}{
		"the least":      {`{"amountCents": 1250}`, map[string]any{}},
		"everything":     {`{"amountCents": 1250, "orderRef": "1001", "taxCents": 110, "tipCents": 90, "customerEmail": "ada@example.com"}`, map[string]any{"orderRef": "1001", "taxCents": 110.0, "tipCents": 90.0}},
		"zero is given":  {`{"amountCents": 1250, "taxCents": 0, "tipCents": 0}`, map[string]any{"taxCents": 0.0, "tipCents": 0.0}},
		"a strange text": {`{"amountCents": 1250, "orderRef": "<a href=\"x\">é😀\u2028</a>"}`, map[string]any{"orderRef": "<a href=\"x\">é😀\u2028</a>"}},
	} {
		t.Run(name, func(t *testing.T) {
			created := r.call(http.MethodPost, sessions, key, test.body).want(t, http.StatusCreated)
			got := other.call(http.MethodGet, sessions+"/"+created.text("sessionId"), key, "").want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": created.body["sessionId"], "status": "PENDING", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20],
				"createdAt": created.body["expiresAt"].(float64) - 900_000, "expiresAt": created.body["expiresAt"],
				"qrPayload": created.body["qrPayload"],
			}
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetSessionExpires(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	r := f.start()
	path := sessions + "/" + r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	eventually(t, "the session is EXPIRED", func() bool {
		return r.call(http.MethodGet, path, key, "").want(t, http.StatusOK).text("status") == "EXPIRED"
	})
	got := r.call(http.MethodGet, path, key, "")
	if got.body["endedAt"] != got.body["expiresAt"] || time.UnixMilli(int64(got.body["endedAt"].(float64))).After(time.Now().Add(time.Second)) {
		t.Errorf("endedAt is not expiresAt, in the past: %s", got.raw)
	}
}

func TestGetSessionThatIsNotThere(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, colleague := f.key("till", acme), f.key("colleague", acme)
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.call(http.MethodGet, sessions+"/"+id, colleague, "").want(t, http.StatusOK)

	const missing = "session not found"
	foreign := r.call(http.MethodGet, sessions+"/"+id, stranger, "")
	foreign.wantError(t, http.StatusNotFound, missing)
	for name, segment := range map[string]string{
		"never created":        "ps_aaaaaaaaaaaa000000000000000000",
		"another bucket":       "ps_" + otherBucket(id) + id[5:],
		"no such bucket":       "ps_ff" + id[5:],
		"upper case merchant":  "ps_A" + id[4:],
		"shorter":              id[:28],
		"longer":               id + "0",
		"another label":        "px_" + id[3:],
		"a blank":              "%20",
		"NUL":                  id[:10] + "%00" + id[11:],
		"a slash":              id[:10] + "%2F" + id[11:],
		"dots":                 "%2e%2e",
		"a hash tag of Redis":  "%7Bb00m%7D:session:" + id,
		"a wildcard":           "*",
		"a line break":         id + "%0A",
		"invalid UTF-8":        "%ff%fe",
		"very long":            strings.Repeat("x", 8000),
		"an umlaut":            "ps_00ä",
		"an id in upper case":  strings.ToUpper(id),
		"an id with a comment": id + "%3b--",
	} {
		t.Run(name, func(t *testing.T) {
			got := r.call(http.MethodGet, sessions+"/"+segment, key, "")
			got.wantError(t, http.StatusNotFound, missing)
			if got.header.Get("RateLimit") == "" {
				t.Error("an admitted answer without RateLimit")
			}
			r.call(http.MethodGet, public+"/"+segment, "", "").wantError(t, http.StatusNotFound, missing)
		})
	}
}

// otherBucket returns a bucket that is not the id's.
func otherBucket(id string) string {
	if id[3:5] == "00" {
		return "01"
	}
	return "00"
}

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
		"sessionId": created.body["sessionId"], "status": "CANCELLED", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20], "orderRef": "1001",
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
		{key, "ps_aaaaaaaaaaaa000000000000000000"},
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

const public = "/api/v1/public/sessions"

func TestPublicSessionShowsThreeFields(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key := f.key("till", acme)
	r := f.start()
	body := `{"amountCents": 1250, "orderRef": "1001", "taxCents": 1, "tipCents": 2, "customerEmail": "ada@example.com"}`
	id := r.call(http.MethodPost, sessions, key, body).text("sessionId")

	want := map[string]any{"merchantName": "Acme acme", "amountCents": 1250.0, "status": "PENDING"}
	got := r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}

	// No key is looked at, and the payer keeps seeing what was agreed on.
	r.call(http.MethodGet, public+"/"+id, "nonsense", "").want(t, http.StatusOK)
	acme.DisplayName, acme.State = "Renamed", v1alpha1.MerchantSuspended
	f.changeMerchant(acme)
	eventually(t, "the merchant is suspended", func() bool {
		return r.call(http.MethodGet, me, key, "").status == http.StatusForbidden
	})
	got = r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("after the merchant's suspension (-want +got):\n%s", diff)
	}
}

func TestPublicSessionExpires(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	eventually(t, "the session is EXPIRED", func() bool {
		return r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK).text("status") == "EXPIRED"
	})
	if got := r.call(http.MethodGet, sessions+"/"+id, key, ""); got.text("status") != "EXPIRED" {
		t.Errorf("the merchant reads %s", got.raw)
	}
}

func TestPublicSessionBehindAProxyThatLies(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(trustLoopback)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense").
		wantError(t, http.StatusBadRequest, "X-Forwarded-For is malformed")
	r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "nonsense, 203.0.113.7").want(t, http.StatusOK)
}
