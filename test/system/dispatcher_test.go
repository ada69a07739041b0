package system

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A dispatcher is killed while its request is under way. The processes here have a Redis of their own,
// so that no other dispatcher takes the event.
func TestAKilledDispatcherLosesNoEvent(t *testing.T) {
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
	await.Until(t, 2*time.Minute, "the lease ends and another dispatcher delivers", func() bool { return len(hooks.About(id)) > 1 })
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
	admission := store.Admission{
		MerchantID: merchantID,
		KeyID:      published.ID("key"),
		Digest:     apikey.DigestOf("key"),
		Live:       true,
		Limit:      ratelimit.Policy{RequestsPerSecond: 100, Burst: 100},
	}
	_, created, err := sessions.CreateSession(s.T.Context(), admission, store.NewSession{
		MerchantName: "Acme", Charge: session.Charge{AmountCents: 1250}, Lifetime: time.Hour,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	if _, _, err := sessions.Cancel(s.T.Context(), admission, created.Session.ID); err != nil {
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
	options.Lease = 18 * time.Second // the least
	options.AllowHTTP = true
	options.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
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
