package system

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func fields(a fixture.Answer) []string {
	var names []string
	for name := range a.Body {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestSession_ChargeAndPoll(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	_, key := s.till()

	created := s.want(s.call(0, http.MethodPost, sessions, key, `{"amountCents":1250,"orderRef":"1001"}`), http.StatusCreated)
	if diff := cmp.Diff([]string{"expiresAt", "idempotent", "qrPayload", "sessionId", "status"}, fields(created)); diff != "" {
		t.Errorf("fields of a created session (-want +got):\n%s", diff)
	}
	id := created.Body["sessionId"].(string)
	if created.Body["status"] != "PENDING" || created.Body["qrPayload"] != "pay://qr/"+id || created.Body["idempotent"] != false {
		t.Errorf("created %s", created.Raw)
	}
	for replica := range shared.replicas {
		read := s.want(s.call(replica, http.MethodGet, sessions+"/"+id, key, ""), http.StatusOK)
		if read.Body["sessionId"] != id || read.Body["orderRef"] != "1001" || read.Body["amountCents"] != 1250.0 {
			t.Errorf("replica %d reads %s", replica, read.Raw)
		}
		public := s.want(s.call(replica, http.MethodGet, "/api/v1/public/sessions/"+id, "", ""), http.StatusOK)
		want := map[string]any{"merchantName": "Acme coffee", "amountCents": 1250.0, "status": "PENDING"}
		if diff := cmp.Diff(want, public.Body); diff != "" {
			t.Errorf("replica %d, public (-want +got):\n%s", replica, diff)
		}
	}
}

func TestSession_IdempotentOverReplicas(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	_, key := s.till()

	answers := make([]fixture.Answer, 24)
	var calls sync.WaitGroup
	for i := range answers {
		calls.Go(func() {
			answers[i] = s.call(i%2, http.MethodPost, sessions, key, `{"amountCents":700}`, "Idempotency-Key", "order-7")
		})
	}
	calls.Wait()
	ids := map[any]bool{}
	originals := 0
	for _, got := range answers {
		s.want(got, http.StatusCreated)
		ids[got.Body["sessionId"]] = true
		if got.Body["idempotent"] == false {
			originals++
		} else if got.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a replay without its header: %v", got.Header)
		}
	}
	if len(ids) != 1 || originals != 1 {
		t.Errorf("24 calls with one Idempotency-Key made %d sessions, %d answers are the original", len(ids), originals)
	}
}

func TestSession_AnotherMerchantGets404(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	s.Merchant("coffee")
	s.Merchant("books")
	_, coffee := s.ApiKey("coffee-till", "coffee")
	_, books := s.ApiKey("books-till", "books")
	s.eventuallyStatus(0, coffee, http.StatusOK)
	s.eventuallyStatus(0, books, http.StatusOK)

	order := []string{"Idempotency-Key", "order-1"}
	first := s.want(s.call(0, http.MethodPost, sessions, coffee, `{"amountCents":100}`, order...), http.StatusCreated)
	second := s.want(s.call(0, http.MethodPost, sessions, books, `{"amountCents":100}`, order...), http.StatusCreated)
	if second.Body["idempotent"] != false || second.Body["sessionId"] == first.Body["sessionId"] {
		t.Errorf("an Idempotency-Key of one merchant reached another's session: %s", second.Raw)
	}
	id := first.Body["sessionId"].(string)
	foreign := s.want(s.call(0, http.MethodGet, sessions+"/"+id, books, ""), http.StatusNotFound)
	missing := s.want(s.call(0, http.MethodGet, sessions+"/"+id[:len(id)-2]+"zz", books, ""), http.StatusNotFound)
	if diff := cmp.Diff(string(missing.Raw), string(foreign.Raw)); diff != "" {
		t.Errorf("a foreign session differs from none (-none +foreign):\n%s", diff)
	}
}

func TestPublicPort_PreflightAndOpenAPI(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	preflight := s.call(1, http.MethodOptions, sessions, "", "", "Origin", "https://shop.example", "Access-Control-Request-Method", "POST")
	s.want(preflight, http.StatusNoContent)
	if preflight.Header.Get("Access-Control-Allow-Origin") != "*" ||
		preflight.Header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Idempotency-Key" {
		t.Errorf("preflight headers %v", preflight.Header)
	}
	document := s.want(s.call(1, http.MethodGet, "/openapi.yaml", "", ""), http.StatusOK)
	if !strings.HasPrefix(string(document.Raw), "openapi: 3.1") {
		t.Errorf("/openapi.yaml begins with %.40q", document.Raw)
	}
}

// TestReplica_WithoutKubernetes cuts one replica off. It knows whom to serve; only
// what needs the Kubernetes API is refused, and honestly.
func TestReplica_WithoutKubernetes(t *testing.T) {
	s := newTenant(t)
	_, key := s.till()
	const cut = 1
	shared.proxies[cut].Cut()
	t.Cleanup(shared.proxies[cut].Restore)

	created := s.want(s.call(cut, http.MethodPost, sessions, key, `{"amountCents":100}`), http.StatusCreated)
	s.want(s.call(cut, http.MethodGet, "/api/v1/public/sessions/"+created.Body["sessionId"].(string), "", ""), http.StatusOK)
	refused := s.want(s.call(cut, http.MethodPost, rotate, key, ""), http.StatusServiceUnavailable)
	if refused.Header.Get("Retry-After") == "" || strings.Contains(string(refused.Raw), "mk_live_") {
		t.Errorf("a rotation without the Kubernetes API: %v %s", refused.Header, refused.Raw)
	}
	s.want(s.call(cut, http.MethodGet, me, key, ""), http.StatusOK)

	rotated := s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK)
	s.want(s.call(cut, http.MethodGet, me, key, ""), http.StatusUnauthorized)
	next := rotated.Body["fullKey"].(string)
	s.want(s.call(cut, http.MethodGet, me, next, ""), http.StatusOK)

	shared.proxies[cut].Restore()
	s.Eventually("the replica rotates again", func() bool {
		return s.call(cut, http.MethodPost, rotate, next, "").Status == http.StatusOK
	})
}
