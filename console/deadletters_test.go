package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

func withWebhook(m *v1alpha1.Merchant) {
	m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
}

// lease records an event of the merchant and leases it, as a dispatcher does.
func (f *fixture) lease(m *v1alpha1.Merchant, name string) outbox.Lease {
	f.t.Helper()
	id := published.ID(m.UID)
	if _, err := f.outbox.RecordTest(f.t.Context(), feed.NewWebhookTest(id, "Acme", name, time.Now())); err != nil {
		f.t.Fatal(err)
	}
	leased, err := f.outbox.Lease(f.t.Context(), session.MerchantBucket(id), outbox.LeaseRequest{For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		f.t.Fatalf("leased %+v: %v", leased, err)
	}
	return leased.Leases[0]
}

// deadLetter makes an event of the merchant a dead letter and returns its id.
func (f *fixture) deadLetter(m *v1alpha1.Merchant, name string) string {
	f.t.Helper()
	lease := f.lease(m, name)
	if err := f.outbox.DeadLetter(f.t.Context(), lease, outbox.Details{Reason: "status_5xx", Answer: "503"}); err != nil {
		f.t.Fatal(err)
	}
	return lease.Event.ID
}

// disable lets the endpoint of the merchant answer 410.
func (f *fixture) disable(m *v1alpha1.Merchant) {
	f.t.Helper()
	failure := outbox.Failure{Details: outbox.Details{Reason: "gone", Answer: "410"}, Retry: -1, Target: outbox.Target{ID: "here"}, Gone: true, FailingLimit: time.Hour}
	if _, err := f.outbox.RecordFailure(f.t.Context(), f.lease(m, "the last one"), failure); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) endpoint(m *v1alpha1.Merchant) outbox.EndpointState {
	f.t.Helper()
	health, err := f.webhook.ReadHealth(f.t.Context(), m)
	if err != nil {
		f.t.Fatal(err)
	}
	return health.EndpointState
}

func (f *fixture) wantEvents(notes ...string) {
	f.t.Helper()
	var events eventsv1.EventList
	if err := cluster.Client.List(f.t.Context(), &events, client.InNamespace(f.namespace)); err != nil {
		f.t.Fatal(err)
	}
	var got []string
	for _, event := range events.Items {
		got = append(got, event.Note)
	}
	for _, note := range notes {
		if !strings.Contains(strings.Join(got, "\n"), note) {
			f.t.Errorf("there is no Event %q: %q", note, got)
		}
	}
	if len(got) != len(notes) {
		f.t.Errorf("%d Events, want %d: %q", len(got), len(notes), got)
	}
}

func TestResendDeadLetters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, globex := f.merchant("acme", withWebhook), f.merchant("globex", withWebhook)
	first, second, third := f.deadLetter(acme, "first"), f.deadLetter(acme, "second"), f.deadLetter(acme, "third")
	foreign := f.deadLetter(globex, "foreign")
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser, page := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"

	text := browser.Get(t, page).Text
	for _, want := range []string{"3 events were not delivered", "webhook.test", "Your server answered 503.", "not tried", "dead-letters/resend?event=" + first, "Send all again"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, foreign) {
		t.Error("the page shows another merchant's dead letter")
	}
	for _, id := range []string{foreign, "evt_of_nobody", "<b>"} {
		for status, answer := range map[string]int{
			"form": browser.Get(t, page+"/dead-letters/resend?event="+url.QueryEscape(id)).Status,
			"post": browser.Post(t, page+"/dead-letters/resend", url.Values{"event": {id}}).Status,
		} {
			if answer != http.StatusNotFound {
				t.Errorf("%s with %s: %d", status, id, answer)
			}
		}
	}
	if state := f.endpoint(globex); state.Dead != 1 || state.Pending != 0 {
		t.Errorf("of the other merchant: %+v", state)
	}

	if form := browser.Get(t, page+"/dead-letters/resend?event="+first); !strings.Contains(form.Text, first) || !strings.Contains(form.Text, "Send an event again") {
		t.Errorf("the form: %s", form.Text)
	}
	values := url.Values{"event": {first}}
	if answer := browser.Post(t, page+"/dead-letters/resend", values); answer.Status != http.StatusOK || answer.URL.Path != "/merchants/"+f.namespace+"/acme" {
		t.Errorf("one: %d %s", answer.Status, answer.URL)
	}
	if answer := browser.Post(t, page+"/dead-letters/resend", values); answer.Status != http.StatusNotFound || !strings.Contains(answer.Text, "already") {
		t.Errorf("the same form again: %d %s", answer.Status, answer.Text)
	}
	if state := f.endpoint(acme); state.Dead != 2 || state.Pending != 1 {
		t.Errorf("after one: %+v", state)
	}
	if form := browser.Get(t, page+"/dead-letters/resend"); !strings.Contains(form.Text, "Send 2 events again") {
		t.Errorf("the form of all: %s", form.Text)
	}
	browser.Post(t, page+"/dead-letters/resend", nil)
	if state := f.endpoint(acme); state.Dead != 0 || state.Pending != 3 {
		t.Errorf("after all: %+v; first %s, second %s, third %s", state, first, second, third)
	}
	f.wantEvents("ResendDeadLetters: dead letter "+feed.HashID(first)+" by oidc:alice (generation 1)", "ResendDeadLetters: 2 dead letters by oidc:alice (generation 1)")
}

// Events to a disabled endpoint would be dead letters again at once. Git does not matter: the spec stays as it is.
func TestResendDeadLetters_WebhookDisabled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", withWebhook, func(m *v1alpha1.Merchant) {
		m.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "shops"}
	})
	first := f.deadLetter(acme, "first")
	f.disable(acme)
	f.grant(user(alice), []string{"get", "editwebhook"})
	browser, page := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	if text := browser.Get(t, page).Text; !strings.Contains(text, "Your server answered 410 Gone, so we stopped sending ") || !strings.Contains(text, "Resume delivery") {
		t.Errorf("the page: %s", text)
	}
	answer := browser.Post(t, page+"/dead-letters/resend", url.Values{"event": {first}}) // from a tab that was open before
	if answer.Status != http.StatusConflict || !strings.Contains(answer.Text, "Nothing was sent") || !strings.Contains(answer.Text, "Resume and send again") || !strings.Contains(answer.Text, first) {
		t.Errorf("%d %s", answer.Status, answer.Text)
	}
	if state := f.endpoint(acme); state.Dead != 2 || !state.Disabled() {
		t.Errorf("something was sent: %+v", state)
	}
	browser.Post(t, page+"/dead-letters/resend", url.Values{"event": {first}, "resume": {"yes"}})
	if state := f.endpoint(acme); state.Dead != 1 || state.Pending != 1 || state.Disabled() {
		t.Errorf("resumed: %+v", state)
	}
	if text := browser.Get(t, page).Text; !strings.Contains(text, "Not tried yet") || strings.Contains(text, "Resume delivery") {
		t.Errorf("the page afterwards: %s", text)
	}
	f.wantEvents("ResendDeadLetters: dead letter " + feed.HashID(first))

	f.disable(acme)
	browser.Post(t, page+"/webhook/resume", nil)
	if f.endpoint(acme).Disabled() {
		t.Error("the webhook is not resumed")
	}
}

// Events are sent again only with the right, and to a webhook.
func TestResendDeadLetters_NoRightOrNoWebhook(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	id := f.deadLetter(acme, "first")
	f.grant(user(many), []string{"get"})
	viewer, page := f.signedIn(many), f.URL+"/merchants/"+f.namespace+"/acme"
	if text := viewer.Get(t, page).Text; !strings.Contains(text, "Your server answered 503.") || strings.Contains(text, "dead-letters/resend") {
		t.Errorf("a viewer sees %s", text)
	}
	for _, path := range []string{"/dead-letters/resend", "/webhook/resume"} {
		if answer := viewer.Post(t, page+path, url.Values{"event": {id}}); answer.Status != http.StatusForbidden {
			t.Errorf("a viewer posts to %s: %d", path, answer.Status)
		}
	}
	f.grant(user(alice), []string{"get", "editwebhook"})
	answer := f.signedIn(alice).Post(t, page+"/dead-letters/resend", url.Values{"event": {id}})
	if answer.Status != http.StatusConflict || !strings.Contains(answer.Text, "has no webhook") {
		t.Errorf("without a webhook: %d %s", answer.Status, answer.Text)
	}
	if state := f.endpoint(acme); state.Dead != 1 || state.Pending != 0 {
		t.Errorf("something was sent: %+v", state)
	}
}

// An order number is of a payment, also in what the shop's server did not take.
func TestDeadLetters_OrdersNeedViewPayments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", withWebhook)
	id := f.charge(acme, "", session.Charge{AmountCents: 100, OrderRef: "order-77"})
	f.settle(id, session.Payment{Ref: "bank-1", Outcome: session.Completed, AmountCents: 100})
	leased, err := f.outbox.Lease(t.Context(), id.Bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %+v: %v", leased, err)
	}
	if err := f.outbox.DeadLetter(t.Context(), leased.Leases[0], outbox.Details{Reason: "status_5xx", Answer: "503"}); err != nil {
		t.Fatal(err)
	}
	f.grant(user(many), []string{"get", "editwebhook"})
	f.grant(user(alice), []string{"get", "editwebhook", "viewpayments"})
	for who, sees := range map[*oidctest.User]bool{&many: false, &alice: true} {
		for _, path := range []string{"", "/dead-letters/resend"} {
			text := f.signedIn(*who).Get(t, f.URL+"/merchants/"+f.namespace+"/acme"+path).Text
			if !strings.Contains(text, "session.completed") || strings.Contains(text, "order-77") != sees {
				t.Errorf("with viewpayments %t, %q shows %s", sees, path, text)
			}
		}
	}
}

// The page lists the newest; one form sends no more than its limit.
func TestDeadLetters_Many(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", withWebhook)
	for i := range webhook.ShownDeadLetters + 2 {
		f.deadLetter(acme, strconv.Itoa(i))
	}
	f.grant(user(alice), []string{"get"})
	text := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/acme").Text
	if got := strings.Count(text, "webhook.test"); got != webhook.ShownDeadLetters || !strings.Contains(text, "12 events were not delivered") || !strings.Contains(text, "These are the newest") {
		t.Errorf("%d are listed: %s", got, text)
	}
}
