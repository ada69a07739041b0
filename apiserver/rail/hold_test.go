package rail_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

func holding(paymentRef string, seconds int) string {
	return fmt.Sprintf(`{"paymentRef":%q,"seconds":%d}`, paymentRef, seconds)
}

// wantHeld fails the test unless the session is held for about that long.
func wantHeld(t *testing.T, got roomtest.Result, seconds int) {
	t.Helper()
	until, _ := got.Want(t, http.StatusOK).Body["heldUntil"].(float64)
	if left := time.Until(time.UnixMilli(int64(until))); left > time.Duration(seconds)*time.Second || left < time.Duration(seconds)*time.Second-time.Minute {
		t.Errorf("held for %s, want %d s: %s", left, seconds, got.Raw)
	}
}

// wantRefused fails the test unless it is a 409 with the code. One of a hold says when to try again.
func wantRefused(t *testing.T, got roomtest.Result, code string) {
	t.Helper()
	got.WantCode(t, http.StatusConflict, code)
	after, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if held := code == "held"; held != (err == nil) || held && (after < 1 || after > 120) {
		t.Errorf("%s: Retry-After %q", code, got.Header.Get("Retry-After"))
	}
}

// Two phones scan one code. One of them is refused before it pays, and the merchant does not see a hold.
func TestHold(t *testing.T) {
	f := newFixture(t)
	other := f.other()
	id := f.create()
	unheld := f.session(id)

	wantHeld(t, f.hold(id, bank, holding("1", 120)), 120)
	if held := f.session(id); !reflect.DeepEqual(held, unheld) {
		t.Errorf("the merchant reads %+v, and without the hold %+v", held, unheld)
	}
	if until := f.get(id, card).Want(t, http.StatusOK).Body["heldUntil"]; until == nil {
		t.Error("another rail does not read that it is held")
	}
	wantRefused(t, other.hold(id, card, holding("1", 60)), "held")
	wantRefused(t, other.hold(id, bank, holding("2", 60)), "held")
	wantRefused(t, other.hold(id, card, holding("1", 0)), "held")
	if held, ok := errors.AsType[store.HeldError](f.cancel(id)); !ok || held.Left <= 0 {
		t.Errorf("a cancel gets %v", held)
	}
	step{report("1", "FAILED", 1250), `{"status":"PENDING","applied":false}`}.check(t, 0, other.settle(id, card, report("1", "FAILED", 1250)))
	wantHeld(t, other.hold(id, bank, holding("1", 30)), 30)
	other.hold(id, bank, holding("1", 0)).Want(t, http.StatusOK)
	if got := f.get(id, card).Want(t, http.StatusOK).Body; got["heldUntil"] != nil || len(got["payments"].([]any)) != 1 {
		t.Errorf("after the release a rail reads %v", got)
	}
	wantRefused(t, f.hold(id, card, holding("1", 60)), "reference_used")
	wantHeld(t, f.hold(id, card, holding("2", 60)), 60)
	step{paid(1250), completed}.check(t, 1, f.settle(id, bank, report("1", "COMPLETED", 1250))) // money that has moved is taken
	wantRefused(t, f.hold(id, card, holding("2", 60)), "session_ended")
	wantRefused(t, f.hold(id, bank, holding("1", 60)), "reference_used")

	cancelled := f.create()
	if err := f.cancel(cancelled); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, f.hold(cancelled, bank, holding("1", 60)), "session_ended")
	f.hold(cancelled, bank, holding("1", 0)).Want(t, http.StatusOK)
	for replica, want := range map[*fixture]map[string]string{
		f:     {"held": "2", "busy": "0", "reference_used": "2", "session_ended": "2", "released": "1"},
		other: {"held": "1", "busy": "3", "released": "1"},
	} {
		for result, count := range want {
			if got := replica.Metric(`merchant_operator_holds_total{result="` + result + `"}`); got != count {
				t.Errorf("%s holds are counted as %s, want %s", got, result, count)
			}
		}
	}
}

// A hold that would outlive the session is refused, not shortened.
func TestHold_ExpiresTooSoon(t *testing.T) {
	f := newFixture(t)
	id := f.createOf(f.acme, func(s *store.NewSession) { s.Lifetime = time.Minute })
	wantRefused(t, f.hold(id, bank, holding("1", 61)), "expires_too_soon")
	f.hold(id, bank, holding("1", 5)).Want(t, http.StatusOK)
}

// Only an active merchant can be paid. A release needs none.
func TestHold_MerchantStates(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]struct {
		change func(f *fixture, merchant published.MerchantRecord)
		status int
		code   string
	}{
		"suspended":   {inState(v1alpha1.MerchantSuspended), http.StatusConflict, "merchant_not_active"},
		"closed":      {inState(v1alpha1.MerchantClosed), http.StatusConflict, "merchant_not_active"},
		"deleted":     {withdrawn, http.StatusConflict, "merchant_not_active"},
		"unpublished": {unpublished, http.StatusServiceUnavailable, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			merchant := f.Merchant(name)
			id := f.createOf(merchant)
			f.hold(id, bank, holding("1", 1)).Want(t, http.StatusOK)
			f.hold(id, bank, holding("1", 0)).Want(t, http.StatusOK)
			test.change(f, merchant)
			got := f.hold(id, bank, holding("1", 1)).WantCode(t, test.status, test.code)
			if again := got.Header.Get("Retry-After") != ""; again != (test.status == http.StatusServiceUnavailable) {
				t.Errorf("headers %v", got.Header)
			}
			f.hold(id, bank, holding("1", 0)).Want(t, http.StatusOK)
			f.hold("ps_"+merchant.MerchantID+strings.Repeat("a", 18), bank, holding("1", 1)).WantError(t, http.StatusNotFound, "session not found")
		})
	}
}

// inState publishes the merchant in another state.
func inState(state v1alpha1.MerchantState) func(*fixture, published.MerchantRecord) {
	return func(f *fixture, merchant published.MerchantRecord) {
		merchant.State = state
		f.PublishMerchant(merchant)
	}
}

func withdrawn(f *fixture, merchant published.MerchantRecord)   { f.WithdrawMerchant(merchant) }
func unpublished(f *fixture, merchant published.MerchantRecord) { f.UnpublishMerchant(merchant) }

func TestHold_BadBodies(t *testing.T) {
	f := newFixture(t)
	id := f.create()
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
		f.hold(id, bank, body).WantError(t, http.StatusBadRequest, message)
	}
	for _, missing := range []string{"x", f.createTest()} {
		f.hold(missing, bank, holding("1", 1)).WantError(t, http.StatusNotFound, "session not found")
	}
	if got := f.get(id, bank).Want(t, http.StatusOK).Body["heldUntil"]; got != nil {
		t.Errorf("held until %v", got)
	}
}
