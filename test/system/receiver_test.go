package system

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// receiver is a merchant's server. It answers its first calls with the statuses it was given, and all
// others with 200.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	statuses []int
	got      []delivery
	waiting  chan struct{} // answers wait for its end; nil: they do not
}

// delivery is one attempt as it arrived.
type delivery struct {
	id, body string
	header   http.Header
	event    struct {
		Type string `json:"type"`
		Data struct {
			SessionID string `json:"sessionId"`
			OrderRef  string `json:"orderRef"`
			KeyID     string `json:"keyId"`
		} `json:"data"`
	}
}

func newReceiver(t *testing.T, statuses ...int) *receiver {
	t.Helper()
	r := &receiver{statuses: statuses}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		got := delivery{id: request.Header.Get("Webhook-Id"), body: string(body), header: request.Header}
		if err := json.Unmarshal(body, &got.event); err != nil {
			t.Errorf("a body that is no JSON: %s", body)
		}
		status, wait := r.take(got)
		if wait != nil {
			<-wait
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(got delivery) (status int, wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, got)
	if len(r.statuses) == 0 {
		return http.StatusOK, r.waiting
	}
	status = r.statuses[0]
	r.statuses = r.statuses[1:]
	return status, r.waiting
}

// hang lets answers wait until the returned function is called.
func (r *receiver) hang(t *testing.T) (end func()) {
	t.Helper()
	r.waiting = make(chan struct{})
	end = sync.OnceFunc(func() { close(r.waiting) })
	t.Cleanup(end)
	return end
}

// about are the attempts to tell of one session, or key.
func (r *receiver) about(id string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.got), func(d delivery) bool {
		return d.event.Data.SessionID != id && d.event.Data.KeyID != id
	})
}

// types of the events about one session or key, each event once, in the order of their first arrival.
func (r *receiver) types(id string) []string {
	var types []string
	seen := map[string]bool{}
	for _, d := range r.about(id) {
		if !seen[d.id] {
			seen[d.id] = true
			types = append(types, d.event.Type)
		}
	}
	return types
}

// told is a merchant option: its events go to the receiver.
func told(to *receiver, events ...v1alpha1.WebhookEvent) func(*v1alpha1.Merchant) {
	return func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: to.URL + "/hooks", Events: events}
	}
}

// signingSecret waits for the merchant's own copy.
func (s scene) signingSecret(merchant string) string {
	s.t.Helper()
	var secret corev1.Secret
	s.eventually("the signing secret is delivered", func() bool {
		err := shared.kube.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: merchant + "-webhook"}, &secret)
		if client.IgnoreNotFound(err) != nil {
			s.t.Fatal(err)
		}
		return err == nil
	})
	return string(secret.Data["secret"])
}

// verify checks a delivery as a merchant's server would.
func (s scene) verify(secret string, d delivery) {
	s.t.Helper()
	reader, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := reader.Verify([]byte(d.body), d.header); err != nil {
		s.t.Errorf("%s is not signed with the merchant's secret: %v", d.id, err)
	}
}
