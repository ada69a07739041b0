//go:build faults

package faults

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// endpointFaults are endpoints of a tenant that would take what the dispatcher needs for others.
func endpointFaults() []fault {
	return []fault{
		{"P10", "an endpoint is down, and 20,000 events wait for it", "its backlog is not touched while its breaker is open, and events of others arrive", tryDeadEndpoint},
		{"P10", "64 merchants of a namespace answer their webhooks with 200, after five seconds", "events of others arrive within two seconds", trySlowEndpoints},
	}
}

// events cancels charges of a merchant, each of which is an event for its webhook.
func (s *deployment) events(services *storetest.Services, merchant *v1alpha1.Merchant, many int) (ids []string) {
	s.t.Helper()
	admission := store.Admission{
		MerchantID: published.ID(merchant.UID), KeyID: "till", Digest: apikey.DigestOf("key"), Live: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
	for range many {
		_, created, err := services.CreateSession(s.t.Context(), admission, store.NewSession{
			MerchantName: "Acme Coffee", Charge: session.Charge{AmountCents: 100}, Lifetime: time.Hour,
		})
		s.must(err)
		_, _, err = services.Cancel(s.t.Context(), admission, created.Session.ID)
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
		eventually(s.t, "the event of "+id+" arrives", func() bool { return hooks.heardOf(id) })
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
	const copies = `
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, ARGV[2] do
  local id = string.format('evt_%012d', i)
  redis.call('HSET', ARGV[1] .. 'event:' .. id, unpack(fields))
  redis.call('ZADD', ARGV[1] .. 'queue', 0, ARGV[3] .. ':0000000000001:' .. id)
end
redis.call('ZADD', ARGV[1] .. 'due', 1, ARGV[3])
return 1`
	s.must(s.keeper.Eval(t.Context(), copies, s.eventRecords(down)[:1], space(down), waiting, published.ID(down.UID)).Err())
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
	const most = 400 // of 512
	inFlight := func() int {
		return int(metricsOf(t, s.dispatchers[0].ops)["merchant_operator_webhook_attempts_in_flight"].GetMetric()[0].GetGauge().GetValue())
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
