package system

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A dispatcher is killed while its request is under way. The processes here have a Redis of their own,
// so that no other dispatcher takes the event.
func TestAKilledDispatcherLosesNoEvent(t *testing.T) {
	program := filepath.Join(t.TempDir(), "merchant-operator")
	if output, err := exec.Command("go", "build", "-o", program, "../..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	s := newScene(t)
	hooks := newReceiver(t)
	answer := hooks.hang(t)
	merchant := s.merchant("coffee", told(hooks))
	secret := s.signingSecret("coffee")
	redis := redistest.Start(t)
	id := s.endedSession(redis.URL(), published.ID(merchant.UID))

	first := s.dispatcherProcess(program, redis.URL())
	s.eventually("the request is under way", func() bool { return len(hooks.about(id)) == 1 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	answer()
	s.dispatcherProcess(program, redis.URL())
	await.Until(t, 2*time.Minute, "the lease ends and another dispatcher delivers", func() bool { return len(hooks.about(id)) > 1 })
	for _, attempt := range hooks.about(id) {
		s.verify(secret, attempt)
		if attempt.id != hooks.about(id)[0].id || attempt.body != hooks.about(id)[0].body {
			t.Errorf("the second attempt differs: %s", attempt.body)
		}
	}
}

// endedSession makes a session of the merchant and cancels it, as a replica of the API would.
func (s scene) endedSession(redisURL, merchantID string) (id string) {
	s.t.Helper()
	redis, err := store.Open(store.Options{URL: redisURL})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = redis.Close() }()
	admission := store.Admission{
		MerchantID: merchantID,
		KeyID:      published.ID("key"),
		Digest:     apikey.DigestOf("key"),
		Live:       true,
		Limit:      ratelimit.Policy{RequestsPerSecond: 100, Burst: 100},
	}
	_, created, err := redis.CreateSession(s.t.Context(), admission, store.NewSession{
		MerchantName: "Acme", Charge: session.Charge{AmountCents: 1250}, Lifetime: time.Hour,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := redis.Cancel(s.t.Context(), admission, created.Session.ID); err != nil {
		s.t.Fatal(err)
	}
	return created.Session.ID.String()
}

// dispatcherProcess runs until the test ends, or it is killed.
func (s scene) dispatcherProcess(program, redisURL string) *exec.Cmd {
	s.t.Helper()
	ops, err := freeAddress()
	if err != nil {
		s.t.Fatal(err)
	}
	process := exec.Command(program, "dispatcher",
		"--kubeconfig", filepath.Join(shared.dir, "merchant-operator-dispatcher.kubeconfig"),
		"--redis-url", redisURL, "--ops-address", ops, "--lease", "20s",
		"--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8")
	process.Stdout, process.Stderr = shared.logs, shared.logs
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	s.eventually("the dispatcher is ready", func() bool {
		answer, err := http.Get("http://" + ops + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return process
}
