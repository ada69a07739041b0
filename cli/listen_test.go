package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/listentest"
)

// A developer without a tunnel gets what the merchant's webhook gets, byte for byte, also after the key was rotated.
func TestListen_RealFeed(t *testing.T) {
	deployed, local := listentest.NewHook(t), listentest.NewHook(t)
	s := newSale(t, func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: deployed.URL, Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted, v1alpha1.EventSessionFailed}}
	})
	state := t.TempDir()
	l := listentest.Start(t, execute, state, "listen", "acme", "--kubeconfig", admin, "-n", s.Namespace, "--forward-to", local.URL)
	l.Says("Listening to live events of Acme acme")
	for _, order := range []string{"<1> & co", "<2>"} {
		s.settle(s.create(order, 1250), "COMPLETED", 1250)
	}
	l.Prints("1", "2")
	run(t, s.Namespace, "keys rotate till --overlap 0s").want(t, terminal.ExitDone)
	s.key = s.Delivered("till-key", "apiKey")
	eventuallyMe(t, s.tenant, s.key, http.StatusOK)
	s.settle(s.create("<3>", 99), "FAILED", 99)
	l.Prints("1", "2", "3")
	l.Interrupt()
	s.settle(s.create("<4>", 1250), "COMPLETED", 1250)
	again := listentest.Start(t, execute, state, "listen", "acme", "--kubeconfig", admin, "-n", s.Namespace, "--forward-to", local.URL)
	again.Prints("4")
	again.Interrupt()

	s.Eventually("the webhook has all", func() bool { return len(deployed.Received()) >= 4 })
	want := map[string]string{}
	for _, request := range deployed.Received() {
		want[request.ID] = request.Body
	}
	got := map[string]string{}
	for _, request := range local.Received() {
		if strings.Contains(request.Body, `"type":"key.rotated"`) {
			continue // the feed has all types, whatever the webhook gets
		}
		if _, twice := got[request.ID]; twice {
			t.Errorf("%s came twice", request.ID)
		}
		got[request.ID] = request.Body
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-webhook +listen):\n%s", diff)
	}
}
