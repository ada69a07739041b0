package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// A developer shuts out their own address, after a warning, and comes back in.
func TestAnAllowlistShutsOutItsAuthor(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("422")
	key := s.issue(page, "till-1")
	save := func(allowlist string) {
		t.Helper()
		page.Click("#allowlist a.button")
		page.Fill("#allowlist", allowlist)
		page.Click("main form button")
	}
	save("203.0.113.0/24, 2001:db8::/48")
	if note := page.Text("main"); !strings.Contains(note, "Your own address 127.0.0.1 would not pass") {
		t.Errorf("there is no warning:\n%s", note)
	}
	s.wantStatus("before the warning is confirmed", key, http.StatusCreated)
	page.Fill("main form #allowlist", "127.0.0.1")
	page.Click("main form button") // it passes now, so there is nothing to confirm
	s.wantPath(page, s.path)
	save("203.0.113.0/24, 2001:db8::/48")
	page.Do("document.querySelector('[name=confirmed]').focus()")
	page.Press(" ")
	page.Click("main form button")
	s.wantPath(page, s.path)
	s.Eventually("the address is shut out", func() bool { return s.status(key) == http.StatusUnauthorized })
	if text := page.Text("#allowlist"); !strings.Contains(text, "Your own address is 127.0.0.1. It does not pass.") {
		t.Errorf("the page shows\n%s", text)
	}
	for address, want := range map[string]string{"203.0.113.9": "Requests from this address pass.", "198.51.100.7": "Requests from this address are refused.", "shop": "This is not an IP address."} {
		page.Do("document.querySelector('#allowlist details').open = true")
		page.Fill("#address", address)
		page.Click("#allowlist form button")
		if got := page.Text("#address-answer"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	save("203.0.113.0/24\n127.0.0.1")
	s.Eventually("the address is back", func() bool { return s.status(key) == http.StatusCreated })
}

// A refused form has what was typed, and its error is read with its field.
func TestRefusedFormsLoseNothing(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("422")
	s.issue(page, "till-1")
	for _, test := range []struct{ path, field, text string }{
		{"/new-key", "#name", "Till 2"},
		{"/new-key", "#name", "till-1"},
		{"/keys/till-1/disable", "#name", "till-2"},
		{"/keys/till-1/delete", "#name", "Till-1"},
		{"/allowlist", "#allowlist", "203.0.113.7/24"},
		{"/allowlist", "#allowlist", "203.0.113.7\nshop.example"},
		{"/webhook", "#url", "ftp://shop.example/hooks"},
	} {
		page.Open(shared.console + s.path + test.path)
		page.Fill(test.field, test.text)
		if status := page.Click("main form button"); status != http.StatusUnprocessableEntity {
			t.Errorf("%s with %q: %d\n%s", test.path, test.text, status, page.Text("main"))
			continue
		}
		field := "document.querySelector('main form " + test.field + "')"
		if got := browsertest.Eval[string](page, field+".value"); got != test.text {
			t.Errorf("%s: %q has become %q", test.path, test.text, got)
		}
		description := browsertest.Eval[string](page, field+".getAttribute('aria-describedby').split(' ').map(id => document.getElementById(id).innerText).join('\\n')")
		if problem := page.Text("main form [role=alert]"); problem == "" || !strings.Contains(description, problem) || !browsertest.Eval[bool](page, field+".ariaInvalid === 'true'") {
			t.Errorf("%s: the field is described by %q, and the error is %q", test.path, description, problem)
		}
		for _, violation := range page.Violations() {
			t.Errorf("%s: %s", test.path, violation)
		}
	}
}

// Neither the back button nor a reload shows it again.
func TestSigningSecret_ShownOnce(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{Width: 320, Height: 640})
	page.AllowErrors("ERR_CACHE_MISS", "422")
	page.Click("#webhook a[href$='/webhook']")
	page.Fill("#url", "https://shop.example/hooks")
	page.Click("main form button")
	first := shownKey(page)
	if !strings.HasPrefix(first, "whsec_") {
		t.Fatalf("there is no secret:\n%s", page.Text("main"))
	}
	checkConsolePage(t, page, "the page of a new signing secret")
	page.Click("main a.button")
	s.wantPath(page, s.path)
	page.Click("#webhook a[href$='/rotate-secret']")
	page.Click("main form button")
	second := shownKey(page)
	if !strings.HasPrefix(second, "whsec_") || second == first {
		t.Errorf("there is no other secret:\n%s", page.Text("main"))
	}
	page.Reload() // a browser asks first, and sends the form again
	s.wantNowhere("after the form was sent again", page, first, second)
	page.Open(shared.console + s.path)
	page.Back()
	s.wantNowhere("after Back", page, first, second)
	if s.Delivered("acme-webhook", "secret") != second {
		t.Error("the form sent again has made another secret")
	}
}

// A receiver answers 410, so its endpoint is disabled and the event a dead letter; later it is repaired.
func TestADeadLetterIsSentAgain(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	box, err := inbox.New(inbox.Options{AcceptUnverified: true, Log: t.Output(), Status: func(*http.Request) int {
		if repaired.Load() {
			return http.StatusNoContent
		}
		return http.StatusGone
	}})
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(box)
	t.Cleanup(receiver.Close)
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: receiver.URL} })
	page := s.open(alice, browsertest.Settings{})
	key := s.issue(page, "till-1") // whose event, key.rotated, is refused first
	awaitText := func(what, want string) {
		t.Helper()
		s.Eventually(what, func() bool {
			page.Open(shared.console + s.path)
			return strings.Contains(page.Text("#webhook"), want)
		})
	}
	awaitText("the webhook is disabled", "Your server answered 410 Gone, so we stopped sending today at")
	session := call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, key, `{"amountCents":1250,"orderRef":"1001"}`)
	call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions+"/"+session.Text("sessionId")+"/cancel", key, "")
	awaitText("the event is a dead letter", "session.cancelled · order 1001")

	repaired.Store(true)
	if text := s.sendTestEvent(page); !strings.Contains(text, "Your server answered 204: it accepts events.") { // although the webhook is disabled
		t.Errorf("the answer to the test event is\n%s", text)
	}
	for _, violation := range page.Violations() {
		t.Error(violation)
	}
	page.Click("main a[href$='#webhook']")
	if text := page.Text("#attention"); !strings.Contains(text, "so we stopped sending today at") || !strings.Contains(text, "2 events were not delivered") {
		t.Errorf("what needs attention is\n%s", text)
	}
	if text := page.Text("#attempts"); !strings.Contains(text, "key.rotated") || !strings.Contains(text, "Your server answered 410 Gone") {
		t.Errorf("the failed attempts are\n%s", text)
	}
	page.Click("#webhook ul.letters li a") // the newest is the first
	if text := page.Text("main"); !strings.Contains(text, "session.cancelled") || !strings.Contains(text, "Your server answered 410 Gone, so we stopped sending today at") {
		t.Errorf("the form shows\n%s", text)
	}
	if label := page.Text("main form button"); label != "Resume and send again" {
		t.Errorf("the form offers %q", label)
	}
	page.Click("main form button")
	s.wantPath(page, s.path)
	arrived := func(kind string, attempts int) func() bool {
		return func() bool {
			for _, event := range box.Events() {
				if event.Type == kind && event.Attempts == attempts {
					return true
				}
			}
			return false
		}
	}
	s.Eventually("the event arrives", arrived("session.cancelled", 1))
	awaitText("the webhook works", "Your server accepts events.")
	page.Click("#webhook ul.letters li a")
	page.Click("main form button")
	s.Eventually("the other event arrives too", arrived("key.rotated", 2))
	awaitText("nothing waits", "Waiting to be sent\n0")
	if text := page.Text("#webhook"); strings.Contains(text, "Events not delivered") {
		t.Errorf("events that were not delivered are left:\n%s", text)
	}
}
