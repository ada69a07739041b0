package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/deadletters"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// endedSession creates and cancels a session, which is an event.
func endedSession(t *testing.T, key string) {
	t.Helper()
	created, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":100}`)
	if err != nil || created.Status != http.StatusCreated {
		t.Fatalf("%d %s, %v", created.Status, created.Raw, err)
	}
	cancelled, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Sessions+"/"+created.Text("sessionId")+"/cancel", key, "")
	if err != nil || cancelled.Status != http.StatusOK {
		t.Fatalf("%d %s, %v", cancelled.Status, cancelled.Raw, err)
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	var repaired atomic.Bool
	var received atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !repaired.Load() {
			w.WriteHeader(http.StatusGone)
			return
		}
		received.Add(1)
	}))
	t.Cleanup(receiver.Close)
	run(t, n.Namespace, "webhooks status").want(t, terminal.ExitDone, "No webhooks.")
	n.Merchant("acme", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL} })
	_, key := n.ApiKey("till", "acme")
	eventuallyMe(t, n, key, http.StatusOK)
	run(t, n.Namespace, "webhooks status acme").want(t, terminal.ExitDone, "no event yet")
	redis := " --redis-url=" + installation.Redis.URL()
	run(t, n.Namespace, "webhooks dead-letters --merchant acme"+redis).want(t, terminal.ExitDone, "No dead letters.")

	run(t, n.Namespace, "webhooks dead-letters --merchant acne"+redis).want(t, terminal.ExitError, "there is no Merchant acne", "Do you mean acme?")
	run(t, n.Namespace, "webhooks resend --merchant acne"+redis).want(t, terminal.ExitError, "there is no Merchant acne", "Do you mean acme?")

	endedSession(t, key)
	n.Eventually("the webhook is disabled", func() bool {
		got := run(t, n.Namespace, "webhooks status acme")
		return got.code == terminal.ExitNegative && strings.Contains(got.out, "EndpointGone")
	})
	n.Eventually("the merchant's status says so", func() bool {
		return strings.Contains(run(t, n.Namespace, "status acme").out, "webhooks dead-letters --merchant "+n.Namespace+"/acme")
	})
	run(t, n.Namespace, "webhooks dead-letters --merchant acme"+redis).want(t, terminal.ExitDone, "FAILED AT", "session.cancelled", n.Namespace+"/acme", "410", "gone")
	var entries []deadletters.Entry
	if err := json.Unmarshal([]byte(run(t, n.Namespace, "webhooks dead-letters --merchant acme --redis-url=env -o json").want(t, terminal.ExitDone).out), &entries); err != nil || len(entries) != 1 {
		t.Fatalf("-o json: %+v, %v", entries, err)
	}
	if got := run(t, n.Namespace, "webhooks dead-letters --merchant acme --redis-url=env -o name").want(t, terminal.ExitDone).out; got != entries[0].ID+"\n" {
		t.Errorf("-o name: %s", got)
	}
	run(t, n.Namespace, "webhooks resend --merchant acme --redis-url=env").want(t, terminal.ExitError, "queued for delivery: 0", "add --resume")
	repaired.Store(true)
	run(t, n.Namespace, "webhooks resend "+entries[0].ID+" --resume --redis-url=env").want(t, terminal.ExitDone, "queued for delivery: 1")
	n.Eventually("the event has arrived", func() bool { return received.Load() > 0 })
	n.Eventually("the webhook is healthy", func() bool { return run(t, n.Namespace, "webhooks status acme").code == terminal.ExitDone })
	n.Eventually("the status has no dead letter any more", func() bool {
		return strings.Contains(run(t, n.Namespace, "status acme").out, "0 dead letters")
	})

	run(t, n.Namespace, "webhooks resend").want(t, terminal.ExitUsage, "select dead letters by event ids, by --merchant, or with --all")
	run(t, n.Namespace, "webhooks resend ps_1").want(t, terminal.ExitUsage, "is not the id of an event", "webhooks dead-letters")
	run(t, n.Namespace, "webhooks dead-letters --limit -1").want(t, terminal.ExitUsage, "--limit must be at least 1")
	run(t, n.Namespace, "webhooks dead-letters --merchant Acme").want(t, terminal.ExitUsage, "--merchant must be NAMESPACE/NAME")
}

// A pod runs only in a real cluster; which one is asked is decided here.
func TestDispatcherPod(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	namespace := kubetest.Namespace(t, installation.Environment.Config, "system-")
	list := "webhooks dead-letters --system-namespace " + namespace
	run(t, n.Namespace, list).want(t, terminal.ExitError, "no pod of the dispatcher runs in namespace "+namespace, "--redis-url")
	for name, phase := range map[string]corev1.PodPhase{"waits": corev1.PodPending, "runs": corev1.PodRunning} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{cluster.ProductLabel: cluster.Product, cluster.RoleLabel: "dispatcher"}},
			Spec:       corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "dispatcher", Image: "merchant-operator"}}},
		}
		if err := installation.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = phase
		if err := installation.Client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	run(t, n.Namespace, list).want(t, terminal.ExitError, "exec into pod "+namespace+"/runs")
}
