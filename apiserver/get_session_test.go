package apiserver_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
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
				"sessionId": created.body["sessionId"], "status": "PENDING", "amountCents": 1250.0,
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
		"never created":        "ps_00000000000000000000000000",
		"another bucket":       "ps_" + otherBucket(id) + id[5:],
		"no such bucket":       "ps_ff" + id[5:],
		"upper case hex":       "ps_0A" + id[5:],
		"shorter":              id[:28],
		"longer":               id + "0",
		"another label":        "px_" + id[3:],
		"a blank":              "%20",
		"NUL":                  id[:10] + "%00" + id[11:],
		"a slash":              id[:10] + "%2F" + id[11:],
		"dots":                 "%2e%2e",
		"a hash tag of Redis":  "%7Bb00%7D:session:" + id,
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
