package apiserver_test

import (
	"net/http"
	"testing"
)

func TestPreflight(t *testing.T) {
	r := newFixture(t).start()
	for _, path := range []string{
		sessions, sessions + "/ps_00000000000000000000000000", sessions + "/x/cancel", public + "/x", me, rotate, "/api/v1/nothing", "/api/v1/",
	} {
		got := r.call(http.MethodOptions, path, "", "",
			"Origin", "https://shop.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
		got.want(t, http.StatusNoContent)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin":  "*",
			"Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
			"Access-Control-Allow-Methods": "GET, POST, OPTIONS",
			"Access-Control-Max-Age":       "86400",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s %q, want %q", path, name, got.header.Get(name), want)
			}
		}
		if len(got.raw) > 0 {
			t.Errorf("%s: a body: %s", path, got.raw)
		}
	}
	for path, want := range map[string]int{"/": 404, "/api/v1": 404, "/openapi.yaml": 405} {
		if got := r.call(http.MethodOptions, path, "", "").want(t, want); got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s is open to browsers", path)
		}
	}
}

func TestBrowsersMayReadTheAnswers(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, got := range []result{
		r.call(http.MethodGet, public+"/"+id, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodGet, public+"/x", "", "", "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions, key, `{`, "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "", "Origin", "https://shop.example"),
		r.call(http.MethodDelete, sessions, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodGet, "/api/v1/nothing", "", "", "Origin", "https://shop.example"),
	} {
		if got.header.Get("Access-Control-Allow-Origin") != "*" || got.header.Get("Access-Control-Allow-Credentials") != "" ||
			got.header.Get("Access-Control-Expose-Headers") != "Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch" {
			t.Errorf("status %d: headers %v", got.status, got.header)
		}
	}
	other := r.call(http.MethodGet, public+"/"+id, "", "")
	if other.header.Get("Access-Control-Allow-Origin") != "*" || other.header.Get("Access-Control-Expose-Headers") != "" {
		t.Errorf("to who is no browser: headers %v", other.header)
	}
}
