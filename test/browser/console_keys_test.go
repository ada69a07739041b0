package browser

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// A developer's first day: sign in, find the merchant, issue a key, charge, rotate with an hour's overlap, end the old keys.
func TestADevelopersFirstDay(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.Open(shared.console + "/?q=" + url.QueryEscape(s.Namespace))
	page.Click("ul.list a")
	s.wantPath(page, s.path)

	first := s.issue(page, "till-1")
	s.wantStatus("the new key", first, http.StatusCreated)
	s.rotate(page, "till-1", prefixOf(first), "3600")
	page.Click("main form button")
	second := shownKey(page)
	if !strings.Contains(page.Text("main"), "The old key works until") {
		t.Errorf("the page does not say how long the old key works:\n%s", page.Text("main"))
	}
	s.wantStatus("the old key in its overlap", first, http.StatusCreated)
	s.wantStatus("the second key", second, http.StatusCreated)
	page.Click("main a.button")
	s.Eventually("the merchant's page shows the overlap", func() bool {
		page.Reload()
		return strings.Contains(page.Text("#keys"), "The old key ends")
	})

	s.rotate(page, "till-1", prefixOf(second), "0")
	page.Click("main form button")
	third := shownKey(page)
	s.wantStatus("the first key after the end of its overlap", first, http.StatusUnauthorized)
	s.wantStatus("the second key", second, http.StatusUnauthorized)
	s.wantStatus("the third key", third, http.StatusCreated)
	page.Click("main a.button")
	s.wantNowhere("on the merchant's page", page, first, second, third)
	if activity := page.Text("#activity"); !strings.Contains(activity, "The key was replaced by oidc:alice") {
		t.Errorf("the page does not say who rotated the key: %s", activity)
	}
}

// The form of a new key proposes what a till needs: such a key charges, and can neither see the turnover nor replace itself.
func TestNewKey_ForATill(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	for name, want := range map[string]struct {
		choice       string
		list, rotate int
	}{
		"till-1": {"", http.StatusForbidden, http.StatusForbidden}, "server": {"all", http.StatusOK, http.StatusOK},
	} {
		page.Open(shared.console + s.path + "/new-key")
		page.Fill("#name", name)
		if want.choice != "" {
			page.Do("document.querySelector('[name=permissions][value=" + want.choice + "]').focus()")
			page.Press(" ")
		}
		page.Click("main form button")
		key := shownKey(page)
		s.awaitKey(key)
		for _, route := range []struct {
			method, path string
			status       int
		}{{http.MethodGet, "/api/v1/events", want.list}, {http.MethodPost, "/api/v1/keys/rotate", want.rotate}} {
			if got, err := fixture.Call(http.DefaultClient, shared.replicas[0].Public, route.method, route.path, key, ""); err != nil || got.Status != route.status {
				t.Errorf("%s: %s %s answers %d, %v; want %d", name, route.method, route.path, got.Status, err, route.status)
			}
		}
	}
}

// The back button, a reload and the history show no key again, and make none.
func TestAKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	page := s.open(alice, browsertest.Settings{})
	page.AllowErrors("ERR_CACHE_MISS", "422", "409")
	key := s.issue(page, "till-1")
	page.Back()
	s.wantNowhere("after Back", page, key)
	page.Reload()
	s.wantNowhere("after Back and Reload", page, key)
	page.Back()
	page.Forward()
	s.wantNowhere("after Forward", page, key)

	s.rotate(page, "till-1", prefixOf(key), "0")
	page.Click("main form button")
	second := shownKey(page)
	page.Reload() // a browser asks first, and sends the form again
	s.wantNowhere("after the form was sent again", page, key, second)
	s.wantStatus("the key after the form was sent again", second, http.StatusCreated)
}

func TestTwoPeopleRotateAKey(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	pages := []*browsertest.Page{s.open(alice, browsertest.Settings{}), s.open(carol, browsertest.Settings{})}
	key := s.issue(pages[0], "till-1")
	for _, page := range pages {
		page.AllowErrors("409 (Conflict)")
		s.rotate(page, "till-1", prefixOf(key), "0")
	}
	var both sync.WaitGroup
	for _, page := range pages {
		both.Go(func() { page.Click("main form button") })
	}
	both.Wait()
	var keys, losers int
	for _, page := range pages {
		switch text := page.Text("main"); {
		case shownKey(page) != "":
			keys++
			s.wantStatus("the one new key", shownKey(page), http.StatusCreated)
		case strings.Contains(text, "Rotated meanwhile") && strings.Contains(text, "Nothing was changed now"):
			losers++
		default:
			t.Errorf("a page shows\n%s", text)
		}
	}
	if keys != 1 || losers != 1 {
		t.Errorf("%d keys, and %d were told; want one of each", keys, losers)
	}
	s.wantStatus("the old key", key, http.StatusUnauthorized)
}

func TestAPersonWithoutRightsSeesNothing(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t)
	s.open(alice, browsertest.Settings{}) // the merchant is there
	page := signIn(t, bob, browsertest.Settings{}, "/")
	page.AllowErrors("404 (Not Found)")
	if text := page.Text("main"); !strings.Contains(text, "no right to see any merchant") || !strings.Contains(text, "oidc:bob") || strings.Contains(text, "acme") {
		t.Errorf("the list shows\n%s", text)
	}
	for _, path := range []string{"", "/new-key", "/allowlist", "/webhook", "/keys/till-1/rotate", "/dead-letters/resend"} {
		if status := page.Open(shared.console + s.path + path); status != http.StatusNotFound || strings.Contains(page.Text("body"), "Acme") {
			t.Errorf("%s: %d\n%s", path, status, page.Text("body"))
		}
	}
}

// Everything but the copy button and local times works without scripts.
func TestTheConsoleWorksWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := newConsoleShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"} })
	page := s.open(alice, browsertest.Settings{NoJavaScript: true, Width: 320, Height: 640})
	page.AllowErrors("422")
	if text := s.sendTestEvent(page); !strings.Contains(text, "Send another one") || strings.Contains(text, "No test event was sent") {
		t.Errorf("the answer to a test event is\n%s", text)
	}
	page.Click("main a[href$='#webhook']")
	key := s.issue(page, "till-1")
	s.wantStatus("the new key", key, http.StatusCreated)
	s.rotate(page, "till-1", prefixOf(key), "0")
	page.Click("main form button")
	second := shownKey(page)
	s.wantStatus("the old key", key, http.StatusUnauthorized)
	s.wantStatus("the second key", second, http.StatusCreated)
	page.Click("main a.button")
	if text := page.Text("main"); !strings.Contains(text, "Times are those of UTC.") {
		t.Errorf("times without a zone:\n%s", text)
	}

	page.Do("document.querySelector('#key-till-1 summary').focus()")
	page.Press(kb.Enter)
	page.Click("a[href$='/till-1/disable']")
	page.Fill("#name", "till-2")
	page.Click("main form button")
	if got := browsertest.Eval[string](page, "document.querySelector('#name').value"); got != "till-2" {
		t.Errorf("what was typed has become %q", got)
	}
	page.Fill("#name", "till-1")
	page.Click("main form button")
	s.Eventually("the disabled key is refused", func() bool { return s.status(second) == http.StatusUnauthorized })
	s.Eventually("the page says what that means", func() bool {
		page.Open(shared.console + s.path)
		return strings.Contains(page.Text("#key-till-1"), "This key is switched off. Tills that use it are refused.")
	})
	page.Do("document.querySelector('#key-till-1 summary').focus()")
	page.Press(kb.Enter)
	page.Click("a[href$='/till-1/enable']")
	page.Click("main form button")
	s.wantPath(page, s.path)
	s.Eventually("the enabled key is accepted", func() bool { return s.status(second) == http.StatusCreated })

	page.Do("document.querySelector('.account summary').focus()")
	page.Press(kb.Enter)
	page.Click("form[action='/sign-out'] button")
	if page.Text("h1") != "Signed out" {
		t.Errorf("after signing out:\n%s", page.Text("body"))
	}
}
