//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/cert"

	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

const (
	consoleURL     = "https://console.e2e.example"
	consoleService = "https://merchant-operator-console." + systemNamespace + ".svc:8083"
	issuerURL      = "https://oidc." + shops + ".svc:8443"

	tlsSecret       = "e2e-tls"       // of the API's internal port and of the console
	consoleSecret   = "e2e-console"   // the client secret
	providerSecret  = "e2e-oidc"      // certificate and people of the provider
	authoritySecret = "e2e-authority" // of both certificates
)

var (
	developer = oidctest.User{Username: "dora", Password: "d", Name: "Dora", Groups: []string{"shop-developers"}}
	outsider  = oidctest.User{Username: "oscar", Password: "o", Name: "Oscar"}
)

// makeSecrets makes what a platform team does before it installs the chart with a console, and what the provider needs.
func (c *cluster) makeSecrets(ctx context.Context) {
	GinkgoHelper()
	var hosts []string
	for _, text := range []string{internalURL, consoleService, issuerURL} {
		server, err := url.Parse(text)
		Expect(err).NotTo(HaveOccurred())
		hosts = append(hosts, server.Hostname())
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(hosts[0], nil, hosts[1:])
	Expect(err).NotTo(HaveOccurred())
	_, authority := pem.Decode(chain) // comes after the certificate
	people, err := json.Marshal([]oidctest.User{developer, outsider})
	Expect(err).NotTo(HaveOccurred())
	for _, secret := range []struct {
		namespace, name string
		data            map[string][]byte
	}{
		{systemNamespace, tlsSecret, map[string][]byte{"tls.crt": chain, "tls.key": key, "ca.crt": authority}},
		{systemNamespace, consoleSecret, map[string][]byte{"client-secret": []byte(oidctest.ClientSecret)}},
		{shops, providerSecret, map[string][]byte{"tls.crt": chain, "tls.key": key, "people.json": people}},
		{shops, authoritySecret, map[string][]byte{"ca.crt": authority}},
	} {
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.namespace, Name: secret.name}, Data: secret.data})).To(Succeed())
	}
}

// startProvider starts the OpenID provider.
func (c *cluster) startProvider(ctx context.Context) {
	GinkgoHelper()
	pod := agentPod(shops, "oidc", "--address=:8443", "--issuer-url="+issuerURL, "--cert-dir=/etc/"+providerSecret,
		"--users=/etc/"+providerSecret+"/people.json", "--client-id="+oidctest.ClientID, "--client-secret="+oidctest.ClientSecret,
		"--redirect-urls="+consoleURL+"/callback")
	mountSecret(pod, providerSecret)
	container := &pod.Spec.Containers[0]
	container.Command = []string{"e2e-oidc"}
	container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Scheme: corev1.URISchemeHTTPS, Path: "/.well-known/openid-configuration", Port: intstr.FromInt32(8443),
	}}}
	c.startPod(ctx, pod, 8443)
}

// RoundTrip sends a request of a browser from the agent's pod, and stands for the ingress of the console.
func (a agent) RoundTrip(request *http.Request) (*http.Response, error) {
	body := ""
	if request.Body != nil {
		text, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	sent := exchange{Method: request.Method, URL: request.URL.String(), Headers: map[string]string{}, Body: body}
	for name := range request.Header {
		sent.Headers[name] = request.Header.Get(name)
	}
	if path, found := strings.CutPrefix(sent.URL, consoleURL); found {
		sent.URL = consoleService + path
		sent.Headers["Host"] = request.URL.Host
		sent.Headers["X-Forwarded-For"] = "203.0.113.9"
	}
	got := a.do(request.Context(), sent)
	Expect(got.Error).To(BeEmpty(), "%s %s", sent.Method, sent.URL)
	return &http.Response{StatusCode: got.Status, Header: got.Headers, Body: io.NopCloser(strings.NewReader(got.Body)), Request: request}, nil
}

// signIn returns a browser of a person who has signed in at the console.
func signIn(user oidctest.User) oidctest.Browser {
	GinkgoHelper()
	browser := oidctest.NewBrowser(GinkgoTB())
	browser.Transport = till
	page := (&oidctest.Provider{Issuer: issuerURL}).SignIn(GinkgoTB(), browser, consoleURL+"/?all=yes", user)
	Expect(page.Status).To(Equal(http.StatusOK), page.Text)
	Expect(page.URL.String()).To(Equal(consoleURL + "/?all=yes"))
	return browser
}

var (
	shownKey   = regexp.MustCompile(`<pre[^>]* data-secret[^>]*>(mk_live_[0-9A-Za-z_]+)</pre>`)
	generation = regexp.MustCompile(`name="generation" value="([0-9]+)"`)
)

func issuesKeysInTheConsole(ctx SpecContext) {
	shared.startProvider(ctx)
	shared.apply(ctx, "counter")
	Expect(shared.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: "shop-developers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: release + "-merchant-integrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "oidc:shop-developers"}},
	})).To(Succeed())
	merchant := consoleURL + "/merchants/" + shops + "/counter"

	stranger := oidctest.NewBrowser(GinkgoTB())
	stranger.Transport = till
	// The node routes to the provider's pod a moment after that is ready.
	Eventually(func() int { return stranger.Get(GinkgoTB(), consoleURL+"/sign-in").Status }).WithContext(ctx).Should(Equal(http.StatusOK))
	dora := signIn(developer)
	// Each console watches the merchant and the right itself.
	Eventually(func() int { return dora.Get(GinkgoTB(), merchant+"/new-key").Status }).WithContext(ctx).Should(Equal(http.StatusOK))
	issued := keyOn(dora.Post(GinkgoTB(), merchant+"/new-key", url.Values{"name": {"counter-2"}}))
	shared.waitForKey(ctx, issued)
	Expect(till.charge(ctx, publicURL, issued, "by-the-console").Status).To(Equal("PENDING"))

	second := rotateIn(ctx, dora, merchant+"/keys/counter-2/rotate", "3600")
	everyReplicaAnswers(ctx, http.StatusOK, issued, second)
	third := rotateIn(ctx, dora, merchant+"/keys/counter-2/rotate", "0")
	everyReplicaAnswers(ctx, http.StatusUnauthorized, issued, second)
	everyReplicaAnswers(ctx, http.StatusOK, third)
	Expect(till.charge(ctx, publicURL, third, "after-the-rotations").Status).To(Equal("PENDING"))

	// The address of the person is in this block, that of the till is not.
	editAllowlist(dora, merchant, "203.0.113.0/24")
	Eventually(func() int { return till.read(ctx, publicURL, third, "/api/v1/merchant/me").Status }).WithContext(ctx).Should(Equal(http.StatusUnauthorized))
	editAllowlist(dora, merchant, "")
	shared.waitForKey(ctx, third)

	oscar := signIn(outsider)
	for _, path := range []string{"", "/new-key", "/keys/counter-2/rotate"} {
		Expect(oscar.Get(GinkgoTB(), merchant+path).Status).To(Equal(http.StatusNotFound), path)
	}
	Expect(oscar.Get(GinkgoTB(), consoleURL+"/").Text).NotTo(ContainSubstring("The shop counter"))
	proved("a key was issued, charged with and rotated twice by two consoles behind a Service, with TLS all the way; the allowlist shut a till out and in")
}

// rotateIn rotates a key with the form of its page. The overlap is in seconds.
func rotateIn(ctx SpecContext, browser oidctest.Browser, form, overlap string) string {
	GinkgoHelper()
	var rotated oidctest.Page
	Eventually(func(g Gomega) {
		found := generation.FindStringSubmatch(browser.Get(GinkgoTB(), form).Text)
		g.Expect(found).NotTo(BeNil())
		rotated = browser.Post(GinkgoTB(), form, url.Values{"generation": {found[1]}, "overlap": {overlap}})
		g.Expect(rotated.Status).To(Equal(http.StatusOK), rotated.Text) // 409: the status of the ApiKey is behind
	}).WithContext(ctx).Should(Succeed(), "the key is rotated")
	return keyOn(rotated)
}

// everyReplicaAnswers asks each replica of the API at once, with each key.
func everyReplicaAnswers(ctx SpecContext, status int, keys ...string) {
	GinkgoHelper()
	for _, replica := range shared.replicas(ctx, Default) {
		for i, key := range keys {
			Expect(till.read(ctx, replica, key, "/api/v1/merchant/me").Status).To(Equal(status), "%s, key %d", replica, i)
		}
	}
}

func editAllowlist(browser oidctest.Browser, merchant, allowlist string) {
	GinkgoHelper()
	form := browser.Get(GinkgoTB(), merchant+"/allowlist")
	found := generation.FindStringSubmatch(form.Text)
	Expect(found).NotTo(BeNil(), form.Text)
	saved := browser.Post(GinkgoTB(), merchant+"/allowlist", url.Values{"generation": {found[1]}, "allowlist": {allowlist}})
	Expect(saved.URL.String()).To(HavePrefix(merchant+"#"), saved.Text)
}

// keyOn is the key that a page shows.
func keyOn(page oidctest.Page) string {
	GinkgoHelper()
	found := shownKey.FindStringSubmatch(page.Text)
	Expect(found).NotTo(BeNil(), "%d %s", page.Status, page.Text)
	return found[1]
}
