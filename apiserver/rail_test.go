package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// refund has a rail confirm a refund, and checks the answer against its document.
func (r *replica) refund(sessionID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, "/internal/v1/sessions/"+sessionID+"/refunds", token, body)
}

func refundBody(payment, refund string, cents int) string {
	return `{"paymentRef":"` + payment + `","refundRef":"` + refund + `","amountCents":` + strconv.Itoa(cents) + `}`
}

// A rail holds and settles a session, and refunds the payment that paid and one that was refused. Everybody who may know learns of it.
func TestRail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	key, rail := f.key("till", acme), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	r := replicas[0]
	id, pending := r.create(key), r.create(key)
	unheld, unheldPublic := r.call(http.MethodGet, sessions+"/"+id, key, ""), r.call(http.MethodGet, public+"/"+id, "", "")
	r.hold(id, rail, `{"paymentRef":"bank-1","seconds":60}`).want(t, http.StatusOK)
	held, heldPublic := replicas[1].call(http.MethodGet, sessions+"/"+id, key, ""), replicas[1].call(http.MethodGet, public+"/"+id, "", "")
	if string(held.raw) != string(unheld.raw) || string(heldPublic.raw) != string(unheldPublic.raw) {
		t.Errorf("of a hold the merchant reads %s, the payer %s", held.raw, heldPublic.raw)
	}
	replicas[1].call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusConflict)
	r.report(id, rail, report("bank-1", "COMPLETED", 1250)).want(t, http.StatusOK)
	if before := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK); before.body["payments"] != nil {
		t.Errorf("a payment without more to say of it: %s", before.raw)
	}
	r.report(id, rail, report("bank-2", "COMPLETED", 1250)).want(t, http.StatusOK)
	r.refund(id, rail, refundBody("bank-1", "back-1", 500)).want(t, http.StatusOK)
	r.refund(id, rail, refundBody("bank-2", "back-2", 1250)).want(t, http.StatusOK)
	for _, r := range replicas {
		sess := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
		var expected any
		if err := json.Unmarshal([]byte(`[
			{"paymentRef": "bank-1", "amountCents": 1250, "currency": "EUR", "refused": false, "refundedCents": 500, "refunds": [{"refundRef": "back-1", "amountCents": 500}]},
			{"paymentRef": "bank-2", "amountCents": 1250, "currency": "EUR", "refused": true, "refundedCents": 1250, "refunds": [{"refundRef": "back-2", "amountCents": 1250}]}
		]`), &expected); err != nil {
			t.Fatal(err)
		}
		when := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return name == "refundedAt" })
		if diff := cmp.Diff(expected, sess.body["payments"], when); diff != "" || sess.text("status") != "COMPLETED" {
			t.Errorf("the merchant reads %s (-want +got):\n%s", sess.text("status"), diff)
		}
		if got := string(r.railGet(id, rail).want(t, http.StatusOK).raw); strings.Count(got, `"refundedCents":`) != 2 {
			t.Errorf("the rail reads %s", got)
		}
		if page := r.payerPage(t, id); !strings.Contains(page, "<h1>Paid</h1>") || !strings.Contains(page, "<dt>Refunded</dt><dd><bdi>€5.00</bdi>") {
			t.Errorf("the payer sees %s", page)
		}
	}
	r.refund(id, rail, refundBody("bank-1", "back-3", 750)).want(t, http.StatusOK)
	if page := r.payerPage(t, id); !strings.Contains(page, "<h1>Refunded</h1>") || !strings.Contains(page, "€12.50") {
		t.Errorf("after all went back the payer sees %s", page)
	}
	events := r.call(http.MethodGet, "/api/v1/events", key, "").want(t, http.StatusOK)
	if n := strings.Count(string(events.raw), `"session.payment_refunded"`); n != 3 {
		t.Errorf("%d events of refunds, want 3: %s", n, events.raw)
	}
	// The list of a day is not netted.
	if day := r.call(http.MethodGet, sessions+"?endedFrom=1600000000000", key, "").want(t, http.StatusOK); strings.Count(string(day.raw), id+`","status":"COMPLETED","amountCents":1250`) != 1 || strings.Contains(string(day.raw), "refund") {
		t.Errorf("the day is %s", day.raw)
	}
	f.withdraw(acme)
	// Until then a report completes the session.
	eventually(t, "the replica knows", func() bool {
		return strings.Contains(string(r.railGet(pending, rail).raw), `"state":"Deleted"`)
	})
	if got := r.report(pending, rail, paid(1250)).want(t, http.StatusOK); got.body["action"] != "REFUND_REQUIRED" {
		t.Errorf("of a deleted merchant the rail gets %s", got.raw)
	}
}

// payerPage is what a payer sees.
func (r *replica) payerPage(t *testing.T, id string) string {
	t.Helper()
	return string(r.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", "en").want(t, http.StatusOK).raw)
}

// withdraw does what the operator does when the Merchant is deleted.
func (f *fixture) withdraw(merchant published.MerchantRecord) {
	f.t.Helper()
	merchant.State = v1alpha1.MerchantClosed
	f.changeMerchant(merchant)
	f.createTombstone(published.Tombstone{
		Kind: published.TombstoneMerchant, ID: merchant.MerchantID,
		Source: published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(merchant.MerchantID)},
	})
	f.unpublish(merchant)
}

func (f *fixture) unpublish(merchant published.MerchantRecord) {
	f.t.Helper()
	name := published.MerchantName(merchant.MerchantID)
	if err := kube.CoreV1().ConfigMaps(f.namespace).Delete(f.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// Each right is one of its own: who may only report reads nothing, and who may only read reports nothing.
func TestRail_Rights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	reader, reporter, stranger := f.account("reader"), f.account("reporter"), f.account("stranger")
	f.allow("reader", "/internal/v1/sessions/*", "/internal/v1/sessions/x", "get")
	f.allow("reporter", "/internal/v1/sessions/*", "/internal/v1/sessions/x", "post")
	r := f.start()
	id := r.create(key)
	for name, test := range map[string]struct {
		call             func(token string) result
		allowed, refused string
	}{
		"read":   {func(token string) result { return r.railGet(id, token) }, reader, reporter},
		"hold":   {func(token string) result { return r.hold(id, token, `{"paymentRef":"bank-1","seconds":1}`) }, reporter, reader},
		"report": {func(token string) result { return r.report(id, token, failure(1)) }, reporter, reader},
		"refund": {func(token string) result {
			r.report(id, reporter, report("bank-2", "COMPLETED", 1))
			return r.refund(id, token, refundBody("bank-2", "back-1", 1))
		}, reporter, reader},
	} {
		for _, nobody := range []string{"", key} {
			test.call(nobody).wantError(t, http.StatusUnauthorized, notAccepted)
		}
		for _, other := range []string{test.refused, stranger} {
			if got := test.call(other); got.status != http.StatusForbidden || got.body["error"] != notAllowed || got.header.Get("Error-Code") != "account_not_allowed" {
				t.Errorf("%s with another right: %d %s %s", name, got.status, got.header, got.raw)
			}
		}
		test.call(test.allowed).want(t, http.StatusOK)
	}
	if got := r.metric(`merchant_operator_http_unauthorized_total{reason="internal_token"}`); got != "8" {
		t.Errorf("%q requests are counted as refused for their token, want 8", got)
	}
}

// Of all concurrent requests one ends the session, and all get the same result.
func TestRail_RaceWithCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	for range 40 {
		id := replicas[0].call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
		var (
			racers    sync.WaitGroup
			mu        sync.Mutex
			cancelled []int // statuses of HTTP
			applied   []string
			refunds   int
		)
		for i, r := range []*replica{replicas[0], replicas[1], replicas[0], replicas[1]} {
			racers.Go(func() {
				got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
				mu.Lock()
				defer mu.Unlock()
				cancelled = append(cancelled, got.status)
			})
			racers.Go(func() {
				got := r.report(id, rail, report(fmt.Sprintf("bank-%d", i), "COMPLETED", 1))
				mu.Lock()
				defer mu.Unlock()
				if got.body["applied"] == true {
					applied = append(applied, got.text("status"))
				} else if got.text("action") == "REFUND_REQUIRED" {
					refunds++
				}
			})
		}
		racers.Wait()
		status := replicas[1].call(http.MethodGet, sessions+"/"+id, key, "").text("status")
		for _, code := range cancelled {
			if (code == http.StatusOK) != (status == "CANCELLED") || (code == http.StatusConflict) != (status == "COMPLETED") {
				t.Errorf("the session is %s, and the cancels were answered %v", status, cancelled)
			}
		}
		if want := map[string]int{"COMPLETED": 1, "CANCELLED": 0}[status]; len(applied) != want || refunds != 4-want {
			t.Errorf("the session is %s, %v were applied and %d are refunded", status, applied, refunds)
		}
	}
}
