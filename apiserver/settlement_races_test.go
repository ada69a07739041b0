package apiserver_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// The end of a session is found by whoever looks first, and be it the payment itself.
func TestMoneyAfterTheExpiry(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	rail := f.rail("bank")
	r, other := f.start(), f.start()
	create := func() result {
		return r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	}
	unread, unreadFailed, unreadCancelled, read := create(), create(), create(), create()
	eventually(t, "the youngest is EXPIRED", func() bool {
		return r.call(http.MethodGet, public+"/"+read.text("sessionId"), "", "").text("status") == "EXPIRED"
	})
	for _, created := range []result{unread, read} {
		for _, r := range []*replica{r, other} {
			got := r.report(created.text("sessionId"), rail, paid(1)).want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": created.body["sessionId"], "status": "EXPIRED", "applied": false, "action": "REFUND_REQUIRED",
				"endedAt": created.body["expiresAt"],
			}
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		}
	}
	got := r.report(unreadFailed.text("sessionId"), rail, failure(1)).want(t, http.StatusOK)
	if got.text("status") != "EXPIRED" || got.body["applied"] != false || got.body["action"] != nil {
		t.Errorf("a failure after the expiry: %s", got.raw)
	}
	r.call(http.MethodPost, sessions+"/"+unreadCancelled.text("sessionId")+"/cancel", key, "").want(t, http.StatusConflict)
	if status := other.call(http.MethodGet, sessions+"/"+unreadCancelled.text("sessionId"), key, "").text("status"); status != "EXPIRED" {
		t.Errorf("after a cancel that came too late the session is %s", status)
	}
}

// Of all concurrent requests one ends the session, and all get the same result.
func TestRacesOfCancelAndSettlement(t *testing.T) {
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
