package system

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sessions = "/api/v1/sessions"

func fields(a answer) []string {
	var names []string
	for name := range a.body {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestATillChargesAndThePayerPolls(t *testing.T) {
	s := newScene(t)
	s.merchant("coffee")
	_, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	s.eventuallyStatus(1, key, http.StatusOK)

	created := s.want(s.call(0, http.MethodPost, sessions, key, `{"amountCents":1250,"orderRef":"1001"}`), http.StatusCreated)
	if diff := cmp.Diff([]string{"expiresAt", "idempotent", "qrPayload", "sessionId", "status"}, fields(created)); diff != "" {
		t.Errorf("fields of a created session (-want +got):\n%s", diff)
	}
	id := created.body["sessionId"].(string)
	if created.body["status"] != "PENDING" || created.body["qrPayload"] != "pay://qr/"+id || created.body["idempotent"] != false {
		t.Errorf("created %s", created.raw)
	}
	for replica := range shared.replicas {
		read := s.want(s.call(replica, http.MethodGet, sessions+"/"+id, key, ""), http.StatusOK)
		if read.body["sessionId"] != id || read.body["orderRef"] != "1001" || read.body["amountCents"] != 1250.0 {
			t.Errorf("replica %d reads %s", replica, read.raw)
		}
		public := s.want(s.call(replica, http.MethodGet, "/api/v1/public/sessions/"+id, "", ""), http.StatusOK)
		want := map[string]any{"merchantName": "Acme coffee", "amountCents": 1250.0, "status": "PENDING"}
		if diff := cmp.Diff(want, public.body); diff != "" {
			t.Errorf("replica %d, public (-want +got):\n%s", replica, diff)
		}
	}
}

func TestOneIdempotencyKeyIsOneSessionOverBothReplicas(t *testing.T) {
	s := newScene(t)
	s.merchant("coffee")
	_, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	s.eventuallyStatus(1, key, http.StatusOK)

	answers := make([]answer, 24)
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
		ids[got.body["sessionId"]] = true
		if got.body["idempotent"] == false {
			originals++
		} else if got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a replay without its header: %v", got.header)
		}
	}
	if len(ids) != 1 || originals != 1 {
		t.Errorf("24 calls with one Idempotency-Key made %d sessions, %d answers say they are the original", len(ids), originals)
	}
}

func TestAnotherMerchantSeesNothing(t *testing.T) {
	s := newScene(t)
	s.merchant("coffee")
	s.merchant("books")
	_, coffee := s.apiKey("coffee-till", "coffee")
	_, books := s.apiKey("books-till", "books")
	s.eventuallyStatus(0, coffee, http.StatusOK)
	s.eventuallyStatus(0, books, http.StatusOK)

	order := []string{"Idempotency-Key", "order-1"}
	first := s.want(s.call(0, http.MethodPost, sessions, coffee, `{"amountCents":100}`, order...), http.StatusCreated)
	second := s.want(s.call(0, http.MethodPost, sessions, books, `{"amountCents":100}`, order...), http.StatusCreated)
	if second.body["idempotent"] != false || second.body["sessionId"] == first.body["sessionId"] {
		t.Errorf("an Idempotency-Key of one merchant reached another's session: %s", second.raw)
	}
	id := first.body["sessionId"].(string)
	foreign := s.want(s.call(0, http.MethodGet, sessions+"/"+id, books, ""), http.StatusNotFound)
	missing := s.want(s.call(0, http.MethodGet, sessions+"/"+id[:len(id)-2]+"zz", books, ""), http.StatusNotFound)
	if diff := cmp.Diff(string(missing.raw), string(foreign.raw)); diff != "" {
		t.Errorf("a foreign session is told apart from none (-none +foreign):\n%s", diff)
	}
}

func TestPreflightAndDocument(t *testing.T) {
	s := newScene(t)
	preflight := s.call(1, http.MethodOptions, sessions, "", "", "Origin", "https://shop.example", "Access-Control-Request-Method", "POST")
	s.want(preflight, http.StatusNoContent)
	if preflight.header.Get("Access-Control-Allow-Origin") != "*" ||
		preflight.header.Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Idempotency-Key" {
		t.Errorf("preflight headers %v", preflight.header)
	}
	document := s.want(s.call(1, http.MethodGet, "/openapi.yaml", "", ""), http.StatusOK)
	if !strings.HasPrefix(string(document.raw), "openapi: 3.1") {
		t.Errorf("/openapi.yaml begins with %.40q", document.raw)
	}
}
