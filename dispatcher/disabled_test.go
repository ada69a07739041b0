package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

func TestAnEndpointThatIsGoneGetsNothingUntilItIsResumed(t *testing.T) {
	f := newFixture(t)
	answer := http.StatusGone
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return answer
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	first := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t)
	start(t, d)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	second := f.Event(t, acme.MerchantID)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if n := len(shop.ids()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	reasons := map[string]string{}
	for _, letter := range f.DeadLetters(t) {
		reasons[letter.Event.ID] = letter.Reason
	}
	if reasons[first] != "gone" || reasons[second] != "endpoint_disabled" {
		t.Errorf("the dead letters' reasons are %v", reasons)
	}
	f.reports.AwaitReasons(t, "EndpointGone")
	if got := testutil.ToFloat64(d.metrics.endpointsDisabled.WithLabelValues("gone")); got != 1 {
		t.Errorf("counted %v disabled endpoints", got)
	}

	f.Moved(acme, "resumed")
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged")
	third := f.Event(t, acme.MerchantID)
	if seen := shop.await(t, 2); seen[1].ID != third {
		t.Errorf("saw %s, want %s", seen[1].ID, third)
	}
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged", "Healthy")
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if sent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{first, second}}); err != nil || sent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", sent, err)
	}
	shop.await(t, 4)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
}

// It must not become a dead letter because nobody has looked after disabled endpoints in between.
func TestAnEventForAResumedEndpointIsDelivered(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	f.Disable(t, acme)
	f.Moved(acme, "resumed")
	id := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t)
	d.prepare()
	if _, err := d.lease(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	d.queues.close(t.Context())
	if !d.queues.wait(dispatchertest.Patience) {
		t.Error("the attempt never ended")
	}
	if letters := f.DeadLetters(t); len(letters) != 1 { // the one the endpoint was disabled with
		t.Errorf("dead letters: %+v", letters)
	}
}

func TestAnEndpointThatFailsForTooLongIsDisabled(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusInternalServerError))
	acme := f.EndpointAt(shop.URL, 7)
	f.Event(t, acme.MerchantID)
	start(t, f.dispatcher(t, func(o *Options) {
		o.FailingLimit = 5 * time.Millisecond
		o.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, time.Hour}
	}))
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	dispatchertest.Eventually(t, "it is reported", func() bool { return slices.Contains(f.reports.Reasons(), "EndpointDisabled") })
	if n := len(shop.ids()); n != 2 { // the second was more than the limit after the first
		t.Errorf("%d attempts, want 2", n)
	}
}
