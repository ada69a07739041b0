package console

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A merchant's first day: issue a key, charge, rotate with an overlap, rotate at once, disable, delete.
func TestKey_Life(t *testing.T) {
	s := newShop(t)
	first := s.issue("till-1")
	s.wantStatus("the new key", first, http.StatusCreated)

	rotate := func(overlap string) string {
		t.Helper()
		form := s.alice.Get(t, s.page+"/keys/till-1/rotate")
		s.Eventually("the operator reports the generation", func() bool {
			form = s.alice.Get(t, s.page+"/keys/till-1/rotate")
			return strings.Contains(form.Text, "The current key begins with")
		})
		answer := s.alice.Post(t, form.URL.String(), url.Values{"generation": {s.hidden(form, "generation")}, "overlap": {overlap}})
		if answer.Status == http.StatusConflict { // the status is behind
			return ""
		}
		return keyIn(t, answer)
	}
	var second, third string
	s.Eventually("the key is rotated with an overlap", func() bool { second = rotate("3600"); return second != "" })
	s.wantStatus("the old key in its overlap", first, http.StatusCreated)
	s.wantStatus("the second key", second, http.StatusCreated)
	s.Eventually("the page shows the overlap", func() bool { return strings.Contains(s.alice.Get(t, s.page).Text, "Old key works until") })
	s.Eventually("the key is rotated at once", func() bool { third = rotate("0"); return third != "" })
	s.wantStatus("the first key", first, http.StatusUnauthorized)
	s.wantStatus("the second key", second, http.StatusUnauthorized)
	s.wantStatus("the third key", third, http.StatusCreated)

	for _, test := range []struct{ action, name string }{{"disable", "till-2"}, {"delete", "Till-1"}, {"delete", ""}} {
		if page := s.alice.Post(t, s.page+"/keys/till-1/"+test.action, url.Values{"name": {test.name}}); page.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s with the name %q: %d", test.action, test.name, page.Status)
		}
	}
	s.wantStatus("the key after wrong names", third, http.StatusCreated)
	s.alice.Post(t, s.page+"/keys/till-1/disable", url.Values{"name": {"till-1"}})
	s.Eventually("the disabled key is refused", func() bool { return s.status(third) == http.StatusUnauthorized })
	if page := s.alice.Post(t, s.page+"/keys/till-1/delete", url.Values{"name": {"till-1"}}); page.Status != http.StatusOK || page.URL.Path != "/merchants/"+s.Namespace+"/acme" {
		t.Errorf("delete leads to %s with %d", page.URL, page.Status)
	}
	s.Eventually("the key is gone", func() bool { return !strings.Contains(s.alice.Get(t, s.page).Text, `id="key-till-1"`) })

	s.nowhere(first, second, third)
}

// A key that is to be disabled or deleted is accepted until the operator has published that, however late. Until then no page says that tills are
// refused, the answer to the form included; as soon as it is published, the page says so.
func TestKey_NotInForce(t *testing.T) {
	for _, operatorIs := range []struct {
		name       string
		away, back func() error
	}{
		{"not running", func() error { return shared.Stop("operator") }, startOperator},
		{"frozen", func() error { operator.FreezeWatches(); return nil }, func() error { operator.ThawWatches(); return nil }},
	} {
		for _, test := range []struct{ action, waits, refused string }{
			{"disable", "This key is to be switched off. Until then tills that use it are still accepted.", "This key is switched off. Tills that use it are refused."},
			{"delete", "This key is to be deleted. Until then tills that use it are still accepted.", ""},
		} {
			t.Run(operatorIs.name+"/"+test.action, func(t *testing.T) {
				s := newShop(t)
				key := s.issue("till-1")
				s.Eventually("the key has its finalizer, and works", func() bool {
					var stored v1alpha1.ApiKey
					err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "till-1"}, &stored)
					return err == nil && len(stored.Finalizers) > 0 && s.status(key) == http.StatusCreated
				})
				if err := operatorIs.away(); err != nil {
					t.Fatal(err)
				}
				back := sync.OnceFunc(func() {
					if err := operatorIs.back(); err != nil {
						t.Error(err)
					}
				})
				defer back()
				form := s.alice.Get(t, s.page+"/keys/till-1/"+test.action)
				answer := s.alice.Post(t, form.URL.String(), url.Values{"uid": {s.hidden(form, "uid")}, "name": {"till-1"}})
				for what, page := range map[string]oidctest.Page{"the answer": answer, "a later page": s.alice.Get(t, s.page)} {
					if !strings.Contains(page.Text, test.waits) || strings.Contains(page.Text, "are refused") || strings.Contains(page.Text, "Switched off") {
						t.Errorf("%s: %d %s", what, page.Status, page.Text)
					}
				}
				s.wantStatus("the key meanwhile", key, http.StatusCreated)
				back()
				s.Eventually("the key is refused", func() bool { return s.status(key) == http.StatusUnauthorized })
				s.Eventually("the page says so", func() bool {
					page := s.alice.Get(t, s.page).Text
					if test.refused == "" {
						return !strings.Contains(page, `id="key-till-1"`)
					}
					return strings.Contains(page, test.refused)
				})
			})
		}
	}
}

// nowhere fails if something that people or programs can read holds a key.
func (s shop) nowhere(keys ...string) {
	s.T.Helper()
	var seen strings.Builder
	seen.WriteString(shared.Logs.String())
	for _, list := range []client.ObjectList{&v1alpha1.ApiKeyList{}, &v1alpha1.MerchantList{}, &corev1.SecretList{}, &eventsv1.EventList{}, &corev1.ConfigMapList{}} {
		if err := shared.Client.List(s.T.Context(), list); err != nil {
			s.T.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			s.T.Fatal(err)
		}
		seen.Write(text)
	}
	seen.WriteString(inRedis(s.T))
	seen.WriteString(s.alice.Get(s.T, s.page).Text)
	for _, key := range keys {
		if strings.Contains(seen.String(), key) || strings.Contains(seen.String(), key[len(key)-32:]) {
			s.T.Errorf("a key is where it must not be")
		}
	}
}

// inRedis is everything that Redis holds.
func inRedis(t testing.TB) string {
	t.Helper()
	server, ctx := storetest.Inspect(t, shared.Redis), t.Context()
	var all []any
	for _, key := range server.Keys(ctx, "*").Val() {
		all = append(all, key, server.Get(ctx, key).Val(), server.HGetAll(ctx, key).Val(), server.LRange(ctx, key, 0, -1).Val(), server.ZRange(ctx, key, 0, -1).Val())
	}
	if len(all) == 0 {
		t.Fatal("Redis is empty")
	}
	return fmt.Sprint(all...)
}

// A form that is sent twice, from a stale tab, or by two people, rotates once.
func TestRotate_OneOfMany(t *testing.T) {
	s := newShop(t)
	s.issue("till-1")
	var form oidctest.Page
	s.Eventually("the operator reports the key", func() bool {
		form = s.alice.Get(t, s.page+"/keys/till-1/rotate")
		return strings.Contains(form.Text, "The current key begins with")
	})
	values := url.Values{"generation": {s.hidden(form, "generation")}, "overlap": {"0"}}
	var all sync.WaitGroup
	answers := make([]oidctest.Page, 8)
	for i := range answers {
		all.Go(func() { answers[i] = s.alice.Post(t, form.URL.String(), values) })
	}
	all.Wait()
	var keys []string
	for _, answer := range answers {
		switch {
		case answer.Status == http.StatusOK:
			keys = append(keys, keyIn(t, answer))
		case answer.Status != http.StatusConflict || !strings.Contains(answer.Text, "Rotated meanwhile"):
			t.Errorf("%d: %s", answer.Status, answer.Text)
		}
	}
	if len(keys) != 1 {
		t.Fatalf("%d keys from one form", len(keys))
	}
	s.wantStatus("the one key", keys[0], http.StatusCreated)
}

// A tenant writes the status of its own ApiKey, with the public key id of another tenant. Its form rotates its own key all the same, and
// the next reconciliation repairs the status.
func TestRotate_StatusNamesAnotherTenantsKey(t *testing.T) {
	victim, thief := newShop(t), newShop(t)
	victims := victim.issue("till")
	thief.issue("decoy")
	read := func(s shop, name string) *v1alpha1.ApiKey {
		t.Helper()
		key := &v1alpha1.ApiKey{}
		s.Eventually("the status is written", func() bool {
			err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, key)
			return err == nil && key.Status.KeyGeneration == 2
		})
		return key
	}
	target, decoy := read(victim, "till"), read(thief, "decoy")
	before, own := decoy.DeepCopy(), decoy.Status.KeyID
	decoy.Status.KeyID, decoy.Status.KeyGeneration = target.Status.KeyID, target.Status.KeyGeneration
	if err := shared.Client.Status().Patch(t.Context(), decoy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}

	stolen := keyIn(t, thief.alice.Post(t, thief.page+"/keys/decoy/rotate", url.Values{"generation": {"2"}, "overlap": {"0"}}))
	if parsed, err := apikey.Parse(stolen); err != nil || parsed.ID() != own {
		t.Errorf("the page shows a key with the id %s, of another ApiKey", parsed.ID())
	}
	victim.wantStatus("the other tenant's key", victims, http.StatusCreated)
	thief.Change(decoy, func() { decoy.Spec.ExpiresAt = &metav1.Time{Time: time.Now().Add(time.Hour)} })
	thief.Eventually("the status is repaired", func() bool {
		return shared.Client.Get(t.Context(), client.ObjectKeyFromObject(decoy), decoy) == nil && decoy.Status.KeyID == own
	})
}

func TestForms_Refused(t *testing.T) {
	s := newShop(t)
	key := s.issue("till-1")
	for path, values := range map[string]url.Values{
		"/new-key":              {"name": {"Till 1<b>"}},
		"/new-key?2":            {"name": {""}},
		"/new-key?3":            {"name": {strings.Repeat("a", 64)}},
		"/new-key?4":            {"name": {"till-1"}}, // taken
		"/new-key?5":            {"name": {"till-5"}, "mode": {"Staging"}},
		"/keys/till-1/rotate":   {"generation": {"2"}, "overlap": {"7"}},
		"/keys/till-1/rotate?2": {"generation": {"x"}, "overlap": {"0"}},
		"/keys/till-1/rotate?3": {},
		"/allowlist?1":          {"generation": {"1"}, "allowlist": {"203.0.113.7/24"}, "confirmed": {"yes"}},
		"/allowlist?2":          {"generation": {"1"}, "allowlist": {"example.com"}, "confirmed": {"yes"}},
		"/allowlist?3":          {"generation": {"99"}, "allowlist": {"203.0.113.7"}, "confirmed": {"yes"}},
		"/allowlist?4":          {"generation": {"1"}, "allowlist": {"203.0.113.7"}}, // shuts out its author
		"/webhook?1":            {"generation": {"1"}, "url": {"ftp://shop.example"}},
		"/webhook?2":            {"generation": {"1"}, "url": {"https://a@shop.example/"}},
	} {
		page := s.alice.Post(t, s.page+path, values)
		if page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Text, `role="alert"`) || strings.Contains(page.Text, "<b>C") {
			t.Errorf("%s %v: %d %s", path, values, page.Status, page.Text)
		}
		for _, field := range []string{"allowlist", "url"} {
			if text := values.Get(field); !strings.Contains(page.Text, text) {
				t.Errorf("%s: what was entered is lost: %s", path, page.Text)
			}
		}
	}
	s.wantStatus("the key after refused forms", key, http.StatusCreated)
}

// With the policies of docs/examples in force a live key needs an end. The form says so beside the field that gives it, and makes such a key; a
// test key needs none.
func TestIssue_Policies(t *testing.T) {
	s := newShop(t)
	before := s.issue("before")
	s.ExamplePolicies()
	refused := s.alice.Post(t, s.page+"/new-key", url.Values{"name": {"till-1"}})
	if refused.Status != http.StatusUnprocessableEntity || !strings.Contains(refused.Text, `id="expires-error"`) || !strings.Contains(refused.Text, "A rule of your platform demands a last day") {
		t.Errorf("without a day: %d %s", refused.Status, refused.Text)
	}
	key := keyIn(t, s.alice.Post(t, s.page+"/new-key", url.Values{"name": {"till-1"}, "expires": {"2099-02-28"}}))
	s.wantStatus("the key with an end", key, http.StatusCreated)
	if page := s.alice.Get(t, s.page); !strings.Contains(page.Text, `<time datetime="2099-02-28T23:59:59Z"`) {
		t.Errorf("the page does not say when the key ends: %s", page.Text)
	}
	keyIn(t, s.alice.Post(t, s.page+"/new-key", url.Values{"name": {"developer"}, "mode": {"Test"}}))
	// A key of before the policies can be replaced.
	s.wantStatus("the key of before", before, http.StatusCreated)
	form := s.alice.Get(t, s.page+"/keys/before/rotate")
	s.Eventually("the key of before is rotated", func() bool {
		form = s.alice.Get(t, form.URL.String())
		page := s.alice.Post(t, form.URL.String(), url.Values{"generation": {form.Hidden("generation")}, "overlap": {"0"}})
		return page.Status == http.StatusOK && page.Key() != ""
	})
	s.wantStatus("the key of before, rotated", before, http.StatusUnauthorized)
}

// Who may see a merchant may not act, and who may see nothing gets what a missing merchant gets.
func TestActions_NeedRights(t *testing.T) {
	s := newShop(t)
	s.issue("till-1")
	viewer := oidctest.NewBrowser(t)
	identities.SignIn(t, viewer, consoleURL+"/sign-in", bob)
	forms := []string{"/new-key", "/keys/till-1/rotate", "/keys/till-1/disable", "/keys/till-1/delete", "/allowlist", "/webhook", "/webhook/resume", "/webhook/rotate-secret", "/dead-letters/resend"}
	for _, path := range forms {
		if page := viewer.Post(t, s.page+path, url.Values{"name": {"till-1"}, "generation": {"1"}, "overlap": {"0"}}); page.Status != http.StatusNotFound {
			t.Errorf("a person without rights posts to %s: %d", path, page.Status)
		}
	}
	s.bind("bob", "merchant-operator-merchant-viewer")
	s.Eventually("bob may see the merchant", func() bool { return viewer.Get(t, s.page).Status == http.StatusOK })
	for _, path := range forms {
		if page := viewer.Post(t, s.page+path, url.Values{"name": {"till-1"}, "generation": {"1"}, "overlap": {"0"}}); page.Status != http.StatusForbidden {
			t.Errorf("a viewer posts to %s: %d", path, page.Status)
		}
		if text := viewer.Get(t, s.page).Text; strings.Contains(text, path+`"`) {
			t.Errorf("the page offers %s to a viewer", path)
		}
	}
}

// An action is an Event with who, what, key id and generation.
func TestActions_Events(t *testing.T) {
	s := newShop(t)
	s.issue("till-1")
	var key v1alpha1.ApiKey
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "till-1"}, &key); err != nil {
		t.Fatal(err)
	}
	want := "IssueKey: " + key.Status.KeyID + " by oidc:alice (generation 2)"
	var events eventsv1.EventList
	if err := shared.Client.List(t.Context(), &events, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, event := range events.Items {
		found = found || event.Note == want && event.Regarding.UID == key.UID
	}
	if !found {
		t.Errorf("there is no Event %q: %+v", want, events.Items)
	}
	if page := s.alice.Get(t, s.page); !strings.Contains(page.Text, "A new key was issued by oidc:alice") || strings.Contains(page.Text, "generation 2") {
		t.Errorf("the page does not say who has issued a key: %s", page.Text)
	}
}

func TestAllowlist_Edit(t *testing.T) {
	s := newShop(t)
	key := s.issue("till-1")
	save := func(allowlist string) oidctest.Page {
		t.Helper()
		form := s.alice.Get(t, s.page+"/allowlist")
		return s.alice.Post(t, form.URL.String(), url.Values{"generation": {s.hidden(form, "generation")}, "allowlist": {allowlist}, "confirmed": {"yes"}})
	}
	if page := save("203.0.113.0/24\r\n203.0.113.0/24\r\n2001:db8::/48"); page.Status != http.StatusOK || !strings.Contains(page.Text, "2001:db8::/48") {
		t.Fatalf("%d: %s", page.Status, page.Text)
	}
	s.Eventually("the address of this machine is shut out", func() bool { return s.status(key) == http.StatusUnauthorized })
	save("203.0.113.0/24, 127.0.0.1")
	s.Eventually("it is back", func() bool { return s.status(key) == http.StatusCreated })
}

// What Git manages is refused with what to change; rotation works all the same.
func TestForms_ManagedByGit(t *testing.T) {
	s := newShop(t)
	s.issue("till-1")
	var key v1alpha1.ApiKey
	s.Eventually("the operator reports the key", func() bool {
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "till-1"}, &key)
		return err == nil && key.Status.Prefix != ""
	})
	for _, object := range []client.Object{s.merchant, &key} {
		s.Change(object, func() { object.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "shops"}) })
	}
	for _, path := range []string{"/allowlist", "/webhook", "/keys/till-1/disable", "/keys/till-1/delete"} {
		page := s.alice.Post(t, s.page+path, url.Values{"name": {"till-1"}, "generation": {"1"}, "url": {"https://a.example/"}})
		if page.Status != http.StatusConflict || !strings.Contains(page.Text, "Flux") {
			t.Errorf("%s: %d: %s", path, page.Status, page.Text)
		}
	}
	form := s.alice.Get(t, s.page+"/keys/till-1/rotate")
	leaked := keyIn(t, s.alice.Post(t, form.URL.String(), url.Values{"generation": {s.hidden(form, "generation")}, "overlap": {"0"}}))

	// Who sets a label must not keep a leaked key alive.
	if page := s.alice.Get(t, s.page+"/keys/till-1/disable"); !strings.Contains(page.Text, `name="override"`) || !strings.Contains(page.Text, "Flux") {
		t.Errorf("the form does not offer to override Git: %s", page.Text)
	}
	s.alice.Post(t, s.page+"/keys/till-1/disable", url.Values{"name": {"till-1"}, "override": {"yes"}})
	s.Eventually("the key is refused", func() bool { return s.status(leaked) == http.StatusUnauthorized })
	if page := s.alice.Post(t, s.page+"/keys/till-1/delete", url.Values{"name": {"till-1"}, "override": {"yes"}}); page.Status != http.StatusConflict {
		t.Errorf("deleting what Git manages: %d", page.Status)
	}
}

// A test key stays one, whatever is done to it.
func TestKey_TestMode(t *testing.T) {
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

// With a certificate the console serves TLS only, so that a page with a key does not travel in the clear behind the proxy.
func TestConsole_TLS(t *testing.T) {
	directory := t.TempDir()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var address string
	_, _, err = shared.StartConsole("console-with-tls", api.Internal, identities.Issuer, func(o *console.Options) {
		o.CertificateDir, address = directory, o.Address
		o.ExternalURL = "https://" + address
	})
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(chain)
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}}
	for scheme, want := range map[string]int{"https": http.StatusOK, "http": http.StatusBadRequest} {
		answer, err := trusting.Get(scheme + "://" + address + "/signed-out")
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != want {
			t.Errorf("%s: %d, want %d (%v)", scheme, answer.StatusCode, want, err)
		}
	}
}
