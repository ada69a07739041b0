package dispatcher

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// testSession creates a test session of the merchant.
func (f testFixture) testSession(t *testing.T, merchantID string, amountCents int64) session.Session {
	t.Helper()
	asks := dispatchertest.Admission(merchantID)
	asks.TestMode = true
	_, created, err := f.Store.CreateSession(t.Context(), asks, store.NewSession{
		MerchantName: "Acme Coffee", Charge: session.Charge{AmountCents: amountCents}, Lifetime: dispatchertest.Patience,
	})
	dispatchertest.Must(t, err)
	return created.Session
}

// A session of test mode acts and its event arrives, marked as a test, while everything that is counted or reported stays as it was.
func TestASessionOfTestModeActsAndIsDelivered(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusNoContent))
	acme := f.EndpointAt(shop.URL, 7)
	created := f.testSession(t, acme.MerchantID, session.TestAmountCompletes)
	d := f.dispatcher(t)
	stop := start(t, d)
	seen := shop.await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Must(t, stop())
	if body := seen[0].Body; seen[0].ID != dispatchertest.EndedEvent(created.ID) || !seen[0].Verified ||
		!strings.HasPrefix(body, `{"type":"session.completed","livemode":false,`) || !strings.Contains(body, `"sessionId":"ps_test`) {
		t.Errorf("the event is %+v", seen[0])
	}
	if got := testutil.ToFloat64(d.metrics.testEvents.WithLabelValues(outcomeDelivered)); got != 1 {
		t.Errorf("counted %v events of test mode", got)
	}
	f.wantNothingLive(t, d, acme.MerchantID)
}

// An endpoint that refuses tests is not disabled, and gives nobody a dead letter to care for.
func TestAnEndpointThatRefusesTests(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusGone))
	acme := f.EndpointAt(shop.URL, 7)
	failing := newReceiver(t, always(http.StatusInternalServerError))
	globex := f.EndpointAt(failing.URL, 7)
	f.testSession(t, acme.MerchantID, session.TestAmountFails)
	f.testSession(t, globex.MerchantID, session.TestAmountFails)
	d := f.dispatcher(t)
	stop := start(t, d)
	failing.await(t, 4) // as many as the schedule has entries
	shop.await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Must(t, stop())
	if got := testutil.ToFloat64(d.metrics.testEvents.WithLabelValues(outcomeDead)); got != 2 {
		t.Errorf("gave up %v events of test mode, want 2", got)
	}
	f.wantNothingLive(t, d, acme.MerchantID, globex.MerchantID)
}

// A person's test event is tried once, also at a disabled endpoint, and its answer is kept for them. The endpoint stays as it is.
func TestTestEvent_TriedOnce(t *testing.T) {
	f := newFixture(t)
	var answers atomic.Int32
	answers.Store(http.StatusInternalServerError)
	shop := newReceiver(t, func(int, *http.Request) int { return int(answers.Load()) })
	acme := f.EndpointAt(shop.URL, 7)
	f.Disable(t, acme)
	before, client := f.state(t, acme.MerchantID), f.Redis(t)
	stop := start(t, f.dispatcher(t))
	for attempts, want := range []outbox.Attempt{{Reason: "status_5xx", Answer: "500"}, {Reason: "gone", Answer: "410"}, {Reason: "delivered", Answer: "204"}} {
		status, err := strconv.Atoi(want.Answer)
		dispatchertest.Must(t, err)
		answers.Store(int32(status))
		event := feed.NewWebhookTest(acme.MerchantID, "Acme Coffee", want.Answer, time.Now())
		dispatchertest.Eventually(t, "the ten seconds are over", func() bool {
			dispatchertest.Must(t, client.Del(t.Context(), redis.KeyspaceOf(7).Key("webhooktest:", acme.MerchantID)).Err())
			sent, err := f.Outbox.SendWebhookTest(t.Context(), event)
			dispatchertest.Must(t, err)
			return sent
		})
		var test outbox.WebhookTest
		dispatchertest.Eventually(t, "it is answered", func() bool {
			found, err := f.Outbox.Attempts(t.Context(), acme.MerchantID, time.Now())
			dispatchertest.Must(t, err)
			test = found.WebhookTest
			return test.Answered
		})
		if test.Reason != want.Reason || test.Answer != want.Answer || test.Target != "target of "+shop.URL {
			t.Errorf("the answer is %+v, want %+v", test, want)
		}
		if seen := shop.await(t, attempts+1); seen[attempts].ID != event.ID || !strings.HasPrefix(seen[attempts].Body, `{"type":"webhook.test","livemode":false,`) || !seen[attempts].Verified {
			t.Errorf("the endpoint saw %+v", seen[attempts])
		}
		f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1}) // the one the endpoint was disabled with
	}
	dispatchertest.Must(t, stop())
	if after := f.state(t, acme.MerchantID); after.DisabledAt != before.DisabledAt || after.LastFailure != before.LastFailure || after.LastDelivery != before.LastDelivery {
		t.Errorf("the endpoint was %+v and is %+v", before, after)
	}
	if n := len(shop.ids()); n != 3 {
		t.Errorf("%d attempts for 3 test events", n)
	}
}

func (f testFixture) state(t *testing.T, merchantID string) outbox.EndpointState {
	t.Helper()
	found, err := f.Outbox.Endpoints(t.Context(), 7, merchantID)
	dispatchertest.Must(t, err)
	return found.States[0]
}

// wantNothingLive fails the test if a live figure or the state of an endpoint knows of tests.
func (f testFixture) wantNothingLive(t *testing.T, d *testDispatcher, merchantIDs ...string) {
	t.Helper()
	for _, kind := range feed.Kinds() {
		for _, outcome := range []string{outcomeDelivered, outcomeDropped, outcomeDead} {
			if got := testutil.ToFloat64(d.metrics.events.WithLabelValues(string(kind), outcome)); got != 0 {
				t.Errorf("counted %v live %s events as %s", got, kind, outcome)
			}
		}
	}
	for name, counter := range map[string]float64{
		"attempts":           testutil.ToFloat64(d.metrics.attempts.WithLabelValues("delivered")) + testutil.ToFloat64(d.metrics.attempts.WithLabelValues("status_5xx")),
		"expired sessions":   testutil.ToFloat64(d.metrics.expiredSessions),
		"disabled endpoints": testutil.ToFloat64(d.metrics.endpointsDisabled.WithLabelValues(outbox.EndpointGone)),
	} {
		if counter != 0 {
			t.Errorf("counted %v %s", counter, name)
		}
	}
	states, err := f.Outbox.Endpoints(t.Context(), 7, merchantIDs...)
	dispatchertest.Must(t, err)
	for _, state := range states.States {
		if state != (outbox.EndpointState{MerchantID: state.MerchantID}) {
			t.Errorf("the endpoint is %+v", state)
		}
	}
}
