//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// outageCallers call at once.
const outageCallers = 12

// bound is within which callers are promised an answer while Redis is away.
const bound = time.Second

// outage is a way for Redis to be of no use, and back.
type outage struct {
	name       string
	begin, end func(*deployment)
}

// pausedRedis lets callers wait for answers that do not come, so it is also tried under load.
var pausedRedis = outage{
	"Redis paused (SIGSTOP)", func(s *deployment) { s.redis.Pause() }, func(s *deployment) { s.redis.Resume() },
}

func outages() []outage {
	toxic := func(kind, attributes string) (begin, end func(*deployment)) {
		return func(s *deployment) { s.toRedis.poison(s.t, kind, "downstream", attributes) }, func(s *deployment) { s.toRedis.heal() }
	}
	config := func(name, bad, good string) (begin, end func(*deployment)) {
		set := func(value string) func(*deployment) {
			return func(s *deployment) { s.must(s.keeper.ConfigSet(s.t.Context(), name, value).Err()) }
		}
		return set(bad), set(good)
	}
	slow, fast := toxic("latency", `{"latency":2000}`)
	silent, heard := toxic("timeout", `{"timeout":0}`)
	reset, kept := toxic("reset_peer", `{"timeout":5}`)
	cutShort, whole := toxic("limit_data", `{"bytes":3}`)
	full, roomy := config("maxmemory", "1", "0")
	alone, joined := config("min-replicas-to-write", "1", "0")
	return []outage{
		{"Redis slow (2 s an answer)", slow, fast},
		{"Redis silent (packets lost)", silent, heard},
		{"Redis resets each connection", reset, kept},
		{"Redis breaks off its answers", cutShort, whole},
		{"Redis unreachable (refused)", func(s *deployment) { s.toRedis.cut() }, func(s *deployment) { s.toRedis.restore(s.t) }},
		pausedRedis,
		{"Redis full (OOM)", full, roomy},
		{"Redis without its replicas (NOREPLICAS)", alone, joined},
		{
			"Redis read-only (READONLY)",
			func(s *deployment) { s.must(s.keeper.ReplicaOf(s.t.Context(), "127.0.0.1", "1").Err()) },
			func(s *deployment) { s.must(s.keeper.ReplicaOf(s.t.Context(), "no", "one").Err()) },
		},
		{"Redis busy with a script (BUSY)", beBusy, beIdle},
		{"Redis restarting, its script cache lost", func(s *deployment) { s.redis.Stop() }, func(s *deployment) { s.redis.Start() }},
	}
}

// beBusy runs a script without end, until it is killed.
func beBusy(s *deployment) {
	s.must(s.keeper.ConfigSet(s.t.Context(), "busy-reply-threshold", "50").Err())
	go func() { _ = s.keeper.Eval(context.Background(), "while true do end", nil).Err() }()
	eventually(s.t, "Redis is busy", func() bool { return s.keeper.Ping(s.t.Context()).Err() != nil })
}

func beIdle(s *deployment) {
	s.must(s.keeper.ScriptKill(s.t.Context()).Err())
	eventually(s.t, "Redis is idle", func() bool { return s.keeper.Ping(s.t.Context()).Err() == nil })
}

func outageFaults() []fault {
	var all []fault
	for _, o := range outages() {
		all = append(all, fault{
			"P6", o.name, "503 with Retry-After within 1 s, nothing grows, always ready, recovery without help",
			func(t *testing.T) (int, string) { t.Helper(); return tryOutage(t, o) },
		})
	}
	for _, rate := range []int{100, 800, 1500} {
		all = append(all, fault{
			"P6", fmt.Sprintf("%s, %d requests/s", pausedRedis.name, rate), "503 with Retry-After within 1 s, memory flat, always ready, recovery without help",
			func(t *testing.T) (int, string) { t.Helper(); return tryLoadedOutage(t, pausedRedis, rate) },
		})
	}
	return all
}

func tryOutage(t *testing.T, o outage) (tried int, seen string) {
	t.Helper()
	s := deploy(t, 1, 1)
	s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	api := s.replicas[0]
	id := s.mustCall(http.StatusCreated, api.public, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId")
	ask := func(c caller, n int) (fixture.Answer, error) {
		switch n % 4 {
		case 0:
			return c.call(api.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
		case 1:
			return c.call(api.public, http.MethodGet, sessions+"/"+id, key, "")
		case 2:
			return c.call(api.public, http.MethodGet, "/api/v1/public/sessions/"+id, "", "")
		default:
			return c.call(api.public, http.MethodGet, me, key, "")
		}
	}
	many(30, ask, func(fixture.Answer, error) {}) // fills pools and caches
	before := gauges(t, api.ops)

	stopProbing := probe(t, api.process, s.dispatchers[0])
	defer stopProbing()
	rounds := 2 * *intensity
	var calls atomic.Int64
	var slowest, slowestReturn time.Duration
	var during map[string]float64
	for range rounds {
		o.begin(s)
		var mu sync.Mutex
		many(10, ask, func(got fixture.Answer, err error) {
			calls.Add(1)
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, got.Took)
			if err != nil || !unavailable(got) || got.Header.Get("Retry-After") == "" || got.Text("error") == "" {
				t.Errorf("answered %d %v, %v; want 503 with Retry-After", got.Status, got.Header, err)
			}
		})
		during = gauges(t, api.ops)
		o.end(s)
		back, client := time.Now(), newCaller()
		eventually(t, "the API serves again", func() bool {
			got, err := ask(client, 0)
			return err == nil && got.Status == http.StatusCreated
		})
		slowestReturn = max(slowestReturn, time.Since(back))
	}
	if slowest > bound {
		t.Errorf("the slowest answer took %s, want at most %s", slowest, bound)
	}
	stopProbing()
	checkFlat(t, api.ops, before, during)
	return rounds, fmt.Sprintf("%d calls, all 503, the slowest after %d ms; served again after %d ms; goroutines %.0f, %.0f during, memory %.0f MB, %.0f during",
		calls.Load(), slowest.Milliseconds(), slowestReturn.Milliseconds(), before[goroutines], during[goroutines],
		before[resident]/1e6, during[resident]/1e6)
}

// tryLoadedOutage has new requests come all the time, as tills and payers do, whether or not the earlier ones were answered.
func tryLoadedOutage(t *testing.T, o outage, rate int) (tried int, seen string) {
	t.Helper()
	s := deploy(t, 1, 1)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) {
		m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 10_000}
	})
	key := s.apiKey("till", "coffee")
	api := s.replicas[0]
	id := s.mustCall(http.StatusCreated, api.public, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId")
	client := caller{&http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: rate, IdleConnTimeout: 5 * time.Second}}}
	ask := func(n int) (fixture.Answer, error) {
		switch n % 4 {
		case 0:
			return client.call(api.public, http.MethodGet, sessions+"/"+id, key, "")
		case 1:
			return client.call(api.public, http.MethodGet, "/api/v1/public/sessions/"+id, "", "")
		default:
			return client.call(api.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
		}
	}
	before := gauges(t, api.ops)
	stopProbing := probe(t, api.process, s.dispatchers[0])
	defer stopProbing()

	const lasts, tick = 4 * time.Second, 10 * time.Millisecond
	var mu sync.Mutex
	var slowest time.Duration
	var wrong fixture.Answer
	var failed error
	calls, others := 0, 0
	take := func(got fixture.Answer, err error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		slowest = max(slowest, got.Took)
		if err != nil || !unavailable(got) || got.Header.Get("Retry-After") == "" || got.Text("error") == "" {
			others++
			wrong, failed = got, err
		}
	}
	o.begin(s)
	var asking sync.WaitGroup
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var during map[string]float64
	for sent, began := 0, time.Now(); time.Since(began) < lasts; <-ticker.C {
		due := int(time.Since(began).Seconds() * float64(rate))
		for n := sent; n < due; n++ {
			asking.Go(func() { take(ask(n)) })
		}
		sent = due
		if during == nil && time.Since(began) > lasts/2 {
			during = gauges(t, api.ops)
		}
	}
	asking.Wait()
	o.end(s)
	back := time.Now()
	eventually(t, "the API serves again", func() bool {
		got, err := ask(2)
		return err == nil && got.Status == http.StatusCreated
	})
	served := time.Since(back)
	stopProbing()
	client.http.CloseIdleConnections()
	if others > 0 {
		t.Errorf("%d of %d calls were answered otherwise, such as %d %v, %v; want 503 with Retry-After", others, calls, wrong.Status, wrong.Header, failed)
	}
	if slowest > bound {
		t.Errorf("the slowest answer took %s, want at most %s", slowest, bound)
	}
	// A request has a connection and two goroutines; those of the time that one may take are held at once.
	held := 2 * float64(rate) * bound.Seconds()
	checkFlat(t, api.ops, map[string]float64{
		goroutines: before[goroutines] + held, resident: before[resident], openFiles: before[openFiles],
	}, during)
	return 1, fmt.Sprintf("%d calls, all 503, the slowest after %d ms; served again after %d ms; goroutines %.0f, %.0f during, memory %.0f MB, %.0f during",
		calls, slowest.Milliseconds(), served.Milliseconds(), before[goroutines], during[goroutines], before[resident]/1e6, during[resident]/1e6)
}

// many lets callers ask this often each, at once.
func many(times int, ask func(c caller, n int) (fixture.Answer, error), took func(fixture.Answer, error)) {
	var asking sync.WaitGroup
	for n := range outageCallers {
		asking.Go(func() {
			c := newCaller()
			defer c.http.CloseIdleConnections()
			for i := range times {
				took(ask(c, n+i))
			}
		})
	}
	asking.Wait()
}

// probe asks again and again whether the processes are ready, as a kubelet does, until the returned function is called.
func probe(t *testing.T, processes ...*process) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var probing sync.WaitGroup
	for _, p := range processes {
		probing.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				if !p.ready() {
					t.Errorf("%s was unready", p.name)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		probing.Wait()
	})
}

// leastCalm is how many requests to the Kubernetes API a new Merchant with an ApiKey may cost the operator, all retries
// included.
const leastCalm = 40

func kubeFaults() []fault {
	return []fault{{
		"P7", "no role reaches the Kubernetes API",
		"charges and webhooks continue, only rotate gets 503; then the operator catches up without a stampede", tryWithoutKube,
	}, {
		"P2", fmt.Sprintf("no role reaches the Kubernetes API for %s", kubeOutage),
		"a key that is disabled as soon as it is back is refused after " + disabledWithin.String() + "; the operator that led ends once", tryDisabledAfterOutage,
	}}
}

// kubeOutage is long enough for whoever waits longer with each attempt to wait for half a minute, and for a leader to lose its lease.
const kubeOutage = time.Minute

// tryDisabledAfterOutage cuts two operators that elect a leader, and two replicas, off from the Kubernetes API. As soon as it is back, a key is
// disabled.
func tryDisabledAfterOutage(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	leader := electOperator(t)
	toKube, kubeconfig := s.proxy(fixture.OperatorAccount)
	standby := &process{name: "standby", ops: s.address(), toKube: toKube, env: leader.env}
	standby.args = slices.Clone(leader.args)
	standby.args[slices.Index(standby.args, "--kubeconfig")+1] = kubeconfig
	standby.args[slices.Index(standby.args, "--ops-address")+1] = standby.ops
	standby.args[slices.Index(standby.args, "--leader-identity")+1] = standby.name
	s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	t.Cleanup(standby.kill)
	standby.restart(t)

	roles := []*process{leader, standby, s.replicas[0].process, s.replicas[1].process}
	for _, role := range roles {
		role.toKube.Cut()
		t.Cleanup(role.toKube.Restore) // also if this test fails
	}
	ends := map[string]int{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < kubeOutage; <-tick.C {
		for _, role := range roles {
			if role.hasEnded() {
				ends[role.name]++
				s.must(role.launch())
			}
		}
	}
	for _, role := range roles {
		role.toKube.Restore()
	}
	began := time.Now()
	edit(s, s.Namespace, "till", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
	s.awaitRefused(key)
	took := time.Since(began)
	if took > disabledWithin {
		t.Errorf("a replica accepted the key for %s", took)
	}
	// A kubelet starts the pod of a process that ends again and again later and later, up to five minutes.
	if diff := cmp.Diff(map[string]int{leader.name: 1}, ends); diff != "" {
		t.Errorf("processes that ended (-want +got):\n%s", diff)
	}
	eventually(t, "the operator that was started without the Kubernetes API is ready", leader.ready)
	return 1, fmt.Sprintf("refused by 2 replicas after %.1f s, processes that ended: %v", took.Seconds(), ends)
}

func tryWithoutKube(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 1)
	hooks := newReceiver(t)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
	key := s.apiKey("till", "coffee")
	hooks.VerifyWith(s.delivered("coffee-webhook", "secret"))
	api := s.replicas[0]
	stopProbing := probe(t, api.process, s.dispatchers[0])
	defer stopProbing()
	rounds, objects := *intensity, 20
	charges, most := 0, 0.0
	for round := range rounds {
		roles := []*process{shared.operator, api.process, s.dispatchers[0]}
		for _, role := range roles {
			role.toKube.Cut()
			t.Cleanup(role.toKube.Restore) // also if this test fails
		}
		for range 50 {
			id := s.mustCall(http.StatusCreated, api.public, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId")
			s.mustCall(http.StatusOK, api.public, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
			charges++
		}
		refused := s.mustCall(http.StatusServiceUnavailable, api.public, http.MethodPost, rotate, key, "")
		if refused.Header.Get("Retry-After") == "" {
			t.Error("a refused rotation does not say when to try again")
		}
		eventually(t, "every webhook arrives", func() bool { return hooks.events() >= charges })
		var merchants []*v1alpha1.Merchant
		for n := range objects {
			name := fmt.Sprintf("shop-%d-%d", round, n)
			merchants = append(merchants, s.Merchant(name))
			s.must(shared.Client.Create(t.Context(), &v1alpha1.ApiKey{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
				Spec: v1alpha1.ApiKeySpec{
					MerchantRef: v1alpha1.MerchantReference{Name: name},
					Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
				},
			}))
		}
		before := shared.asked.n.Load()
		for _, role := range roles {
			role.toKube.Restore()
		}
		for _, merchant := range merchants {
			eventually(t, merchant.Name+" is Ready", func() bool {
				var key v1alpha1.ApiKey
				s.must(shared.get(t.Context(), s.Namespace, merchant.Name, merchant))
				s.must(shared.get(t.Context(), s.Namespace, merchant.Name, &key))
				return meta.IsStatusConditionTrue(merchant.Status.Conditions, v1alpha1.ReadyCondition) &&
					meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition)
			})
		}
		each := float64(shared.asked.n.Load()-before) / float64(objects)
		if most = max(most, each); each > leastCalm {
			t.Errorf("the operator asked %.0f times for each Merchant with its key", each)
		}
		client := newCaller()
		client.http.Timeout = fixture.Patience
		eventually(t, "the API rotates again", func() bool {
			got, err := client.call(api.public, http.MethodPost, rotate, key, "")
			if err == nil && got.Status == http.StatusOK {
				key = shared.secret(got.Text("fullKey"))
				return true
			}
			return false
		})
	}
	return rounds, fmt.Sprintf("%d charges and as many webhooks meanwhile, both roles ready all the time; %d Merchants with keys caught up on, %.0f requests each",
		charges, rounds*objects, most)
}
