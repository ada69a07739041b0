package system

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestWebhook_RetriesAreEqual(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	statuses := []int{http.StatusInternalServerError, http.StatusServiceUnavailable}
	hooks := newReceiver(t, func(before int, _ *http.Request) int {
		if before < len(statuses) {
			return statuses[before]
		}
		return http.StatusOK
	})
	_, key := s.till(subscribe(hooks))
	secret := s.signingSecret("coffee")
	id := s.charge(0, key)
	s.want(s.cancel(0, key, id), http.StatusOK)

	s.Eventually("three attempts", func() bool { return len(hooks.About(id)) >= 3 })
	attempts := hooks.About(id)
	if len(attempts) != 3 {
		t.Errorf("%d attempts, want 3", len(attempts))
	}
	for _, attempt := range attempts {
		s.verify(secret, attempt)
		if attempt.ID == "" || attempt.ID != attempts[0].ID || attempt.Body != attempts[0].Body {
			t.Errorf("attempt %s %s\ndiffers from %s %s", attempt.ID, attempt.Body, attempts[0].ID, attempts[0].Body)
		}
	}
}

// A merchant gets events of creations only if it asks for them, and no others than it asks for.
func TestWebhook_SubscribedEventsOnly(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	_, key := s.till(subscribe(hooks, v1alpha1.EventSessionCreated, v1alpha1.EventSessionCompleted))
	cancelled := s.charge(0, key)
	s.want(s.cancel(0, key, cancelled), http.StatusOK)
	settled := s.charge(0, key)
	s.wantApplied(s.settle(0, s.RailToken(), settled, report("card-1", "COMPLETED")), true)
	s.Eventually("the other session's events arrive", func() bool { return len(hooks.Types(settled)) == 2 })
	s.Eventually("the event of its creation arrives", func() bool { return len(hooks.Types(cancelled)) == 1 })
	if types := hooks.Types(cancelled); types[0] != "session.created" {
		t.Errorf("events: %v", types)
	}
}

// docs/webhooks.md says what sequence counts: ends and refused payments always, the creation only for who subscribes to it. A
// receiver that gets late_payment alone learns from it that the session is paid.
func TestWebhook_SequenceCountsUnsentEvents(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	_, key := s.till(subscribe(hooks, v1alpha1.EventLatePayment))
	id, rail := s.charge(0, key), s.RailToken()
	s.wantApplied(s.settle(0, rail, id, report("card-1", "COMPLETED")), true)
	s.wantRefund(s.settle(0, rail, id, report("card-2", "COMPLETED")))
	s.Eventually("the merchant gets the event", func() bool { return len(hooks.About(id)) == 1 })
	var late struct {
		Data struct {
			Status   string `json:"status"`
			Sequence int64  `json:"sequence"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(hooks.About(id)[0].Body), &late); err != nil {
		t.Fatal(err)
	}
	if late.Data.Sequence != 2 || late.Data.Status != "COMPLETED" {
		t.Errorf("the late payment has the sequence %d and the status %s, want 2 and COMPLETED", late.Data.Sequence, late.Data.Status)
	}
}

// After a rotation of the signing secret both sign, so that the merchant can change over in its time.
func TestWebhook_SigningSecretRotated(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	merchant := s.Merchant("coffee", subscribe(hooks))
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	old := s.signingSecret("coffee")
	s.Change(merchant, func() { merchant.Spec.Webhook.RotationTrigger = "again" })
	var fresh string
	s.Eventually("another secret is delivered", func() bool { fresh = s.signingSecret("coffee"); return fresh != old })

	s.Eventually("an event is signed with both", func() bool {
		id := s.charge(0, key)
		s.want(s.cancel(0, key, id), http.StatusOK)
		s.Eventually("the merchant gets the event", func() bool { return len(hooks.About(id)) > 0 })
		first := hooks.About(id)[0]
		s.verify(old, first) // at any time in this day
		return len(first.Header.Get("Webhook-Signature")) > 60
	})
	id := s.charge(0, key)
	s.want(s.cancel(0, key, id), http.StatusOK)
	s.Eventually("the merchant gets the event", func() bool { return len(hooks.About(id)) > 0 })
	s.verify(fresh, hooks.About(id)[0])
}

func TestWebhook_KeyRotated(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	apiKey, key := s.till(subscribe(hooks))
	s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK)
	id := published.ID(apiKey.UID)
	s.Eventually("the merchant gets the event", func() bool { return len(hooks.Types(id)) == 1 })
	if types := hooks.Types(id); types[0] != "key.rotated" {
		t.Errorf("events: %v", types)
	}
}

// The way of a test: Merchant, operator, dispatcher, receiver, and back into the status.
func TestWebhook_TestTrigger(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	status := atomic.Int32{}
	status.Store(http.StatusUnauthorized)
	hooks := newReceiver(t, func(int, *http.Request) int { return int(status.Load()) })
	s.till(subscribe(hooks, v1alpha1.EventSessionCompleted))
	var merchant v1alpha1.Merchant
	read := func() {
		if err := s.Kube.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "coffee"}, &merchant); err != nil {
			t.Fatal(err)
		}
	}
	test := func(trigger, reason string) {
		t.Helper()
		read()
		s.Change(&merchant, func() { merchant.Spec.Webhook.TestTrigger = trigger })
		s.Eventually("the Merchant says "+reason, func() bool {
			read()
			health := meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition)
			return health != nil && health.Reason == reason && merchant.Status.Webhook.ObservedTestTrigger == trigger
		})
	}
	read()
	if merchant.Status.Webhook != nil || meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition) != nil {
		t.Errorf("before the first event: %+v", merchant.Status)
	}
	test("monday", "Rejected")
	if failure := merchant.Status.Webhook.LastFailure; failure == nil || failure.StatusCode != http.StatusUnauthorized || merchant.Status.Webhook.LastDelivery != nil {
		t.Errorf("status.webhook is %+v", merchant.Status.Webhook)
	}
	status.Store(http.StatusNoContent)
	test("tuesday", "Healthy")
	secret := s.signingSecret("coffee")
	s.Eventually("there is one event for each trigger", func() bool { // Healthy may be that of the first one's retry
		ids := map[string]bool{}
		for _, attempt := range hooks.Attempts() {
			s.verify(secret, attempt)
			ids[attempt.ID] = true
			if !strings.Contains(attempt.Body, `"type":"webhook.test"`) {
				t.Errorf("got %s", attempt.Body)
			}
		}
		return len(ids) == 2
	})
	events := &eventsv1.EventList{}
	s.Eventually("both changes are events", func() bool {
		if err := s.Kube.List(t.Context(), events, client.InNamespace(s.Namespace)); err != nil {
			t.Fatal(err)
		}
		types := map[string]string{}
		for _, event := range events.Items {
			types[event.Reason] = event.Type
		}
		return types["Rejected"] == corev1.EventTypeWarning && types["Healthy"] == corev1.EventTypeNormal
	})
}

// A dispatcher is killed while its request is under way. The processes here have a Redis of their own,
// so that no other dispatcher takes the event.
func TestWebhook_DispatcherKilled(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	answer := make(chan struct{})
	hooks := newReceiver(t, func(_ int, r *http.Request) int {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return http.StatusOK
	})
	merchant := s.Merchant("coffee", subscribe(hooks))
	secret := s.signingSecret("coffee")
	redis := redistest.Start(t)
	id := s.endedSession(redis.URL(), published.ID(merchant.UID))

	first := s.dispatcherProcess(redis.URL())
	s.Eventually("the request is under way", func() bool { return len(hooks.About(id)) == 1 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	close(answer)
	s.dispatcherProcess(redis.URL())
	await.Until(t, 2*time.Minute, "another dispatcher delivers", func() bool { return len(hooks.About(id)) > 1 })
	for _, attempt := range hooks.About(id) {
		s.verify(secret, attempt)
		if attempt.ID != hooks.About(id)[0].ID || attempt.Body != hooks.About(id)[0].Body {
			t.Errorf("the second attempt differs: %s", attempt.Body)
		}
	}
}

// endedSession makes a session of the merchant and cancels it, as a replica of the API would.
func (s tenant) endedSession(redisURL, merchantID string) (id string) {
	s.T.Helper()
	sessions := storetest.Open(s.T, redisURL)
	asks := admission.Request{
		MerchantID: merchantID,
		KeyID:      published.ID("key"),
		Digest:     apikey.NewDigest("key"),
		Accepted:   true,
		Limit:      ratelimit.Policy{RequestsPerSecond: 100, Burst: 100},
	}
	_, created, err := sessions.CreateSession(s.T.Context(), asks, store.NewSession{
		MerchantName: "Acme", Charge: session.Charge{AmountCents: 1250}, Lifetime: time.Hour,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	if _, _, err := sessions.Cancel(s.T.Context(), asks, created.Session.ID); err != nil {
		s.T.Fatal(err)
	}
	return created.Session.ID.String()
}

// What a process of this test binary needs to be a dispatcher, in its environment.
const (
	dispatcherRedis      = "SYSTEM_TEST_DISPATCHER_REDIS"
	dispatcherKubeconfig = "SYSTEM_TEST_DISPATCHER_KUBECONFIG"
	dispatcherOps        = "SYSTEM_TEST_DISPATCHER_OPS"
)

// runDispatcher runs until it is killed.
func runDispatcher() error {
	options := dispatcher.DefaultOptions()
	options.RedisURL = os.Getenv(dispatcherRedis)
	options.Kubeconfig = os.Getenv(dispatcherKubeconfig)
	options.Ops.Address = os.Getenv(dispatcherOps)
	options.Lease = time.Hour // what a killed one holds is taken over long before that
	options.AllowHTTP = true
	options.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return dispatcher.Run(context.Background(), options)
}

// dispatcherProcess starts a process that runs until the test ends, or it is killed.
func (s tenant) dispatcherProcess(redisURL string) *exec.Cmd {
	s.T.Helper()
	var ops string
	if err := fixture.Choose(&ops); err != nil {
		s.T.Fatal(err)
	}
	kubeconfig, err := shared.Kubeconfig(fixture.DispatcherAccount)
	if err != nil {
		s.T.Fatal(err)
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), dispatcherRedis+"="+redisURL, dispatcherKubeconfig+"="+kubeconfig, dispatcherOps+"="+ops)
	process.Stdout, process.Stderr = &shared.Logs, &shared.Logs
	if err := process.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	s.Eventually("the dispatcher is ready", func() bool { return fixture.Ready("http://" + ops) })
	return process
}
