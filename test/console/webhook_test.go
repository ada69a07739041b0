package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

var shownSecret = regexp.MustCompile(`<pre [^>]*data-secret[^>]*>(whsec_[^<]+)</pre>`)

// secretIn returns the signing secret that a page shows; empty: none.
func secretIn(t testing.TB, page oidctest.Page) string {
	t.Helper()
	found := shownSecret.FindStringSubmatch(page.Text)
	if found == nil {
		return ""
	}
	if page.Header.Get("Cache-Control") != "no-store" || strings.Contains(page.URL.String(), "whsec") {
		t.Errorf("the page with the secret may be stored: %v, %s", page.Header, page.URL)
	}
	return strings.NewReplacer("&#43;", "+", "&#34;", `"`).Replace(found[1])
}

// setWebhook sets the first URL, and returns the secret that the answer shows.
func (s shop) setWebhook() string {
	s.T.Helper()
	form := s.alice.Get(s.T, s.page+"/webhook")
	page := s.alice.Post(s.T, form.URL.String(), url.Values{
		"generation": {s.hidden(form, "generation")}, "url": {"https://shop.example/hooks"}, "events": {"session.completed", "no.such.event"},
	})
	secret := secretIn(s.T, page)
	if page.Status != http.StatusOK || secret == "" {
		s.T.Fatalf("setting a webhook shows no secret: %d: %s\n%s", page.Status, page.Text, &shared.Logs)
	}
	return secret
}

// wantSecretNowhere fails if a log, an Event, a Merchant, Redis or the merchant's page has one of the secrets.
func (s shop) wantSecretNowhere(secrets ...string) {
	s.T.Helper()
	seen := shared.Logs.String() + inRedis(s.T) + s.alice.Get(s.T, s.page).Text
	for _, list := range []client.ObjectList{&v1alpha1.MerchantList{}, &eventsv1.EventList{}} {
		if err := shared.Client.List(s.T.Context(), list); err != nil {
			s.T.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			s.T.Fatal(err)
		}
		seen += string(text)
	}
	for _, secret := range secrets {
		if strings.Contains(seen, secret) || strings.Contains(seen, strings.TrimPrefix(secret, "whsec_")) {
			s.T.Error("a signing secret is where it must not be")
		}
	}
}

// The first URL shows its signing secret, and a form makes one more, once: it is what the merchant's Secret has, and nowhere else.
func TestWebhook_SigningSecretIsShownOnce(t *testing.T) {
	s := newShop(t)
	first := s.setWebhook()
	s.Eventually("the shown secret signs", func() bool { return s.Delivered("acme-webhook", "secret") == first })
	form := s.alice.Get(t, s.page+"/webhook/rotate-secret")
	values := url.Values{"generation": {s.hidden(form, "generation")}}
	page := s.alice.Post(t, form.URL.String(), values)
	second := secretIn(t, page)
	if second == "" || second == first || strings.Contains(page.Text, first) || !strings.Contains(page.Text, "The old secret stops") {
		t.Errorf("the form shows no other secret: %d %s", page.Status, page.Text)
	}
	s.Eventually("the second secret signs", func() bool { return s.Delivered("acme-webhook", "secret") == second })

	again := s.alice.Post(t, form.URL.String(), values) // a reload, or the back button
	if again.Status != http.StatusUnprocessableEntity || secretIn(t, again) != "" {
		t.Errorf("the form sent again: %d", again.Status)
	}
	for _, path := range []string{"", "/webhook", "/webhook/rotate-secret", "/webhook/test"} {
		if page := s.alice.Get(t, s.page+path); strings.Contains(page.Text, "whsec_") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if now := s.Delivered("acme-webhook", "secret"); now != second {
		t.Error("the form sent again has rotated")
	}
	s.wantSecretNowhere(first, second)

	var merchant v1alpha1.Merchant
	if err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(s.merchant), &merchant); err != nil {
		t.Fatal(err)
	}
	if webhook := merchant.Spec.Webhook; webhook == nil || len(webhook.Events) != 1 || !strings.HasPrefix(webhook.RotationTrigger, "sha256:") {
		t.Errorf("the webhook is %+v", webhook)
	}
}

// Who may only look, and who has no right, gets no secret and rotates none.
func TestWebhook_SigningSecretNeedsEditWebhook(t *testing.T) {
	s := newShop(t)
	secret := s.setWebhook()
	s.Eventually("the secret signs", func() bool { return s.Delivered("acme-webhook", "secret") == secret })
	browser := oidctest.NewBrowser(t)
	identities.SignIn(t, browser, consoleURL+"/sign-in", bob)
	generation := s.hidden(s.alice.Get(t, s.page+"/webhook/rotate-secret"), "generation")
	ask := func() int {
		page := browser.Post(t, s.page+"/webhook/rotate-secret", url.Values{"generation": {generation}})
		if strings.Contains(page.Text, "whsec_") {
			t.Error("a secret is shown")
		}
		return page.Status
	}
	if status := ask(); status != http.StatusNotFound {
		t.Errorf("without a right: %d", status)
	}
	s.bind("bob", "merchant-operator-merchant-viewer")
	s.Eventually("bob may look", func() bool { return browser.Get(t, s.page).Status == http.StatusOK })
	if status := ask(); status != http.StatusForbidden {
		t.Errorf("with the right to look: %d", status)
	}
	if page := browser.Get(t, s.page).Text; strings.Contains(page, "rotate-secret") {
		t.Error("who may only look is offered a new secret")
	}
	if s.Delivered("acme-webhook", "secret") != secret {
		t.Error("the secret was rotated")
	}
}

// Of two people at once, or a double click, one sees the secret, which is the one that signs.
func TestWebhook_SigningSecretOfTwoAtOnce(t *testing.T) {
	s := newShop(t)
	first := s.setWebhook()
	form := s.alice.Get(t, s.page+"/webhook/rotate-secret")
	values := url.Values{"generation": {s.hidden(form, "generation")}}
	var both sync.WaitGroup
	answers := make([]oidctest.Page, 4) // as many as one person may wait for
	for i := range answers {
		both.Go(func() { answers[i] = s.alice.Post(t, form.URL.String(), values) })
	}
	both.Wait()
	var shown []string
	for _, page := range answers {
		switch secret := secretIn(t, page); {
		case secret != "":
			shown = append(shown, secret)
		case page.Status != http.StatusUnprocessableEntity:
			t.Errorf("%d %s", page.Status, page.Text)
		}
	}
	if len(shown) != 1 || shown[0] == first {
		t.Fatalf("%d secrets are shown", len(shown))
	}
	s.Eventually("the shown secret signs", func() bool { return s.Delivered("acme-webhook", "secret") == shown[0] })
}
