package dispatcher

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Another dispatcher gets the events that have not started at once.
func TestShutdown_FinishesAttemptsAndReleasesTheRest(t *testing.T) {
	f := newFixture(t)
	answer := make(chan struct{})
	shop, acme := f.Shop(t, dispatchertest.After(answer, http.StatusOK))
	for range 3 {
		f.Event(t, acme.MerchantID)
	}
	d := f.dispatcher(t, func(o *Options) { o.Concurrency = 1 })
	stop := start(t, d)
	started := shop.Await(t, 1)[0].ID
	dispatchertest.Eventually(t, "the others wait here", func() bool { return f.leased(t, 3) })

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// Another dispatcher gets the others at once, long before the attempt and the leases end.
	var released []outbox.Lease
	dispatchertest.Eventually(t, "the others are released", func() bool {
		leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		released = append(released, leased.Leases...)
		return len(released) == 2
	})
	for _, lease := range released {
		if lease.Event.ID == started || lease.Attempts != 0 {
			t.Errorf("released %s after %d attempts, while %s was in progress", lease.Event.ID, lease.Attempts, started)
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with an attempt in progress: %v", err)
	default:
	}
	close(answer)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{Due: 2})
	shop.WantAttempts(t, 1)
}

// leased reports whether this many events are leased to somebody.
func (f testFixture) leased(t *testing.T, want int) bool {
	t.Helper()
	var leased int
	for id := range f.Queued(t, 7) {
		if f.LeasedTo(t, 7, id) {
			leased++
		}
	}
	return leased == want
}

func TestShutdown_AbortsAfterTheTimeout(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Hanging)
	id := f.Event(t, acme.MerchantID)
	stop := start(t, f.dispatcher(t, func(o *Options) { o.ShutdownTimeout = 10 * time.Millisecond }))
	shop.Await(t, 1)
	if err := stop(); !errors.Is(err, errAborted) {
		t.Errorf("stopped with %v, want errAborted", err)
	}
	leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 || leased.Leases[0].Event.ID != id || leased.Leases[0].Attempts != 0 {
		t.Errorf("due are %+v: %v", leased.Leases, err)
	}
}

func TestShutdown_Idle(t *testing.T) {
	f := newFixture(t)
	stop := start(t, f.dispatcher(t))
	dispatchertest.Must(t, stop())
}

func TestDispatcher_RedisRestarts(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	start(t, f.dispatcher(t))
	f.Server.Stop()
	dispatchertest.Eventually(t, "the outage is noticed", func() bool { return len(f.Log.String()) > 0 })
	f.Server.Start()
	storetest.UserURL(t, f.Server) // a restart has lost the user
	dispatchertest.Eventually(t, "Redis answers again", func() bool { return f.Client.Check(t.Context()) == nil })
	id := f.Event(t, acme.MerchantID)
	shop.AwaitEvent(t, 0, id)
}

func TestDispatcher_TwoSeeARotation(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	key := published.KeyRecord{
		KeyID: "abcdefgh2345", MerchantID: acme.MerchantID, Generation: 3,
		LastRotation: published.RotationEvent{Time: time.Now(), Cause: "API"},
	}
	id := fmt.Sprintf("evt_key_abcdefgh2345_3_%d", key.LastRotation.Time.UnixMilli())
	for range 2 { // two dispatchers see each rotation
		d := f.dispatcher(t)
		start(t, d)
		d.rotations.add(key, acme.MerchantName)
		dispatchertest.Eventually(t, "it is recorded", func() bool { return len(d.rotations.list()) == 0 })
	}
	if seen := shop.Await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s", seen[0].ID)
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if n := len(shop.IDs()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// A key is rotated again before Redis has taken the first rotation.
func TestDispatcher_RotationsOfAKeyWait(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	d := f.dispatcher(t)
	began := time.Now().Add(-time.Minute)
	rotated := func(generation int64) (id string) {
		at := began.Add(time.Duration(generation) * time.Second)
		d.rotations.add(published.KeyRecord{
			KeyID: "abcdefgh2345", MerchantID: acme.MerchantID, Generation: generation,
			LastRotation: published.RotationEvent{Time: at, Cause: "Trigger"},
		}, acme.MerchantName)
		return fmt.Sprintf("evt_key_abcdefgh2345_%d_%d", generation, at.UnixMilli())
	}
	var want []string
	for generation := range int64(maxRotations + 1) {
		id := rotated(generation + 2)
		rotated(generation + 2) // another change of the key
		want = append(want, id)
	}
	start(t, d)
	dispatchertest.Eventually(t, "they are recorded", func() bool { return len(d.rotations.list()) == 0 })
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	got := shop.IDs()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want[1:])) // the oldest is lost
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// jumpyTime is an hour late, right or an hour early, at random: in a fixed order, one that is too late for every attempt
// could coincide with the polls.
func jumpyTime() time.Time {
	hours := int(3*jitter.Fraction()) - 1
	return time.Now().Add(time.Duration(hours) * time.Hour).Round(0) // by the wall alone
}

// The clock of Redis decides what is due and which leases have ended. So a dispatcher whose clock jumps loses nothing,
// delivers nothing too early and makes no dead letter of an event that has attempts left.
func TestDispatcher_ClockJumps(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int {
		if before%4 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	const many = 40
	missing := map[string]bool{}
	for range many {
		missing[f.Event(t, acme.MerchantID)] = true
	}
	d := f.dispatcher(t, func(o *Options) {
		o.Schedule, o.Now = append(o.Schedule, o.Schedule[1:]...), jumpyTime
	})
	stop := start(t, d)
	dispatchertest.Eventually(t, "every event has arrived", func() bool {
		for _, id := range shop.IDs() {
			delete(missing, id)
		}
		return len(missing) == 0
	})
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Must(t, stop())
}

func TestDispatcher_TwoShareTheWork(t *testing.T) {
	f := newFixture(t)
	// Each dispatcher makes one attempt at a time, and none is answered before there are two.
	arrived := make(chan struct{}, 10_000)
	both := make(chan struct{})
	shop := dispatchertest.NewReceiver(t, func(before int, r *http.Request) int {
		arrived <- struct{}{}
		if before > 1 {
			return http.StatusOK
		}
		select {
		case <-both:
		case <-r.Context().Done():
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	var want []string
	for range 40 {
		want = append(want, f.Event(t, acme.MerchantID))
	}
	single := func(o *Options) { o.Concurrency = 1 }
	start(t, f.dispatcher(t, single))
	start(t, f.dispatcher(t, single))
	dispatchertest.Eventually(t, "both have an attempt in progress", func() bool {
		want = append(want, f.Event(t, acme.MerchantID)) // one of them may have taken all there was
		return len(arrived) >= 2
	})
	close(both)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	got := shop.IDs()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d attempts for %d events", len(got), len(want))
	}
}

// It never says that it is gone, as when it was killed in mid-delivery.
func TestDispatcher_TakesOverFromAKilledOne(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	want := []string{f.Event(t, acme.MerchantID), f.Event(t, acme.MerchantID)}
	vanished, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{HolderIdentity: "vanished", For: 500 * time.Millisecond, Limit: 10})
	if err != nil || len(vanished.Leases) != 2 {
		t.Fatalf("leased %d events: %v", len(vanished.Leases), err)
	}
	start(t, f.dispatcher(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	got := shop.IDs()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

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
func TestTestMode_Delivered(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusNoContent))
	created := f.testSession(t, acme.MerchantID, session.TestAmountCompletes)
	d := f.dispatcher(t)
	stop := start(t, d)
	seen := shop.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Must(t, stop())
	if body := seen[0].Body; seen[0].ID != dispatchertest.EndedEvent(created.ID) || !seen[0].Verified ||
		!strings.HasPrefix(body, `{"type":"session.completed","livemode":false,`) || !strings.Contains(body, `"sessionId":"ps_test`) {
		t.Errorf("the event is %+v", seen[0])
	}
	if got := d.metric(t, "webhook_test_events_total", "delivered"); got != 1 {
		t.Errorf("counted %v events of test mode", got)
	}
	f.wantNothingLive(t, d, acme.MerchantID)
}

// An endpoint that refuses tests is not disabled, and gives nobody a dead letter to care for.
func TestTestMode_EndpointFails(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusGone))
	failing, globex := f.Shop(t, dispatchertest.Always(http.StatusInternalServerError))
	f.testSession(t, acme.MerchantID, session.TestAmountFails)
	f.testSession(t, globex.MerchantID, session.TestAmountFails)
	d := f.dispatcher(t)
	stop := start(t, d)
	failing.Await(t, 4) // as many as the schedule has entries
	shop.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	dispatchertest.Must(t, stop())
	if got := d.metric(t, "webhook_test_events_total", "dead"); got != 2 {
		t.Errorf("gave up %v events of test mode, want 2", got)
	}
	f.wantNothingLive(t, d, acme.MerchantID, globex.MerchantID)
}

// The event of a test session is sent to a disabled endpoint, and that of a live one is not.
func TestTestMode_DisabledEndpoint(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	f.Disable(t, acme)
	live := f.Event(t, acme.MerchantID)
	tested := f.testSession(t, acme.MerchantID, session.TestAmountCompletes)
	stop := start(t, f.dispatcher(t))
	shop.Await(t, 1)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2}) // the one the endpoint was disabled with, and the live one
	dispatchertest.Must(t, stop())
	if got, want := shop.IDs(), []string{dispatchertest.EndedEvent(tested.ID)}; !slices.Equal(got, want) {
		t.Errorf("the endpoint got %v, want %v", got, want)
	}
	if !slices.ContainsFunc(f.DeadLetters(t), func(letter outbox.DeadLetter) bool { return letter.Event.ID == live }) {
		t.Error("the live event is no dead letter")
	}
	if state := f.state(t, acme.MerchantID); !state.Disabled() {
		t.Errorf("the endpoint is %+v", state)
	}
}

// A person's test event is tried once, also at a disabled endpoint, and its answer is kept for them. The endpoint stays as it is.
func TestTestMode_WebhookTestIsTriedOnce(t *testing.T) {
	f := newFixture(t)
	var answers atomic.Int32
	answers.Store(http.StatusInternalServerError)
	shop := dispatchertest.NewReceiver(t, func(int, *http.Request) int { return int(answers.Load()) })
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
			dispatchertest.Must(t, client.Del(t.Context(), redis.BucketKeyspace(7).Key("webhooktest:", acme.MerchantID)).Err())
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
		if seen := shop.Await(t, attempts+1); seen[attempts].ID != event.ID || !strings.HasPrefix(seen[attempts].Body, `{"type":"webhook.test","livemode":false,`) || !seen[attempts].Verified {
			t.Errorf("the endpoint saw %+v", seen[attempts])
		}
		f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1}) // the one the endpoint was disabled with
	}
	dispatchertest.Must(t, stop())
	if after := f.state(t, acme.MerchantID); after.DisabledAt != before.DisabledAt || after.LastFailure != before.LastFailure || after.LastDelivery != before.LastDelivery {
		t.Errorf("the endpoint was %+v and is %+v", before, after)
	}
	shop.WantAttempts(t, 3)
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
		for _, outcome := range []string{"delivered", "dropped", "dead"} {
			if got := d.metric(t, "webhook_events_total", string(kind), outcome); got != 0 {
				t.Errorf("counted %v live %s events as %s", got, kind, outcome)
			}
		}
	}
	for name, counter := range map[string]float64{
		"attempts":           d.metric(t, "webhook_attempts_total", "delivered") + d.metric(t, "webhook_attempts_total", "status_5xx"),
		"expired sessions":   testutil.ToFloat64(d.metrics.expiredSessions),
		"disabled endpoints": d.metric(t, "webhook_endpoints_disabled_total", outbox.EndpointGone),
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

// Events of a disabled endpoint are not tried. They are delivered once somebody sends them again and resumes the endpoint.
func TestDisabledEndpoint_ResendDeadLetters(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return http.StatusGone
		}
		return http.StatusOK
	})
	acme := f.EndpointAt(shop.URL, 7)
	first := f.Event(t, acme.MerchantID)
	start(t, f.dispatcher(t))
	f.reports.AwaitReasons(t, "EndpointGone")
	second := f.Event(t, acme.MerchantID)
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	got, want := map[string]outbox.Details{}, map[string]outbox.Details{
		first:  {Reason: "gone", Answer: "410", Merchant: acme.Merchant.String()},
		second: {Reason: "endpoint_disabled", Answer: "410", Merchant: acme.Merchant.String()},
	}
	attempts := 0
	for _, letter := range f.DeadLetters(t) {
		got[letter.Event.ID] = letter.Details
		attempts += letter.Attempts
	}
	if diff := cmp.Diff(want, got); diff != "" || attempts != 1 {
		t.Errorf("%d attempts; dead letters (-want +got):\n%s", attempts, diff)
	}
	resent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{first, second}, Resume: true})
	if err != nil || resent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	shop.Await(t, 3)
	f.reports.AwaitLast(t, "Healthy")
}

// All of it is in the same bucket, and the events of the dead one are all due first.
func TestAttempt_HangingEndpointDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	dead, alive := dispatchertest.NewReceiver(t, dispatchertest.Hanging), dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	silent, acme := f.EndpointAt(dead.URL, 7), f.EndpointAt(alive.URL, 7)
	const many = 3 * attempt.Batch
	for range many {
		f.Event(t, silent.MerchantID)
	}
	id := f.Event(t, acme.MerchantID)
	d := f.dispatcher(t, func(o *Options) { o.ShutdownTimeout = time.Millisecond })
	start(t, d)
	alive.AwaitEvent(t, 0, id)
	// None of the silent one's attempts has ended: its timeout is far longer than this test.
	if n := len(dead.IDs()); n > d.options.Concurrency {
		t.Errorf("%d attempts at once, at most %d are allowed", n, d.options.Concurrency)
	}
	if got := d.metric(t, "webhook_attempts_total", "timeout"); got != 0 {
		t.Errorf("the good endpoint waited until %v attempts had timed out", got)
	}
}

// An endpoint that is gone gets nothing until it is resumed.
func TestAttempt_GoneDisables(t *testing.T) {
	f := newFixture(t)
	answer := http.StatusGone
	shop := dispatchertest.NewReceiver(t, func(before int, _ *http.Request) int {
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
	shop.WantAttempts(t, 1)
	reasons := map[string]string{}
	for _, letter := range f.DeadLetters(t) {
		reasons[letter.Event.ID] = letter.Reason
	}
	if reasons[first] != "gone" || reasons[second] != "endpoint_disabled" {
		t.Errorf("the dead letters' reasons are %v", reasons)
	}
	f.reports.AwaitReasons(t, "EndpointGone")
	if got := d.metric(t, "webhook_endpoints_disabled_total", "gone"); got != 1 {
		t.Errorf("counted %v disabled endpoints", got)
	}

	f.Moved(acme, "resumed")
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged")
	third := f.Event(t, acme.MerchantID)
	shop.AwaitEvent(t, 1, third)
	f.reports.AwaitReasons(t, "EndpointGone", "EndpointChanged", "Healthy")
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if sent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{first, second}}); err != nil || sent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", sent, err)
	}
	shop.Await(t, 4)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
}

func TestAttempt_FailingLimitDisables(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusInternalServerError))
	f.Event(t, acme.MerchantID)
	start(t, f.dispatcher(t, func(o *Options) {
		o.FailingLimit = 5 * time.Millisecond
		o.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, time.Hour}
	}))
	f.AwaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	dispatchertest.Eventually(t, "it is reported", func() bool { return slices.Contains(f.reports.Reasons(), "EndpointDisabled") })
	shop.WantAttempts(t, 2) // the second was more than the limit after the first
}

// A tenant whose keys were all rotated at once delays the event of another one's rotation by a few of its own.
func TestDispatcher_RotationsTakeTurns(t *testing.T) {
	const rotated = 200
	f := newFixture(t)
	inspect, at := f.Redis(t), time.Now()
	d := f.dispatcher(t)
	add := func(namespace, keyID, merchantID string) {
		d.rotations.add(published.KeyRecord{
			KeyID: keyID, MerchantID: merchantID, Generation: 2, Source: published.Source{Namespace: namespace},
			LastRotation: published.RotationEvent{Time: at, Cause: "Trigger"},
		}, "Acme Coffee")
	}
	attacker, victim := dispatchertest.NewMerchantID(7), dispatchertest.NewMerchantID(7)
	for i := range rotated {
		add("attacker", fmt.Sprintf("attacker%04d", i), attacker)
	}
	for _, late := range []bool{false, true} {
		add("victim", fmt.Sprintf("victim%t", late), victim)
		more, err := d.recordRotations(t.Context())
		dispatchertest.Must(t, err)
		before, err := inspect.XLen(t.Context(), storetest.Tag(attacker)+"feed:"+attacker).Result()
		dispatchertest.Must(t, err)
		if recorded, err := inspect.XLen(t.Context(), storetest.Tag(victim)+"feed:"+victim).Result(); err != nil || recorded == 0 {
			t.Errorf("late %t: the rotation of the victim is not recorded (%v)", late, err)
		}
		if !more || before > 2*rotationsPerRound {
			t.Errorf("late %t: %d rotations of the attacker went first", late, before)
		}
	}
	for more := true; more; {
		var err error
		more, err = d.recordRotations(t.Context())
		dispatchertest.Must(t, err)
	}
	if n, err := inspect.XLen(t.Context(), storetest.Tag(attacker)+"feed:"+attacker).Result(); err != nil || n != rotated {
		t.Errorf("%d rotations of the attacker are recorded (%v), want all", n, err)
	}
}
