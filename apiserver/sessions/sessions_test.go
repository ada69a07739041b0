package sessions_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

func TestGet(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	for name, test := range map[string]struct {
		body string
		want map[string]any // beside what every session has
	}{
		"the least":      {`{"amountCents": 1250}`, map[string]any{}},
		"everything":     {`{"amountCents": 1250, "orderRef": "1001", "taxCents": 110, "tipCents": 90, "customerEmail": "ada@example.com", "description": "2 flat whites"}`, map[string]any{"orderRef": "1001", "description": "2 flat whites", "taxCents": 110.0, "tipCents": 90.0}},
		"zero is given":  {`{"amountCents": 1250, "taxCents": 0, "tipCents": 0}`, map[string]any{"taxCents": 0.0, "tipCents": 0.0}},
		"a strange text": {`{"amountCents": 1250, "orderRef": "<a href=\"x\">é😀\u2028</a>"}`, map[string]any{"orderRef": "<a href=\"x\">é😀\u2028</a>"}},
	} {
		t.Run(name, func(t *testing.T) {
			created := f.Call(http.MethodPost, path, key, test.body).Want(t, http.StatusCreated)
			got := f.Call(http.MethodGet, path+"/"+created.Text("sessionId"), key, "").Want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": created.Body["sessionId"], "status": "PENDING", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20],
				"createdAt": created.Body["expiresAt"].(float64) - 900_000, "expiresAt": created.Body["expiresAt"],
				"qrPayload": created.Body["qrPayload"],
			}
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, got.Body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGet_Expires(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	one := path + "/" + f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Text("sessionId")
	await.Until(t, patience, "the session is EXPIRED", func() bool {
		return f.Call(http.MethodGet, one, key, "").Want(t, http.StatusOK).Text("status") == "EXPIRED"
	})
	got := f.Call(http.MethodGet, one, key, "")
	if got.Body["endedAt"] != got.Body["expiresAt"] || time.UnixMilli(int64(got.Body["endedAt"].(float64))).After(time.Now().Add(time.Second)) {
		t.Errorf("endedAt is not expiresAt, in the past: %s", got.Raw)
	}
}

func TestGet_NotFound(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, colleague := f.Key("till", acme), f.Key("colleague", acme)
	stranger := f.Key("stranger", f.Merchant("books"))
	id := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Text("sessionId")
	f.Call(http.MethodGet, path+"/"+id, colleague, "").Want(t, http.StatusOK)

	const missing = "session not found"
	foreign := f.Call(http.MethodGet, path+"/"+id, stranger, "")
	foreign.WantError(t, http.StatusNotFound, missing)
	for name, segment := range roomtest.UnknownIDs(id) {
		t.Run(name, func(t *testing.T) {
			got := f.Call(http.MethodGet, path+"/"+segment, key, "")
			got.WantError(t, http.StatusNotFound, missing)
			if got.Header.Get("RateLimit") == "" {
				t.Error("an admitted answer without RateLimit")
			}
		})
	}
}
