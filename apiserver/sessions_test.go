package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver"
)

const (
	sessions = "/api/v1/sessions"
	events   = "/api/v1/events"
)

// Link names the payer's page: under --public-url, else relative to where the caller has sent the request.
func TestSessions_Link(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	inside, known := f.start(), f.start(func(o *apiserver.Options) { o.PublicURL, o.QRScheme = "https://pay.example.com/", "acme+pay" })
	var id string
	create := func(r *replica) string {
		t.Helper()
		got := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "Idempotency-Key", "order-1", "X-Forwarded-Host", "evil.example")
		id = got.want(t, http.StatusCreated).text("sessionId")
		return got.header.Get("Link")
	}
	if link := create(inside); link != "</pay/"+id+`>; rel="payment"` {
		t.Errorf("Link %s", link)
	}
	inside.call(http.MethodGet, "/pay/"+id, "", "").want(t, http.StatusOK)
	if link := create(known); link != "<https://pay.example.com/pay/"+id+`>; rel="payment"` {
		t.Errorf("with --public-url, of a replay: Link %s", link)
	}
}
