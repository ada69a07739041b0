package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestPathsThatAreNotThere(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, path := range []string{
		"/", "/nothing", "/api", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/sessions", "/API/v1/sessions",
		sessions + "/", "/" + sessions, "//api/v1//sessions", "/api/v1/./sessions", "/api/v1/x/../sessions", "/api/v1/sessions/..",
		public, public + "/", public + "/x/y", me + "/", "/api/v1/merchant", "/metrics", "/healthz", "/readyz", "/internal/v1/sessions", sessions + "/x/cancel/", sessions + "/cancel/x", sessions + "//cancel",
		"/api%2Fv1/sessions", "/openapi.yaml/", "/openapi.json", "/debug/pprof/", "/%00", "/%2e%2e/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r.call(method, path, key, `{"amountCents": 1}`).wantError(t, http.StatusNotFound, "path not found")
		}
	}
}

func TestMethodsThatAreNotTaken(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for path, allow := range map[string]string{
		sessions:                  "OPTIONS, POST",
		sessions + "/x":           "GET, HEAD, OPTIONS",
		sessions + "/x/cancel":    "OPTIONS, POST",
		public + "/x":             "GET, HEAD, OPTIONS",
		me:                        "GET, HEAD, OPTIONS",
		rotate:                    "OPTIONS, POST",
		"/openapi.yaml":           "GET, HEAD",
		"/api/v1/%73essions":      "OPTIONS, POST", // the same path, escaped
		sessions + "?amount=1":    "OPTIONS, POST",
		"/api/v1/merchant/me?x=/": "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodTrace, "get", "PROPFIND"} {
			got := r.call(method, path, key, "")
			got.wantError(t, http.StatusMethodNotAllowed, "method not allowed; use "+strings.NewReplacer(", OPTIONS", "", "OPTIONS, ", "", ", HEAD", "").Replace(allow))
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got.header.Get("Allow"), allow)
			}
		}
	}
	r.call(http.MethodGet, sessions, key, "").want(t, http.StatusMethodNotAllowed)
	r.call(http.MethodGet, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodHead, me, key, "").want(t, http.StatusOK)
	if len(got.raw) > 0 || got.header.Get("Content-Type") != "application/json" || got.header.Get("RateLimit") == "" {
		t.Errorf("%v %s", got.header, got.raw)
	}
	r.call(http.MethodHead, me, "", "").want(t, http.StatusUnauthorized)
	r.call(http.MethodHead, sessions, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestTheInternalListenerServesRailsOnly(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, path := range []string{
		"/", sessions, sessions + "/" + id, sessions + "/" + id + "/cancel", public + "/" + id, me, rotate, "/openapi.yaml", "/metrics",
		"/internal", "/internal/v1/sessions", "/internal/v1/sessions/" + id, settlementOf(id) + "/", settlementOf(id) + "/x",
		settlementOf(""), "/internal/v1/sessions/./settlement", "/internal/v1/x/../sessions/" + id + "/settlement", "/" + settlementOf(id),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, credential := range []string{key, rail} {
				got := r.internally(method, path, credential, paid(1))
				got.wantError(t, http.StatusNotFound, "path not found")
				if got.header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s is open to browsers", path)
				}
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		got := r.internally(method, settlementOf(id), rail, paid(1)).want(t, http.StatusMethodNotAllowed)
		if got.header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: Allow %q", method, got.header.Get("Allow"))
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// Whoever reaches the public port only cannot settle, with whatever credential.
func TestThePublicListenerSettlesNothing(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, credential := range []string{"", key, rail} {
		for _, path := range []string{settlementOf(id), sessions + "/" + id + "/settlement", "/api/v1" + settlementOf(id)} {
			r.call(http.MethodPost, path, credential, paid(1)).wantError(t, http.StatusNotFound, "path not found")
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", rail, "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}
