package apiserver_test

import (
	"net/http"
	"testing"
)

func TestPathsThatAreNotThere(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	r := s.start()
	for _, path := range []string{
		"/", "/nothing", "/api", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/sessions", "/API/v1/sessions",
		sessions + "/", "/" + sessions, "//api/v1//sessions", "/api/v1/./sessions", "/api/v1/x/../sessions", "/api/v1/sessions/..",
		public, public + "/", public + "/x/y", me + "/", "/api/v1/merchant", "/metrics", "/healthz", "/readyz", "/internal/v1/sessions",
		"/api%2Fv1/sessions", "/openapi.yaml/", "/openapi.json", "/debug/pprof/", "/%00", "/%2e%2e/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r.call(method, path, key, `{"amountCents": 1}`).wantError(t, http.StatusNotFound, "there is no such path")
		}
	}
}

func TestMethodsThatAreNotTaken(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	r := s.start()
	for path, allow := range map[string]string{
		sessions:                  "OPTIONS, POST",
		sessions + "/x":           "GET, HEAD, OPTIONS",
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
			got.wantError(t, http.StatusMethodNotAllowed, "this path takes other methods, see Allow")
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got.header.Get("Allow"), allow)
			}
		}
	}
	r.call(http.MethodGet, sessions, key, "").want(t, http.StatusMethodNotAllowed)
	r.call(http.MethodGet, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	r := s.start()
	got := r.call(http.MethodHead, me, key, "").want(t, http.StatusOK)
	if len(got.raw) > 0 || got.header.Get("Content-Type") != "application/json" || got.header.Get("RateLimit") == "" {
		t.Errorf("%v %s", got.header, got.raw)
	}
	r.call(http.MethodHead, me, "", "").want(t, http.StatusUnauthorized)
	r.call(http.MethodHead, sessions, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestTheInternalListenerServesNothingYet(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	r := s.start()
	for _, path := range []string{"/", sessions, me, "/internal/v1/sessions/x/settlement", "/openapi.yaml", "/metrics"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			got := plain(t, method, r.internal+path, key)
			got.wantError(t, http.StatusNotFound, "there is no such path")
			if got.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s is open to browsers", path)
			}
		}
	}
}
