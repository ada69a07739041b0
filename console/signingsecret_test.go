package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// signingAPI plays the internal port: it answers each request for a signing secret, and keeps what was asked. The first request comes before the
// change. A 404 without a body is that of the route, any other that of a server without it.
type signingAPI struct {
	mu     sync.Mutex
	asked  []rotation.SigningRequest
	before func() (status int, body string)
	after  func(n int) (status int, body string) // n is 1 for the first request after the change
}

func (a *signingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request rotation.SigningRequest
	_ = json.NewDecoder(r.Body).Decode(&request)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, request)
	var status int
	var body string
	if n := len(a.asked); n == 1 {
		status, body = a.before()
	} else {
		status, body = a.after(n - 1)
	}
	if status == http.StatusNotFound && body == "" {
		w.Header().Set("Error-Code", "signing_secret_not_found")
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func (a *signingAPI) requests() []rotation.SigningRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

func (f *fixture) signingAPI(after func(n int) (int, string)) *signingAPI {
	f.t.Helper()
	api := &signingAPI{before: notMade, after: after}
	f.serveInternal(api)
	return api
}

func notMade() (int, string) { return http.StatusNotFound, "" }

// A secret that the operator has not made yet, or that the API cannot read at the moment, is asked for again. Of one that cannot be shown the page
// does not say that it was made, nor that another one would be shown at once.
func TestRotateSigningSecret(t *testing.T) {
	t.Parallel()
	const secret, shown = `{"secret":"whsec_VGhpc0lzQVNhbXBsZQ=="}`, "whsec_VGhpc0lzQVNhbXBsZQ=="
	const notInTime, refused = "could not be shown in time", "make another one after that is fixed"
	then := func(status int, body string) func(int) (int, string) { // twice, and then the secret
		return func(n int) (int, string) {
			if n < 3 {
				return status, body
			}
			return http.StatusOK, secret
		}
	}
	always := func(status int, body string) func(int) (int, string) {
		return func(int) (int, string) { return status, body }
	}
	for _, test := range []struct {
		name   string
		after  func(n int) (int, string)
		status int
		says   string
		asked  int // after the change; 0: any
	}{
		{"at once", always(http.StatusOK, secret), http.StatusOK, shown, 1},
		{"made later", then(http.StatusNotFound, ""), http.StatusOK, shown, 3},
		{"an older API in between", then(http.StatusNotFound, "{}"), http.StatusOK, shown, 3},
		{"unavailable in between", then(http.StatusServiceUnavailable, ""), http.StatusOK, shown, 3},
		{"an error in between", then(http.StatusInternalServerError, ""), http.StatusOK, shown, 3},
		{"too many requests in between", then(http.StatusTooManyRequests, ""), http.StatusOK, shown, 3},
		{"half an answer in between", then(http.StatusOK, `{"secret":"`), http.StatusOK, shown, 3},
		{"not made in time", always(http.StatusNotFound, ""), http.StatusServiceUnavailable, notInTime, 0},
		{"unavailable", always(http.StatusServiceUnavailable, ""), http.StatusServiceUnavailable, notInTime, 0},
		{"invalid", always(http.StatusBadRequest, ""), http.StatusServiceUnavailable, refused, 1},
		{"no account", always(http.StatusUnauthorized, ""), http.StatusServiceUnavailable, refused, 1},
		{"no right", always(http.StatusForbidden, ""), http.StatusServiceUnavailable, refused, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if test.says == notInTime {
				f.webhook.AnswerTimeout = 100 * time.Millisecond
			}
			m := f.merchant("acme", withWebhook)
			f.grant(user(alice), []string{"get", "editwebhook"})
			api := f.signingAPI(test.after)
			page := f.signedIn(alice).Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
			if page.Status != test.status || !strings.Contains(page.Text, test.says) {
				t.Errorf("%d %s", page.Status, page.Text)
			}
			if strings.Contains(page.Text, "was made") {
				t.Errorf("nobody knows that a secret was made: %s", page.Text)
			}
			changed, requests := f.stored(m), api.requests()
			if requests[0].Nonce == "" || rotation.SigningTrigger(requests[0].Nonce) == changed.Spec.Webhook.RotationTrigger {
				t.Error("asked with the nonce of the change before it")
			}
			if after := len(requests) - 1; test.asked != 0 && after != test.asked {
				t.Errorf("asked %d times, want %d", after, test.asked)
			}
			for i, asked := range requests {
				if asked.UID != m.UID || asked.Actor != "oidc:alice" || i > 0 && rotation.SigningTrigger(asked.Nonce) != changed.Spec.Webhook.RotationTrigger {
					t.Errorf("asked for %+v with the trigger %s", asked, changed.Spec.Webhook.RotationTrigger)
				}
				if log := f.log.String(); strings.Contains(log, asked.Nonce) || strings.Contains(log, "whsec_") {
					t.Error("a nonce or secret is in the log")
				}
			}
		})
	}
}

// A change whose answer was lost may have been made, and then its secret is shown all the same: nobody could ask for it again.
func TestRotateSigningSecret_AnswerLost(t *testing.T) {
	t.Parallel()
	broken := func(*http.Response) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	again := func(done *http.Response) (*http.Response, error) { // client-go sends it again after that
		answer := httptest.NewRecorder()
		answer.Header().Set("Retry-After", "0")
		answer.WriteHeader(http.StatusServiceUnavailable)
		lost := answer.Result()
		lost.Request = done.Request
		return lost, nil
	}
	hang := func(done *http.Response) (*http.Response, error) {
		<-done.Request.Context().Done()
		return nil, done.Request.Context().Err()
	}
	for _, test := range []struct {
		name  string
		lose  func(*http.Response) (*http.Response, error)
		read  int  // status of the answer to the read that follows; 0: that of the API server
		fails bool // the first attempt, for the log
	}{
		{"connection broken", broken, 0, true},
		{"hang", hang, 0, true},
		{"sent twice", again, 0, false},
		{"sent twice, read refused", again, http.StatusForbidden, true},
		{"sent twice, read not found", again, http.StatusNotFound, true},
		{"sent twice, too many reads", again, http.StatusTooManyRequests, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			m := f.merchant("acme", withWebhook)
			f.grant(user(alice), []string{"get", "editwebhook"})
			browser := f.signedIn(alice)
			config := f.account()
			var lost, read atomic.Bool
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					switch {
					case r.Method == http.MethodPatch && lost.CompareAndSwap(false, true):
						done, err := next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context()))) // however slow the API server is
						if err != nil {
							return nil, err
						}
						_ = done.Body.Close()
						done.Request = r
						return test.lose(done)
					case r.Method == http.MethodGet && test.read != 0 && lost.Load() && read.CompareAndSwap(false, true):
						answer := httptest.NewRecorder()
						answer.WriteHeader(test.read)
						return answer.Result(), nil
					}
					return next.RoundTrip(r)
				})
			})
			kube, err := client.New(config, client.Options{Scheme: f.objects.Scheme()})
			if err != nil {
				t.Fatal(err)
			}
			f.objects.Client = kube
			api := f.signingAPI(func(int) (int, string) { return http.StatusOK, `{"secret":"whsec_VGhpc0lzQVNhbXBsZQ=="}` })
			page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
			if page.Status != http.StatusOK || !strings.Contains(page.Text, "whsec_VGhpc0lzQVNhbXBsZQ==") {
				t.Errorf("%d %s", page.Status, page.Text)
			}
			requests, changed := api.requests(), f.stored(m)
			if trigger := rotation.SigningTrigger(requests[len(requests)-1].Nonce); trigger != changed.Spec.Webhook.RotationTrigger {
				t.Errorf("asked with another nonce than that of the change: %s, %s", trigger, changed.Spec.Webhook.RotationTrigger)
			}
			f.wantEvents(" by oidc:alice (generation 2)")
			if failed := strings.Contains(f.log.String(), "action failed"); failed != test.fails {
				t.Errorf("the log: %s", &f.log)
			}
		})
	}
}

// A connection that breaks is no answer.
func TestRotateSigningSecret_ConnectionBreaks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	f.signingAPI(func(n int) (int, string) {
		if n == 1 {
			panic(http.ErrAbortHandler)
		}
		return http.StatusOK, `{"secret":"whsec_VGhpc0lzQVNhbXBsZQ=="}`
	})
	page := f.signedIn(alice).Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
	if page.Status != http.StatusOK || !strings.Contains(page.Text, "whsec_VGhpc0lzQVNhbXBsZQ==") {
		t.Errorf("%d %s", page.Status, page.Text)
	}
}

// Nothing is changed while the API could not show the secret, and the page says so. What was typed is not lost.
func TestRotateSigningSecret_NobodyCouldShowIt(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) func() (int, string) {
		return func() (int, string) { return status, body }
	}
	for name, before := range map[string]func() (int, string){
		"unavailable":                answer(http.StatusServiceUnavailable, ""),
		"no right":                   answer(http.StatusForbidden, ""),
		"no account":                 answer(http.StatusUnauthorized, ""),
		"an API without the route":   answer(http.StatusNotFound, "{}"),
		"a secret for a new nonce":   answer(http.StatusOK, `{"secret":"whsec_VGhpc0lzQVNhbXBsZQ=="}`),
		"half an answer":             answer(http.StatusOK, `{"secret":"`),
		"a connection that is reset": func() (int, string) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			merchants := []*v1alpha1.Merchant{f.merchant("acme", withWebhook), f.merchant("first")}
			f.grant(user(alice), []string{"get", "editwebhook"})
			alice := f.signedIn(alice)
			for i, form := range []struct {
				path   string
				fields url.Values
			}{
				{"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}}},
				{"/first/webhook", url.Values{"generation": {"1"}, "url": {"https://shop.example/typed"}}},
			} {
				f.signingAPI(nil).before = before
				page := alice.Post(t, f.URL+"/merchants/"+f.namespace+form.path, form.fields)
				if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "Nothing was changed") || !strings.Contains(page.Text, form.fields.Get("url")) {
					t.Errorf("%s: %d %s", form.path, page.Status, page.Text)
				}
				if now := f.stored(merchants[i]); now.Generation != merchants[i].Generation {
					t.Errorf("%s: the Merchant has become %+v", form.path, now.Spec)
				}
			}
		})
	}
}

// Before the press, and after one whose secret nobody has seen, the page says how many are safe: one more ends the secret in the shop's server.
func TestRotateSigningSecret_SaysHowManyAreSafe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	f.webhook.AnswerTimeout = 100 * time.Millisecond
	f.signingAPI(func(int) (int, string) { return http.StatusNotFound, "" })
	path, browser := f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", f.signedIn(alice)
	safe := fmt.Sprintf("more than %d in 24 hours", published.MaxRetired)
	if page := browser.Get(t, path); !strings.Contains(page.Text, safe) {
		t.Errorf("%d %s", page.Status, page.Text)
	}
	if page := browser.Post(t, path, url.Values{"generation": {"1"}}); !strings.Contains(page.Text, safe) {
		t.Errorf("%d %s", page.Status, page.Text)
	}
}

// While pages of many other tenants wait, a new signing secret gets the next place.
func TestRotateSigningSecret_WaitsForAPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser := f.signedIn(alice)
	var ends []func()
	for n := range maxWaits {
		end, err := f.webhook.Waits.Begin(somebody(n), somebody(n))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	time.AfterFunc(200*time.Millisecond, ends[0]) // mostly after the request has begun to wait
	page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/rotate-secret", url.Values{"generation": {"1"}})
	if page.Status == http.StatusTooManyRequests {
		t.Errorf("%d %s", page.Status, page.Text)
	}
	for _, end := range ends[1:] {
		end()
	}
	wantIdle(t, f.webhook.Waits, maxWaits)
}

// Who waits for too much already is refused before anything has changed.
func TestRotateSigningSecret_TooManyWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	for range maxPersonWaits {
		if _, err := f.webhook.Waits.Begin("oidc:alice", f.namespace); err != nil {
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
