package console

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// requests are what a browser loads for a page: the page, and what it refers to.
var requests = regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`)

// It counts bytes, so no test runs beside it.
func TestPages_Small(t *testing.T) {
	f := newFixture(t)
	m := f.merchant("acme", withWebhook, func(m *v1alpha1.Merchant) {
		for i := range 64 {
			m.Spec.IPAllowlist = append(m.Spec.IPAllowlist, v1alpha1.IPBlock(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String()))
		}
	})
	for _, name := range []string{"till-1", "till-2", "till-3", "till-4", "till-5", "web"} {
		f.apiKey(m, name)
	}
	for range 55 {
		f.create(&v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "shop-"}, Spec: v1alpha1.MerchantSpec{DisplayName: "A shop with a rather long name"}})
	}
	f.grant(user(alice), []string{"get", "viewpayments", "refundpayments", "issuekeys", "rotatekeys", "editallowlist", "editwebhook"})
	for i := range webhook.ShownDeadLetters + 1 {
		f.deadLetter(m, strconv.Itoa(i))
	}
	payment := f.charge(m, "key", session.Charge{AmountCents: 1250})
	reader, now := &fakePayments{Store: f.store, all: map[store.Account][]store.EndedSession{}}, f.clock()
	for i := range 2 * 50 {
		reader.all[live(m)] = append(reader.all[live(m)], ended(m, i, session.Completed, 1250, now))
	}
	f.payments.Store = reader
	browser := f.signedIn(alice)
	const most, mostRequests = 30 << 10, 5
	paths := []string{"/", "/nothing", "/signed-out"}
	for _, route := range merchantRoutes(t) {
		if path, isPage := strings.CutPrefix(route, "GET "); isPage {
			paths = append(paths, "/merchants/"+f.namespace+"/acme"+strings.NewReplacer("K", "web", "/P", "/"+payment.String()).Replace(path))
		}
	}
	for _, path := range paths {
		page := browser.Get(t, f.URL+path)
		if strings.HasPrefix(path, "/merchants") && page.Status != http.StatusOK {
			t.Errorf("%s: %d", path, page.Status)
		}
		size, count := compressed(t, page.Text), 1
		for _, reference := range requests.FindAllStringSubmatch(page.Text, -1) {
			asset := browser.Get(t, f.URL+reference[1])
			if asset.Status != http.StatusOK || !strings.Contains(asset.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %d, Cache-Control: %s", reference[1], asset.Status, asset.Header.Get("Cache-Control"))
			}
			size, count = size+compressed(t, asset.Text), count+1
		}
		if page.Header.Get("Content-Disposition") == "" && count < 2 || size > most || count > mostRequests {
			t.Errorf("%s: %d bytes in %d requests", path, size, count)
		}
		t.Logf("%s: %d bytes in %d requests", path, size, count)
	}
}

func compressed(t *testing.T, text string) int {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
		t.Fatal("compress a page")
	}
	return out.Len()
}

// Nothing in an answer runs or loads that its policy would refuse, whatever the answer is. It runs
// alone: alice sees the shops of all tests that run at the same time, and so not the one that she
// goes straight into.
func TestPages_Headers(t *testing.T) {
	f := newFixture(t)
	f.merchant("acme")
	f.grant(user(alice), []string{"get"})
	browser, merchant := f.signedIn(alice), "/merchants/"+f.namespace+"/acme"
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const noLogin = "no login"
	stranger := oidctest.NewBrowser(t)
	inline := regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\sstyle=|\son[a-z]+=|javascript:|(src|href)="https?://[^"]*\.(css|js)`)
	for _, test := range []struct {
		method, path, site, host string
		want                     int
	}{
		{"GET", "/", "", "", http.StatusSeeOther}, // one shop: straight in
		{"GET", "/?all=yes", "", "", http.StatusOK},
		{"GET", merchant, "", "", http.StatusOK},
		{"GET", "/signed-out", "", "", http.StatusOK},
		{"GET", "/sign-in", "", "", http.StatusSeeOther},
		{"GET", "/callback?code=a", "", "", http.StatusSeeOther}, // signed in already
		{"GET", "/callback?code=a", noLogin, "", http.StatusBadRequest},
		{"GET", merchant + "/allowlist", "", "", http.StatusForbidden},
		{"GET", merchant + "/payments.csv", "", "", http.StatusNotFound},
		{"POST", merchant + "/allowlist", "same-origin", "", http.StatusForbidden},
		{"POST", merchant + "/allowlist", "cross-site", "", http.StatusForbidden},
		{"POST", merchant + "/allowlist", "", "", http.StatusForbidden},
		{"GET", "/nothing", "", "", http.StatusNotFound},
		{"GET", "/sign-out", "", "", http.StatusNotFound},
		{"DELETE", merchant, "same-origin", "", http.StatusNotFound},
		{"GET", "/", "", "evil.example", http.StatusMisdirectedRequest},
	} {
		request := httptest.NewRequest(test.method, f.URL+test.path, nil)
		request.RequestURI, request.Host = "", test.host
		from := browser
		switch test.site {
		case "":
		case noLogin:
			from = stranger
		default:
			request.Header.Set("Sec-Fetch-Site", test.site)
		}
		page, what := from.Do(t, request), test.method+" "+test.path
		if page.Status != test.want {
			t.Errorf("%s: %d, want %d", what, page.Status, test.want)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Cache-Control":           "no-store",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "same-origin",
		} {
			if got := page.Header.Get(header); got != want {
				t.Errorf("%s: %s: %q, want %q", what, header, got, want)
			}
		}
		if found := inline.FindString(page.Text); found != "" {
			t.Errorf("%s has %q, which the policy forbids", what, found)
		}
	}
}

// Each form is one of ours, sent by a page of ours.
func TestPages_CrossOriginForms(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	origin := f.URL
	for _, test := range []struct {
		name, site, origin string
		refused            bool
	}{
		{"our own page", "same-origin", origin, false},
		{"our own page, an older browser", "", origin, false},
		{"another site", "cross-site", "https://evil.example", true},
		{"another site, an older browser", "", "https://evil.example", true},
		{"a sibling subdomain", "same-site", "https://shop.console.example", true},
		{"an opaque origin", "", "null", true},
		{"another port of this host", "same-site", "http://127.0.0.1:1", true},
		{"no header says from where", "", "", true},
		{"typed in", "none", "", false},
	} {
		browser := f.signedIn(bob)
		request := httptest.NewRequest(http.MethodPost, origin+"/sign-out", nil)
		request.RequestURI = ""
		for header, value := range map[string]string{"Sec-Fetch-Site": test.site, "Origin": test.origin} {
			if value != "" {
				request.Header.Set(header, value)
			}
		}
		browser.Do(t, request)
		signedIn := browser.Get(t, origin+"/").URL.String() == origin+"/"
		if signedIn != test.refused {
			t.Errorf("%s: refused %v, want %v", test.name, signedIn, test.refused)
		}
	}
}

// A name of somebody else that leads here gets no page (DNS rebinding).
func TestPages_OtherHostNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browser := f.signedIn(alice)
	request := httptest.NewRequest(http.MethodGet, f.URL+"/", nil)
	request.RequestURI, request.Host = "", "evil.example"
	if page := browser.Do(t, request); page.Status != http.StatusMisdirectedRequest || strings.Contains(page.Text, "Alice") {
		t.Errorf("%d: %s", page.Status, page.Text)
	}
}

func TestMerchantPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"}
		m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks", Events: []v1alpha1.WebhookEvent{"session.completed"}}
	})
	key := f.apiKey(m, "till-1")
	f.apiKey(f.merchant("globex"), "of-another")
	f.event(key.UID, "ApiKey", "till-1", "Rotated", "Issued key (generation 2, cause API)")
	f.event(key.UID, "ApiKey", "till-1", "Published", "Published without a key (generation 1, cause Initial)")
	f.event(m.UID, "Merchant", "acme", "Timeout", "no answer in 15 s of spec.webhook.url")
	f.event("other", "ApiKey", "of-another", "KeyLost", "Something else")
	f.grant(user(alice), []string{"get"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"

	page := browser.Get(t, path)
	for _, want := range []string{
		"till-1", "mk_live_abcdefghijkl_ABCD", "203.0.113.0/24", "https://shop.example/hooks", "session.completed", "50 per second, 100 at once",
		`curl -sS https://pay.example/api/v1/sessions`, "A new key was issued", "Your server does not accept events", "Used <time datetime=", "<h1>Integrations of ", "Your own address is <code>127.0.0.1</code>. It does not pass.",
		`<time datetime="2026-11-01T10:00:00Z" title="1 Nov 2026, 10:00 UTC" data-shop>1 November 2026 at 10:00</time>`, `<time datetime="2100-01-01T00:00:00Z"`,
		"Nobody knows at the moment whether the old key is still used.",
	} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("the page does not say %q:\n%s", want, page.Text)
		}
	}
	for _, unwanted := range []string{"of-another", "Something else", "was lost", "Managed by Git", "generation", "cause", "spec."} {
		if strings.Contains(page.Text, unwanted) {
			t.Errorf("the page says %q", unwanted)
		}
	}
	for address, want := range map[string]string{
		"203.0.113.9": "Requests from this address pass", "::ffff:203.0.113.9": "Requests from this address pass", "2001:db8:0:1::1": "Requests from this address pass",
		"203.0.114.1": "Requests from this address are refused", "2001:db8:1::": "Requests from this address are refused",
		"203.0.113.0/24": "This is not an IP address", "<b>": "This is not an IP address",
	} {
		if page := browser.Get(t, path+"?address="+url.QueryEscape(address)); !strings.Contains(page.Text, want) || strings.Contains(page.Text, "<b>"+address) {
			t.Errorf("%s: the page does not say %q", address, want)
		}
	}
}

// A form of a new key that no browser sends from our page creates nothing.
func TestIssueKey_Refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.grant(user(alice), []string{"get", "issuekeys"})
	browser := f.signedIn(alice)
	for name, form := range map[string]struct {
		values url.Values
		says   string
	}{
		"a name":        {url.Values{"name": {"Till 1"}}, "Use lower-case letters"},
		"a mode":        {url.Values{"name": {"till-1"}, "mode": {"Demo"}}, "Choose live or test."},
		"a permission":  {url.Values{"name": {"till-1"}, "permissions": {"list"}}, "Choose what the key may do."},
		"a day":         {url.Values{"name": {"till-1"}, "expires": {"28.2.2099"}}, "Choose today or a later day."},
		"a day of last": {url.Values{"name": {"till-1"}, "expires": {"2026-11-01"}}, "Choose today or a later day."},
		"a day too far": {url.Values{"name": {"till-1"}, "expires": {"3000-01-01"}}, "Choose today or a later day."},
		"what it chose": {url.Values{"name": {"Till 1"}, "permissions": {"all"}}, `value="all" required checked`},
		"and its day":   {url.Values{"name": {"Till 1"}, "expires": {"2099-02-28"}}, `name="expires" value="2099-02-28"`},
	} {
		t.Run(name, func(t *testing.T) {
			page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/acme/new-key", form.values)
			if page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Text, form.says) {
				t.Errorf("%d: %s", page.Status, page.Text)
			}
		})
	}
	var keys v1alpha1.ApiKeyList
	if err := cluster.Client.List(t.Context(), &keys, client.InNamespace(f.namespace)); err != nil || len(keys.Items) > 0 {
		t.Errorf("%d ApiKeys, %v", len(keys.Items), err)
	}
}

// apiKey creates an ApiKey with a status as the operator writes it, an old key in its overlap included.
func (f *fixture) apiKey(m *v1alpha1.Merchant, name string) *v1alpha1.ApiKey {
	f.t.Helper()
	key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name}, Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: m.Name}}}
	f.create(key)
	key.Status = v1alpha1.ApiKeyStatus{
		KeyID: "abcdefghijkl", Prefix: "mk_live_abcdefghijkl_ABCD", KeyGeneration: 2, LastUsedTime: &metav1.Time{Time: time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)},
		LastRotation: &v1alpha1.RotationStatus{Time: metav1.NewTime(time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)), Cause: v1alpha1.RotationAPI},
		PreviousKeys: []v1alpha1.PreviousKey{{Prefix: "mk_live_abcdefghijkl_WXYZ", ValidUntil: metav1.NewTime(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}},
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Published", LastTransitionTime: metav1.Now()},
			{Type: "OldKeyInUse", Status: metav1.ConditionUnknown, Reason: "UsesUnknown", LastTransitionTime: metav1.Now()},
		},
	}
	if err := cluster.Client.Status().Update(f.t.Context(), key); err != nil {
		f.t.Fatal(err)
	}
	return key
}

func (f *fixture) event(uid types.UID, kind, name, reason, note string) {
	f.t.Helper()
	severity := corev1.EventTypeNormal
	if f.pages.Words(f.t.Context()).Known("failure." + reason) {
		severity = corev1.EventTypeWarning
	}
	f.create(&eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "event-"}, EventTime: metav1.NowMicro(),
		ReportingController: "test", ReportingInstance: "test", Action: "Test", Reason: reason, Type: severity, Note: note,
		Regarding: corev1.ObjectReference{APIVersion: "merchant-operator.io/v1alpha1", Kind: kind, Namespace: f.namespace, Name: name, UID: uid},
	})
}

// Without the Kubernetes API a page says that it is unavailable.
func TestPages_KubernetesUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	browser := f.signedIn(alice)
	f.kubernetesAway()
	for _, path := range []string{"/", "/merchants/" + f.namespace + "/acme"} {
		if page := browser.Get(t, f.URL+path); page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Text, "No key has changed") {
			t.Errorf("%s: %d", path, page.Status)
		}
	}
	page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/acme/allowlist", url.Values{"generation": {"1"}, "allowlist": {"203.0.113.7"}})
	if !strings.Contains(page.Text, `<input type="hidden" name="allowlist" value="203.0.113.7">`) || !strings.Contains(page.Text, "Send the form again") {
		t.Errorf("what was typed is lost: %d %s", page.Status, page.Text)
	}
}

func (f *fixture) kubernetesAway() {
	f.rights.Reviews = f.newReviewer(&rest.Config{Host: "http://127.0.0.1:1"})
}
