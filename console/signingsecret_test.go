package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/rotation"
)

// signingAPI plays the internal port: it answers each request for a signing secret, and keeps what was asked.
type signingAPI struct {
	mu     sync.Mutex
	asked  []rotation.SigningRequest
	answer func(n int) (status int, body string)
}

func (a *signingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request rotation.SigningRequest
	_ = json.NewDecoder(r.Body).Decode(&request)
	a.mu.Lock()
	a.asked = append(a.asked, request)
	status, body := a.answer(len(a.asked))
	a.mu.Unlock()
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func (f *fixture) signingAPI(answer func(n int) (int, string)) *signingAPI {
	f.t.Helper()
	api := &signingAPI{answer: answer}
	server := httptest.NewServer(api)
	f.t.Cleanup(server.Close)
	f.issuer = &issuer{server.Client(), server.URL}
	return api
}

// A secret that the operator has not made yet is awaited; one that cannot be shown is said to be unknown to everybody.
func TestRotateSigningSecret(t *testing.T) {
	const secret = `{"secret":"whsec_VGhpc0lzQVNhbXBsZQ=="}`
	for _, test := range []struct {
		name   string
		answer func(n int) (int, string)
		status int
		says   string
	}{
		{"at once", func(int) (int, string) { return http.StatusOK, secret }, http.StatusOK, "whsec_VGhpc0lzQVNhbXBsZQ=="},
		{"made later", func(n int) (int, string) {
			if n < 3 {
				return http.StatusNotFound, ""
			}
			return http.StatusOK, secret
		}, http.StatusOK, "whsec_VGhpc0lzQVNhbXBsZQ=="},
		{"not made in time", func(int) (int, string) { return http.StatusNotFound, "" }, http.StatusServiceUnavailable, "nobody has seen it"},
		{"refused", func(int) (int, string) { return http.StatusForbidden, "" }, http.StatusServiceUnavailable, "nobody has seen it"},
		{"an answer that is none", func(int) (int, string) { return http.StatusOK, `{"secret":"` }, http.StatusServiceUnavailable, "nobody has seen it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			if test.status != http.StatusOK {
				f.answerTimeout = time.Second
			}
			m := f.merchant("acme", withWebhook)
			f.grant(user(alice), []string{"get", "editwebhook"})
			api := f.signingAPI(test.answer)
			page := f.signedIn(alice).Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
			if page.Status != test.status || !strings.Contains(page.Text, test.says) {
				t.Errorf("%d %s", page.Status, page.Text)
			}
			changed := f.stored(m)
			for _, asked := range api.asked {
				if asked.UID != m.UID || asked.Actor != "oidc:alice" || rotation.SigningTrigger(asked.Nonce) != changed.Spec.Webhook.RotationTrigger {
					t.Errorf("asked for %+v with the trigger %s", asked, changed.Spec.Webhook.RotationTrigger)
				}
				if log := f.log.String(); strings.Contains(log, asked.Nonce) || strings.Contains(log, "whsec_") {
					t.Error("a nonce or secret is in the log")
				}
			}
		})
	}
}

// Who waits for too much already is refused before anything has changed.
func TestRotateSigningSecret_TooManyWait(t *testing.T) {
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	for range maxPersonWaits {
		if _, err := f.waits.begin("oidc:alice"); err != nil {
			t.Fatal(err)
		}
	}
	page := f.signedIn(alice).Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
	if page.Status != http.StatusTooManyRequests || !strings.Contains(page.Text, "Too many at once") {
		t.Errorf("%d %s", page.Status, page.Text)
	}
	if now := f.stored(m); now.Generation != m.Generation {
		t.Errorf("the Merchant has become %+v", now.Spec)
	}
}
