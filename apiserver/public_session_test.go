package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

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
