package apiserver_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func holding(paymentRef string, seconds int) string {
	return fmt.Sprintf(`{"paymentRef":%q,"seconds":%d}`, paymentRef, seconds)
}

// wantHeld fails the test unless the session is held for about that long.
func (a result) wantHeld(t *testing.T, seconds int) {
	t.Helper()
	t.Helper()
	until, _ := a.want(t, http.StatusOK).body["heldUntil"].(float64)
	if left := time.Until(time.UnixMilli(int64(until))); left > time.Duration(seconds)*time.Second || left < time.Duration(seconds)*time.Second-time.Minute {
		t.Errorf("held for %s, want %d s: %s", left, seconds, a.raw)
	}
}

// wantRefused fails the test unless it is a 409 with the code. One of a hold says when to try again.
func (a result) wantRefused(t *testing.T, code string) {
	t.Helper()
	t.Helper()
	if got := a.want(t, http.StatusConflict).header.Get("Error-Code"); got != code {
		t.Errorf("Error-Code %q, want %q: %s", got, code, a.raw)
	}
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if held := code == "held" || code == "payment_in_progress"; held != (err == nil) || held && (after < 1 || after > 120) {
		t.Errorf("%s: Retry-After %q", code, a.header.Get("Retry-After"))
	}
}

// Two phones scan one code. One of them is refused before it pays, and neither merchant nor payer sees a hold.
func TestHold(t *testing.T) {
	f := newFixture(t)
	key, bank, card := f.key("till", f.merchant("acme")), f.rail("bank"), f.rail("card")
	r, other := f.start(), f.start()
	id := r.create(key)
	path := sessions + "/" + id
	public := func() string {
		return string(r.call(http.MethodGet, "/api/v1/public/sessions/"+id, "", "").want(t, http.StatusOK).raw)
	}
	unheld, unheldPublic := string(r.call(http.MethodGet, path, key, "").raw), public()

	r.hold(id, bank, holding("1", 120)).wantHeld(t, 120)
	if got := string(r.call(http.MethodGet, path, key, "").raw); got != unheld || public() != unheldPublic {
		t.Errorf("the merchant reads %s, the payer %s", got, public())
	}
	if until := r.railGet(id, card).want(t, http.StatusOK).body["heldUntil"]; until == nil {
		t.Error("another rail does not read that it is held")
	}
	other.hold(id, card, holding("1", 60)).wantRefused(t, "held")
	other.hold(id, bank, holding("2", 60)).wantRefused(t, "held")
	other.hold(id, card, holding("1", 0)).wantRefused(t, "held")
	other.call(http.MethodPost, path+"/cancel", key, "").wantRefused(t, "payment_in_progress")
	step{report("1", "FAILED", 1250), `{"status":"PENDING","applied":false}`}.check(t, 0, other.report(id, card, report("1", "FAILED", 1250)))
	other.hold(id, bank, holding("1", 30)).wantHeld(t, 30)
	other.hold(id, bank, holding("1", 0)).want(t, http.StatusOK)
	if got := r.railGet(id, card).want(t, http.StatusOK).body; got["heldUntil"] != nil || len(got["payments"].([]any)) != 1 {
		t.Errorf("after the release a rail reads %v", got)
	}
	r.hold(id, card, holding("1", 60)).wantRefused(t, "reference_used")
	r.hold(id, card, holding("2", 60)).wantHeld(t, 60)
	step{paid(1250), completed}.check(t, 1, r.report(id, bank, report("1", "COMPLETED", 1250))) // money that has moved is taken
	r.hold(id, card, holding("2", 60)).wantRefused(t, "session_ended")
	r.hold(id, bank, holding("1", 60)).wantRefused(t, "reference_used")

	long := r.create(key)
	r.call(http.MethodPost, sessions+"/"+long+"/cancel", key, "").want(t, http.StatusOK)
	r.hold(long, bank, holding("1", 60)).wantRefused(t, "session_ended")
	r.hold(long, bank, holding("1", 0)).want(t, http.StatusOK)
	for replica, want := range map[*replica]map[string]string{
		r:     {"held": "2", "busy": "0", "reference_used": "2", "session_ended": "2", "released": "1"},
		other: {"held": "1", "busy": "3", "released": "1"},
	} {
		for result, count := range want {
			if got := replica.metric(`merchant_operator_holds_total{result="` + result + `"}`); got != count {
				t.Errorf("%s has counted %s holds as %s, want %s", replica.name, got, result, count)
			}
		}
	}
}

// A hold that would outlive the session is refused, not shortened.
func TestHold_ExpiresTooSoon(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(m *published.MerchantRecord) { m.Sessions.LifetimeSeconds = 60 })
	key, bank := f.key("till", acme), f.rail("bank")
	r := f.start()
	id := r.create(key)
	r.hold(id, bank, holding("1", 61)).wantRefused(t, "expires_too_soon")
	r.hold(id, bank, holding("1", 5)).want(t, http.StatusOK)
}

// Only an active merchant can be paid. A release needs none.
func TestHold_MerchantStates(t *testing.T) {
	f := newFixture(t)
	bank := f.rail("bank")
	r := f.start()
	for name, test := range map[string]struct {
		change func(f *fixture, merchant published.MerchantRecord)
		code   string // none: 503
	}{
		"suspended": {func(f *fixture, merchant published.MerchantRecord) {
			merchant.State = v1alpha1.MerchantSuspended
			f.changeMerchant(merchant)
		}, "merchant_not_active"},
		"closed": {func(f *fixture, merchant published.MerchantRecord) {
			merchant.State = v1alpha1.MerchantClosed
			f.changeMerchant(merchant)
		}, "merchant_not_active"},
		"deleted":     {(*fixture).withdraw, "merchant_not_active"},
		"unpublished": {(*fixture).unpublish, ""},
	} {
		t.Run(name, func(t *testing.T) {
			merchant := f.merchant(name)
			key := f.key(name, merchant)
			r.eventuallyStatus(key, http.StatusOK)
			id := r.create(key)
			r.hold(id, bank, holding("1", 1)).want(t, http.StatusOK)
			r.hold(id, bank, holding("1", 0)).want(t, http.StatusOK)
			test.change(f, merchant)
			eventually(t, "a hold is refused", func() bool {
				got := r.hold(id, bank, holding("1", 1))
				if test.code == "" {
					return got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != ""
				}
				return got.status == http.StatusConflict && got.header.Get("Error-Code") == test.code
			})
			r.hold(id, bank, holding("1", 0)).want(t, http.StatusOK)
			r.hold("ps_"+merchant.MerchantID+strings.Repeat("a", 18), bank, holding("1", 1)).wantError(t, http.StatusNotFound, "session not found")
		})
	}
}

func TestHold_BadBodies(t *testing.T) {
	f := newFixture(t)
	key, bank, stranger := f.key("till", f.merchant("acme")), f.rail("bank"), f.account("stranger")
	testKey := f.testKey("test", f.merchant("globex"))
	r := f.start()
	id, test := r.create(key), r.call(http.MethodPost, sessions, testKey, `{"amountCents": 1}`).text("sessionId")
	const secondsRule = "seconds must be an integer from 0 to 120"
	for body, message := range map[string]string{
		`[]`:                                "body must be one JSON object",
		`{"seconds":1}`:                     paymentRefRule,
		`{"paymentRef":1,"seconds":1}`:      paymentRefRule,
		`{"paymentRef":"a b","seconds":1}`:  paymentRefRule,
		`{"paymentRef":"a"}`:                secondsRule,
		`{"paymentRef":"a","seconds":null}`: secondsRule,
		`{"paymentRef":"a","seconds":"1"}`:  secondsRule,
		`{"paymentRef":"a","seconds":0.5}`:  secondsRule,
		`{"paymentRef":"a","seconds":-1}`:   secondsRule,
		`{"paymentRef":"a","seconds":121}`:  secondsRule,
	} {
		r.hold(id, bank, body).wantError(t, http.StatusBadRequest, message)
	}
	r.hold(id, "", holding("1", 1)).wantError(t, http.StatusUnauthorized, notAccepted)
	r.hold(id, key, holding("1", 1)).wantError(t, http.StatusUnauthorized, notAccepted)
	r.hold(id, stranger, holding("1", 1)).wantError(t, http.StatusForbidden, notAllowed)
	for _, missing := range []string{"x", test} {
		r.hold(missing, bank, holding("1", 1)).wantError(t, http.StatusNotFound, "session not found")
	}
	if got := r.railGet(id, bank).want(t, http.StatusOK).body["heldUntil"]; got != nil {
		t.Errorf("held until %v", got)
	}
}
