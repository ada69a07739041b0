//go:build faults

package faults

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// withdrawalFaults remove what the dispatcher goes by while events are due.
func withdrawalFaults() []fault {
	const (
		kept    = "its due events are delivered once it is published again"
		dropped = "its due events are dropped"
	)
	return []fault{
		{"P4", "the published ConfigMap of a merchant removed by hand", kept, removing(func(s *deployment, merchant *v1alpha1.Merchant) {
			s.must(shared.Client.Delete(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: kubetest.CredentialsNamespace, Name: published.MerchantName(published.ID(merchant.UID)),
			}}))
		})},
		{"P4", "every published object removed by hand", kept, removing(func(s *deployment, _ *v1alpha1.Merchant) {
			s.must(shared.Client.DeleteAllOf(s.t.Context(), &corev1.ConfigMap{}, client.InNamespace(kubetest.CredentialsNamespace)))
			s.must(shared.Client.DeleteAllOf(s.t.Context(), &corev1.Secret{}, client.InNamespace(kubetest.CredentialsNamespace)))
		})},
		{"P4", "the webhook of a Merchant removed, and set again", "its due events are delivered then", tryRemovedWebhooks},
		{"P4", "a Merchant is deleted", dropped, tryDeletedMerchants},
		{"P4", "a Merchant is deleted while payers pay", "a payment is applied, or to be refunded if it comes later; a repeat gets the first answer", tryPaymentsForDeletedMerchants},
	}
}

// dueEvents cancels charges while no dispatcher runs, and returns the sessions.
func (s *deployment) dueEvents(merchant *v1alpha1.Merchant, key string, many int) (ids []string) {
	s.t.Helper()
	s.dispatchers[0].kill()
	api := s.replicas[0].public
	for range many {
		id := s.mustCall(http.StatusCreated, api, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId")
		s.mustCall(http.StatusOK, api, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
		ids = append(ids, id)
	}
	records := s.eventRecords(merchant)
	if len(records) != many {
		s.t.Fatalf("%d charges were cancelled, and these events are recorded: %v", many, records)
	}
	// They happened a while ago, so that a missing merchant is not taken for one that a watch has not delivered yet.
	for _, record := range records {
		event, err := s.keeper.HGet(s.t.Context(), record, "b").Result()
		s.must(err)
		texts := strings.SplitN(event, "\t", 4) // version, kind, when it happened, and more
		happened, err := strconv.ParseInt(texts[2], 10, 64)
		s.must(err)
		texts[2] = strconv.FormatInt(happened-20_000, 10)
		s.must(s.keeper.HSet(s.t.Context(), record, "b", strings.Join(texts, "\t")).Err())
	}
	return ids
}

// ended is the end of the id of an event about the end of a session. Others are in the bucket as well: a dispatcher records
// rotations of keys of all merchants, and those of earlier faults were rotated if their records were removed.
const ended = "_ended"

// eventRecords are the keys of the events about a merchant's sessions in Redis; one that was delivered or dropped is gone.
func (s *deployment) eventRecords(merchant *v1alpha1.Merchant) []string {
	s.t.Helper()
	keys, err := s.keeper.Keys(s.t.Context(), space(merchant)+"event:*"+ended).Result()
	s.must(err)
	return keys
}

// attempts is the time of the next attempt of each event that is due.
func (s *deployment) attempts(merchant *v1alpha1.Merchant) map[string]float64 {
	s.t.Helper()
	due, err := s.keeper.ZRangeWithScores(s.t.Context(), space(merchant)+"due", 0, -1).Result()
	s.must(err)
	next := map[string]float64{}
	for _, one := range due {
		if id, _ := one.Member.(string); strings.HasSuffix(id, ended) {
			next[id] = one.Score
		}
	}
	return next
}

// removing has a dispatcher meet due events of a merchant of which nothing is published, for the operator is frozen.
func removing(remove func(s *deployment, merchant *v1alpha1.Merchant)) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		const events = 20
		rounds := *intensity
		for n := range rounds {
			s := deploy(t, 1, 1)
			hooks := newReceiver(t)
			merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
			ids := s.dueEvents(merchant, s.apiKey("till", "coffee"), events)
			thaw := s.freezeOperator()
			remove(s, merchant)
			s.dispatchers[0].restart(t)
			s.awaitDeferred(merchant, "unknown_merchant")
			if left := s.eventRecords(merchant); len(left) != events {
				t.Errorf("round %d: %d of %d events are left", n, len(left), events)
			}
			thaw()
			s.awaitDelivered(merchant, hooks, ids)
		}
		return rounds, fmt.Sprintf("%d events deferred while nothing was published, all delivered afterwards", rounds*events)
	}
}

// awaitDeferred waits until the dispatcher has deferred an event for the reason.
func (s *deployment) awaitDeferred(merchant *v1alpha1.Merchant, reason string) {
	s.t.Helper()
	eventuallySees(s.t, "events are deferred", func() (string, bool) {
		count := deferrals(s.t, s.dispatchers[0].ops, reason)
		return fmt.Sprintf("%v were; left: %v", count, s.eventRecords(merchant)), count > 0
	})
}

// awaitDelivered waits until the events of these sessions have arrived.
func (s *deployment) awaitDelivered(merchant *v1alpha1.Merchant, hooks *receiver, ids []string) {
	s.t.Helper()
	for _, id := range ids {
		eventuallySees(s.t, "the event of "+id+" is delivered", func() (string, bool) {
			return fmt.Sprintf("due: %v; records: %v", s.attempts(merchant), s.eventRecords(merchant)), hooks.received(id)
		})
	}
}

// deferrals is how often the dispatcher at an ops port has deferred an event for a reason.
func deferrals(t *testing.T, ops, reason string) float64 {
	t.Helper()
	for _, metric := range readMetrics(t, ops)["merchant_operator_webhook_deferrals_total"].GetMetric() {
		if metric.GetLabel()[0].GetValue() == reason {
			return metric.GetCounter().GetValue()
		}
	}
	return 0
}

// freezeOperator stops it until the returned function is called, or the test ends.
func (s *deployment) freezeOperator() (thaw func()) {
	s.t.Helper()
	shared.operator.signal(s.t, syscall.SIGSTOP)
	thaw = func() { shared.operator.signal(s.t, syscall.SIGCONT) }
	s.t.Cleanup(thaw)
	return thaw
}

// tryRemovedWebhooks has a dispatcher meet due events of a merchant whose webhook is removed and set again.
func tryRemovedWebhooks(t *testing.T) (int, string) {
	t.Helper()
	const events = 20
	rounds := *intensity
	for range rounds {
		s := deploy(t, 1, 1)
		hooks := newReceiver(t)
		merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
		ids := s.dueEvents(merchant, s.apiKey("till", "coffee"), events)
		s.setWebhook("coffee", nil)
		eventually(t, "it is published without a webhook", func() bool {
			var configMap corev1.ConfigMap
			s.must(shared.get(t.Context(), kubetest.CredentialsNamespace, published.MerchantName(published.ID(merchant.UID)), &configMap))
			record, err := published.DecodeMerchant(&configMap)
			s.must(err)
			return record.Webhook == nil || record.Webhook.URL == ""
		})
		s.dispatchers[0].restart(t)
		s.awaitDeferred(merchant, "webhook_removed")
		s.setWebhook("coffee", &v1alpha1.Webhook{URL: hooks.URL})
		s.awaitDelivered(merchant, hooks, ids)
	}
	return rounds, fmt.Sprintf("%d events deferred while there was no webhook, all delivered afterwards", rounds*events)
}

func (s *deployment) setWebhook(name string, webhook *v1alpha1.Webhook) {
	s.t.Helper()
	var merchant v1alpha1.Merchant
	s.must(shared.get(s.t.Context(), s.Namespace, name, &merchant))
	before := merchant.DeepCopy()
	merchant.Spec.Webhook = webhook
	s.must(shared.Client.Patch(s.t.Context(), &merchant, client.MergeFrom(before)))
}

func tryDeletedMerchants(t *testing.T) (int, string) {
	t.Helper()
	const events = 20
	rounds := *intensity
	for range rounds {
		s := deploy(t, 1, 1)
		hooks := newReceiver(t)
		merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
		s.dueEvents(merchant, s.apiKey("till", "coffee"), events)
		s.must(shared.Client.Delete(t.Context(), merchant))
		eventually(t, "the Merchant is gone", func() bool {
			return apierrors.IsNotFound(shared.get(t.Context(), s.Namespace, "coffee", &v1alpha1.Merchant{}))
		})
		s.dispatchers[0].restart(t)
		eventuallySees(t, "its events are dropped", func() (string, bool) {
			left := s.eventRecords(merchant)
			return fmt.Sprintf("left: %v, due: %v", left, s.attempts(merchant)), len(left) == 0 && len(s.attempts(merchant)) == 0
		})
		if got := hooks.events(); got > 0 {
			t.Errorf("%d events of a deleted Merchant arrived", got)
		}
	}
	return rounds, fmt.Sprintf("%d events dropped, none delivered", rounds*events)
}

// tryPaymentsForDeletedMerchants has a rail report payments to both replicas, before, while and after the Merchant is deleted.
func tryPaymentsForDeletedMerchants(t *testing.T) (int, string) {
	t.Helper()
	const (
		payments        = 90
		applied, refund = "applied", "to be refunded"
	)
	rounds, counted := *intensity, map[string]int{}
	for range rounds {
		s := deploy(t, 2, 1)
		merchant := s.Merchant("coffee")
		key, rail := s.apiKey("till", "coffee"), s.railToken()
		s.settlesEverywhere(rail)
		var ids []string
		for range payments {
			ids = append(ids, s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId"))
		}
		pay := func(n int, id string) string {
			got := s.mustCall(http.StatusOK, s.replicas[n%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
				`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":100}`)
			switch {
			case got.Body["applied"] == true:
				return applied
			case got.Text("action") == "REFUND_REQUIRED":
				return refund
			}
			t.Fatalf("a payment of %s: %v", id, got.Body)
			return ""
		}
		first := map[string]string{}
		report := func(n int) string {
			id := ids[len(first)]
			first[id] = pay(n, id)
			return first[id]
		}
		for n := range payments / 3 {
			if got := report(n); got != applied {
				t.Errorf("payment %d, before the deletion, is %s", n, got)
			}
		}
		s.must(shared.Client.Delete(t.Context(), merchant))
		for n := range payments / 3 {
			report(n)
		}
		eventually(t, "the Merchant is gone", func() bool {
			return apierrors.IsNotFound(shared.get(t.Context(), s.Namespace, "coffee", &v1alpha1.Merchant{}))
		})
		for n := range s.replicas {
			eventually(t, "a replica knows", func() bool { return report(n) == refund })
		}
		for n := range payments - len(first) {
			if got := report(n); got != refund {
				t.Errorf("payment %d, after the deletion, is %s", n, got)
			}
		}
		s.replicas[0].kill()
		s.replicas[0].restart(t)
		for id, want := range first {
			counted[want]++
			for n := range s.replicas {
				if got := pay(n, id); got != want {
					t.Errorf("a repeat at replica %d is %s, the first report was %s", n, got, want)
				}
			}
		}
	}
	return rounds, fmt.Sprintf("%d payments applied, %d to be refunded, each with the same answer when repeated", counted[applied], counted[refund])
}

// endpointFaults are endpoints of a tenant that would take what the dispatcher needs for others.
func endpointFaults() []fault {
	return []fault{
		{"P10", "an endpoint is down, and 20,000 events wait for it", "its events are not touched while its breaker is open, and events of others arrive", tryDeadEndpoint},
		{"P10", "64 merchants of a namespace answer their webhooks with 200, after five seconds", "events of others arrive within two seconds", trySlowEndpoints},
	}
}

// events cancels charges of a merchant, each of which is an event for its webhook.
func (s *deployment) events(services *storetest.Services, merchant *v1alpha1.Merchant, many int) (ids []string) {
	s.t.Helper()
	asks := admission.Request{
		MerchantID: published.ID(merchant.UID), KeyID: "till", Digest: apikey.NewDigest("key"), Accepted: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
	for range many {
		_, created, err := services.CreateSession(s.t.Context(), asks, store.NewSession{
			MerchantName: "Acme Coffee", Charge: session.Charge{AmountCents: 100}, Lifetime: time.Hour,
		})
		s.must(err)
		_, _, err = services.Cancel(s.t.Context(), asks, created.Session.ID)
		s.must(err)
		ids = append(ids, created.Session.ID.String())
	}
	return ids
}

// arrive makes events of a merchant one after the other, and returns how long the slowest took to arrive.
func (s *deployment) arrive(services *storetest.Services, merchant *v1alpha1.Merchant, hooks *receiver, many int) (slowest time.Duration) {
	s.t.Helper()
	for range many {
		started := time.Now()
		id := s.events(services, merchant, 1)[0]
		eventually(s.t, "the event of "+id+" arrives", func() bool { return hooks.received(id) })
		slowest = max(slowest, time.Since(started))
	}
	return slowest
}

// webhook is a change of a Merchant.
func webhook(url string) func(*v1alpha1.Merchant) {
	return func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: url} }
}

func tryDeadEndpoint(t *testing.T) (int, string) {
	t.Helper()
	const waiting, others = 20_000, 20
	s := deploy(t, 0, 1)
	services := storetest.New(t, s.url)
	hooks := newReceiver(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	down, coffee := s.Merchant("down", webhook(dead.URL)), s.Merchant("coffee", webhook(hooks.URL))
	s.arrive(services, coffee, hooks, 1)
	s.events(services, down, 1)
	storetest.CopyEvent(t, s.keeper, s.eventRecords(down)[0], published.ID(down.UID), waiting)
	eventually(t, "its breaker is open", func() bool { return deferrals(t, s.dispatchers[0].ops, "breaker") > 0 })
	before := s.calls("zrem")
	var slowest time.Duration
	for range others { // each makes its merchant due
		s.events(services, down, 1)
		slowest = max(slowest, s.arrive(services, coffee, hooks, 1))
	}
	touched := s.calls("zrem") - before
	if touched > waiting/10 {
		t.Errorf("%d events were taken out of a queue", touched)
	}
	return waiting, fmt.Sprintf("%d new ones and %d of another merchant, the slowest after %d ms; %d entries of queues changed",
		others, others, slowest.Milliseconds(), touched)
}

// calls is how often Redis has run a command.
func (s *deployment) calls(command string) (calls int) {
	s.t.Helper()
	statistics, err := s.keeper.Info(s.t.Context(), "commandstats").Result()
	s.must(err)
	for line := range strings.Lines(statistics) {
		if rest, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			_, err := fmt.Sscanf(rest, "%d,", &calls)
			s.must(err)
		}
	}
	return calls
}

func trySlowEndpoints(t *testing.T) (int, string) {
	t.Helper()
	const merchants, quick, slow, others = 64, 10, 60, 50
	s := deploy(t, 0, 0)
	s.addDispatcher(0, "--lease", "60s") // else what waits for them goes back to Redis before they are slow enough
	services := storetest.New(t, s.url)
	var answered atomic.Int64
	var isSlow atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if isSlow.Load() {
			select {
			case <-time.After(5 * time.Second):
			case <-r.Context().Done():
			}
		}
		answered.Add(1)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	hooks := newReceiver(t)
	coffee := s.Merchant("coffee", webhook(hooks.URL))
	var all []*v1alpha1.Merchant
	for n := range merchants {
		merchant := s.Merchant(fmt.Sprintf("slow-%d", n), webhook(server.URL))
		all = append(all, merchant)
		s.events(services, merchant, quick) // the dispatcher knows it
	}
	eventually(t, "all are answered", func() bool { return answered.Load() >= merchants*quick })
	calm := s.arrive(services, coffee, hooks, others)
	isSlow.Store(true)
	for _, merchant := range all {
		s.events(services, merchant, slow)
	}
	const most = 300 // of 336, which a namespace may have alone
	inFlight := func() int {
		return int(readMetrics(t, s.dispatchers[0].ops)["merchant_operator_webhook_attempts_in_flight"].GetMetric()[0].GetGauge().GetValue())
	}
	eventuallySees(t, "the slow ones have most attempts", func() (string, bool) { return fmt.Sprint(inFlight()), inFlight() >= most })
	held := inFlight()
	slowest := s.arrive(services, coffee, hooks, others)
	if slowest > 2*time.Second {
		t.Errorf("an event of another merchant arrived after %s", slowest)
	}
	return merchants, fmt.Sprintf("%d attempts in progress; %d events of another merchant of the namespace, the slowest after %d ms, before %d ms",
		held, others, slowest.Milliseconds(), calm.Milliseconds())
}
