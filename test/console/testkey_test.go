package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// A test key stays one, whatever is done to it.
func TestTheLifeOfATestKey(t *testing.T) {
	s := newShop(t)
	first := keyIn(t, s.alice.Post(t, s.page+"/new-key", url.Values{"name": {"sandbox"}, "mode": {"Test"}}))
	s.wantStatus("the test key", first, http.StatusCreated)
	var form oidctest.Page
	s.Eventually("the operator reports the key", func() bool {
		form = s.alice.Get(t, s.page+"/keys/sandbox/rotate")
		return strings.Contains(form.Text, "The current key begins with <code>mk_test_")
	})
	second := keyIn(t, s.alice.Post(t, form.URL.String(), url.Values{"generation": {s.hidden(form, "generation")}, "overlap": {"0"}}))
	if !apikey.IsTest(first) || !apikey.IsTest(second) {
		t.Errorf("issued %.8s, rotated to %.8s", first, second)
	}
	s.wantStatus("the old test key", first, http.StatusUnauthorized)
	s.wantStatus("the new test key", second, http.StatusCreated)
	if page := s.alice.Get(t, s.page); strings.Count(page.Text, `<span class="badge">Test</span>`) != 1 {
		t.Errorf("the page does not mark the test key:\n%s", page.Text)
	}
}
