package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// answerTestEvents plays the dispatcher: it answers each test event of the merchant, as its server would.
func (f *fixture) answerTestEvents(merchant *v1alpha1.Merchant, answer outbox.Attempt) {
	f.t.Helper()
	merchantID, target := published.ID(merchant.UID), (&published.Webhook{Webhook: *merchant.Spec.Webhook}).Target()
	go func() {
		for f.t.Context().Err() == nil {
			leased, err := f.outbox.Lease(f.t.Context(), session.MerchantBucket(merchantID), outbox.LeaseRequest{For: time.Minute, Limit: 10})
			for _, lease := range leased.Leases {
				_ = f.outbox.AnswerWebhookTest(f.t.Context(), lease.Event, target, answer)
				_ = f.outbox.Drop(f.t.Context(), lease)
			}
			if err != nil {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-f.t.Context().Done():
			}
		}
	}()
}

// A test event is sent with one click, and the next page has the answer; who may not edit the webhook may not send one.
func TestSendTestEvent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		answer outbox.Attempt
		says   []string
	}{
		{"on the same machine", outbox.Attempt{Reason: "delivered", Answer: "200", Took: 400 * time.Microsecond}, []string{"Your server answered 200", "less than 1 ms"}},
		{"delivered", outbox.Attempt{Reason: "delivered", Answer: "204", Took: 120 * time.Millisecond}, []string{"Your server answered 204: it accepts events.", "120 ms"}},
		{"refused", outbox.Attempt{Reason: "status_4xx", Answer: "404", Took: time.Second}, []string{"Your server answered 404.", "1.0 s"}},
		{"no answer", outbox.Attempt{Reason: "timeout", Answer: "timeout", Took: 15 * time.Second}, []string{"Your server did not answer in time.", "15.0 s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			m := f.merchant("acme", withWebhook)
			f.answerTestEvents(m, test.answer)
			f.grant(user(alice), []string{"get", "editwebhook"})
			f.grant(user(many), []string{"get"})
			path := f.URL + "/merchants/" + f.namespace + "/acme"
			alice, viewer := f.signedIn(alice), f.signedIn(many)
			page := alice.Post(t, path+"/webhook/test", nil)
			for _, want := range append(test.says, "https://shop.example/hooks", "evt_test_") {
				if page.Status != http.StatusOK || !strings.Contains(page.Text, want) {
					t.Errorf("%d: the answer does not say %q: %s", page.Status, want, page.Text)
				}
			}
			if strings.Contains(page.Text, "former URL") {
				t.Errorf("the answer is of the present URL: %s", page.Text)
			}
			if state := f.endpoint(m); !state.LastDelivery.IsZero() || !state.LastFailure.Time.IsZero() || state.Dead != 0 {
				t.Errorf("the test changed the health of the webhook: %+v", state)
			}
			f.wantEvents("SendTestEvent: evt_test_")
			for method, status := range map[string]int{"POST": viewer.Post(t, path+"/webhook/test", nil).Status, "GET": viewer.Get(t, path+"/webhook/test").Status} {
				if status != http.StatusForbidden {
					t.Errorf("%s of a viewer: %d", method, status)
				}
			}
			if page := viewer.Get(t, path); strings.Contains(page.Text, "/webhook/test") {
				t.Error("a viewer is offered a test event")
			}
		})
	}
}

// An answer stands beside the URL that it came from, and no other.
func TestShowTestEvent_FormerURL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.answerTestEvents(m, outbox.Attempt{Reason: "delivered", Answer: "204"})
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	browser.Post(t, path+"/webhook/test", nil)
	browser.Post(t, path+"/webhook", url.Values{"generation": {"1"}, "url": {"https://other.example/hooks"}})
	page := browser.Get(t, path+"/webhook/test").Text
	if !strings.Contains(page, "Your server answered 204") || !strings.Contains(page, "The answer is that of the former URL") || strings.Contains(page, "other.example") {
		t.Errorf("the page: %s", page)
	}
}

// Many clicks send one event in ten seconds; without an answer the page says so.
func TestSendTestEvent_Bounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.webhook.AnswerTimeout = time.Millisecond // so that all clicks are within the ten seconds
	m := f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	if page := browser.Get(t, path+"/webhook/test"); !strings.Contains(page.Text, "No test event was sent in the last day.") {
		t.Errorf("before the first: %s", page.Text)
	}
	for range 5 {
		if page := browser.Post(t, path+"/webhook/test", nil); !strings.Contains(page.Text, "There is no answer yet.") {
			t.Errorf("%d %s", page.Status, page.Text)
		}
	}
	leased, err := f.outbox.Lease(t.Context(), session.MerchantBucket(published.ID(m.UID)), outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 || !outbox.IsWebhookTest(leased.Leases[0].Event) {
		t.Errorf("%d events were sent, %v", len(leased.Leases), err)
	}
	f.merchant("globex")
	if page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/globex/webhook/test", nil); page.Status != http.StatusNotFound {
		t.Errorf("without a webhook: %d", page.Status)
	}
}

// Four pages of a person, and 64 of all, wait for an answer at once; another one is answered with what is known.
func TestShowTestEvent_WaitsAreBounded(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]func(n int) (person, tenant string){
		"of one person": func(int) (string, string) { return "oidc:alice", "acme" }, "of all": func(n int) (string, string) { return somebody(n), somebody(n) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.webhook.AnswerTimeout = time.Hour // a page that waits would end as a request that takes too long
			f.merchant("acme", withWebhook)
			f.grant(user(alice), []string{"get", "editwebhook"})
			var ends []func()
			for n := 0; ; n++ {
				end, err := f.webhook.Waits.Begin(who(n))
				if err != nil {
					break
				}
				ends = append(ends, end)
			}
			page := f.signedIn(alice).Post(t, f.URL+"/merchants/"+f.namespace+"/acme/webhook/test", nil)
			if page.Status != http.StatusOK || !strings.Contains(page.Text, "There is no answer yet.") {
				t.Errorf("%d %s", page.Status, page.Text)
			}
			for _, end := range ends {
				end()
			}
			wantIdle(t, f.webhook.Waits, maxWaits)
		})
	}
}

// The page has the last failed attempts, the newest first, and only those of the merchant.
func TestMerchantPage_FailedAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, other := f.merchant("acme", withWebhook), f.merchant("globex", withWebhook)
	for _, name := range []string{"first", "second"} {
		failure := outbox.Failure{Details: outbox.Details{Reason: "status_5xx", Answer: "503"}, Retry: time.Hour, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour, Health: "ServerError", Took: 1234 * time.Millisecond}
		if name == "second" {
			failure.Reason, failure.Answer, failure.Took = "timeout", "timeout", 15*time.Second
		}
		if _, err := f.outbox.RecordFailure(t.Context(), f.lease(m, name), failure); err != nil {
			t.Fatal(err)
		}
	}
	f.grant(user(alice), []string{"get"})
	browser := f.signedIn(alice)
	page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/acme").Text
	if !strings.Contains(page, "The last 2 failed attempts") || !strings.Contains(page, "A test event</span> · 1.2 s") {
		t.Errorf("the page: %s", page)
	}
	if newest, oldest := strings.Index(page, "Your server did not answer in time."), strings.Index(page, "Your server answered 503."); newest < 0 || oldest < newest {
		t.Errorf("the attempts are at %d and %d", newest, oldest)
	}
	if page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/"+other.Name).Text; strings.Contains(page, "failed attempt") {
		t.Errorf("of another merchant: %s", page)
	}
}

// somebody is the n-th of many people, each of a tenant of their own.
func somebody(n int) string { return "somebody-" + strconv.Itoa(n) }

// wantIdle checks that no request is in progress, by filling the room for all that there may be.
func wantIdle(t *testing.T, requests *web.Inflight, most int) {
	t.Helper()
	for n := range most {
		if _, err := requests.Begin(somebody(n), somebody(n)); err != nil {
			t.Errorf("%d of %d requests are still in progress", most-n, most)
			return
		}
	}
}
