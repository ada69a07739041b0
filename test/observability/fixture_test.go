// Package observability checks what the roles show of themselves, after some traffic: metrics, profiles, traces and logs, who may
// read them, and that docs/reference/metrics.md lists them. test/verify/monitoring checks alerts and dashboard against that page.
package observability

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// The roles, as they are called in docs/reference/metrics.md.
const (
	operatorRole   = "operator"
	apiserverRole  = "apiserver"
	dispatcherRole = "dispatcher"
	consoleRole    = "console"
)

// installation is one of each role, with ops ports that are for those who may read them.
type installation struct {
	*fixture.Installation

	api      fixture.Replica
	console  string                      // URL of its pages
	ops      map[string]string           // base URL of each role's ops port
	token    string                      // of who may read the metrics
	spans    *tracetest.InMemoryExporter // of all roles but the operator
	receiver *inbox.Recorder             // gets the webhooks
	provider *oidctest.Provider          // where people sign in
	secrets  []string                    // must be nowhere in what is shown
}

// person is who uses the console.
var person = oidctest.User{Username: "penelope", Password: "her password", Email: "penelope@shop.example", Name: "Penelope Person"}

// shared is the one installation of this package's tests; there has been traffic before the first of them.
var shared *installation

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := run(m); err != nil {
		log.Fatal(err)
	}
}

// run leaves the tests' own result to the testing package, which reports it when TestMain returns.
func run(m *testing.M) (err error) {
	shared = &installation{ops: map[string]string{}, spans: tracetest.NewInMemoryExporter()}
	shared.Installation, err = fixture.Install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	for _, step := range []func() error{shared.admitPrometheus, shared.start, shared.traffic} {
		if err == nil {
			err = step()
		}
	}
	if err == nil {
		m.Run()
	}
	return err
}

func (i *installation) start() (err error) {
	i.ops[operatorRole], err = i.StartOperator(operatorRole, func(o *controllers.Options) {
		o.Ops.Secure, o.Ops.Profiles = true, true
	})
	if err != nil {
		return err
	}
	mails, err := mailtest.Start(mailtest.Options{})
	if err != nil {
		return err
	}
	i.OnClose(mails.Close)
	i.api, err = i.StartAPIServer(apiserverRole, func(o *apiserver.Options) {
		o.Receipts = true
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
		o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 5}
	})
	if err != nil {
		return err
	}
	i.ops[apiserverRole] = i.api.Ops
	i.ops[dispatcherRole], err = i.StartDispatcher(dispatcherRole, func(o *dispatcher.Options) {
		o.MailServer = dispatcher.MailServer{URL: "smtp://" + mails.Address(), From: "receipts@pay.example"}
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
	})
	if err != nil {
		return err
	}
	provider, stop, err := oidctest.New(i.Dir, person)
	i.provider = provider
	i.OnClose(stop)
	if err != nil {
		return err
	}
	i.console, i.ops[consoleRole], err = i.StartConsole(consoleRole, i.api.Internal, provider.Issuer, func(o *console.Options) {
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
	})
	return err
}

// admitPrometheus makes the account that config/prometheus/rbac.yaml binds, and keeps a token of it.
func (i *installation) admitPrometheus() error {
	if _, err := i.Kubectl("", "apply", "--server-side", "-f", repository.Path("config", "prometheus", "rbac.yaml")); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus-k8s"}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}, account} {
		if err := i.Client.Create(context.Background(), object); err != nil {
			return err
		}
	}
	request := &authenticationv1.TokenRequest{}
	err := i.Client.SubResource("token").Create(context.Background(), account, request)
	i.token = request.Status.Token
	i.secrets = append(i.secrets, i.token)
	return err
}

// get asks the ops port of a role; an empty token is none.
func (i *installation) get(role, path, token string) (status int, text string, err error) {
	answer, err := fixture.Call(fixture.Insecure, i.ops[role], "GET", path, token, "")
	return answer.Status, string(answer.Raw), err
}

// What a merchant writes where people write such things, and must be nowhere in what the programs show.
const (
	orderRef       = "table 7, jane.doe@example.com"
	hookPath       = "/hooks/0a1b2c3d"
	publicSessions = "/api/v1/public/sessions/"
	// What callers say of a trace, and where they call from.
	foreignTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	strangerState = "anything-at-all"
	payerAddress  = "203.0.113.77"
	badKey        = "mk_live_aaaaaaaaaaaa_ThisIsNobodysKeyButItLooksLikeOne000000"
)

// traffic has something happen to every metric: a charge that is cancelled, a key that is rotated, their webhooks, and what
// strangers try.
func (i *installation) traffic() error {
	i.receiver = inbox.NewRecorder(nil)
	shop := httptest.NewServer(i.receiver)
	i.OnClose(func() error { shop.Close(); return nil })
	key, err := i.onboard(shop.URL + hookPath + "?token=hush")
	if err != nil {
		return err
	}
	created, err := i.call(http.MethodPost, fixture.Sessions, key, fmt.Sprintf(`{"amountCents": 1250, "orderRef": %q}`, orderRef))
	if err != nil {
		return err
	}
	id := created.Text("sessionId")
	if id == "" {
		return fmt.Errorf("no session: %s", created.Raw)
	}
	i.secrets = append(i.secrets, key, id, orderRef, "jane.doe", hookPath, "hush", badKey, strangerState, payerAddress)
	requests := []struct{ method, path, key string }{
		{http.MethodGet, fixture.Sessions + "/" + id, key},
		{http.MethodGet, fixture.Sessions + "/" + id, badKey},
		{http.MethodGet, fixture.Sessions + "/" + id + "/nothing", key},
		{http.MethodGet, publicSessions + "ps_testaaaaaaaaaaaaghijklmnopqrstuvwx", ""},
		{"BREW", fixture.Sessions + "/" + id, key},
		{http.MethodOptions, fixture.Sessions + "/" + id, ""},
		{http.MethodPost, fixture.Sessions + "/" + id + "/cancel", key},
	}
	for range 10 { // more than a client address may
		requests = append(requests, struct{ method, path, key string }{http.MethodGet, publicSessions + id, ""})
	}
	for _, request := range requests {
		if _, err := i.call(request.method, request.path, request.key, ""); err != nil {
			return err
		}
	}
	if _, err := i.callAt(i.api.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", "a.b.c", ""); err != nil {
		return err
	}
	if err := i.visit(); err != nil {
		return err
	}
	rotated, err := i.call(http.MethodPost, fixture.Rotate, key, "")
	if err != nil {
		return err
	}
	fresh := rotated.Text("fullKey")
	if fresh == "" {
		return errors.New("the key was not rotated")
	}
	i.secrets = append(i.secrets, fresh)
	if err := i.Wait("the end of the session and the rotation arrive", func() (bool, error) {
		return len(i.receiver.Attempts()) == 2, nil
	}); err != nil {
		return err
	}
	return i.damage()
}

// visit uses the console: a sign-in without the provider, one that is refused and one that is not, an edit, and a rotation of
// another generation.
func (i *installation) visit() error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "person"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-merchant-integrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "oidc:" + person.Username}},
	}
	jar, err := cookiejar.New(nil)
	if err = errors.Join(err, i.Client.Create(context.Background(), binding), i.provider.Stop()); err != nil {
		return err
	}
	browser := &http.Client{Jar: jar, Timeout: fixture.Patience}
	send := func(method, url, form string) (fixture.Answer, error) {
		return fixture.Call(browser, url, method, "", "", form, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	}
	_, err = send(http.MethodGet, i.console+"/sign-in", "")
	if err = errors.Join(err, i.provider.Start()); err != nil {
		return err
	}
	if _, err := send(http.MethodGet, i.console+"/callback?code=a", ""); err != nil {
		return err
	}
	form, err := browser.Get(i.console + "/sign-in")
	if err != nil {
		return err
	}
	_ = form.Body.Close()
	password := url.Values{"username": {person.Username}, "password": {person.Password}}
	if _, err := send(http.MethodPost, form.Request.URL.String(), password.Encode()); err != nil {
		return err
	}
	for _, cookie := range jar.Cookies(form.Request.URL) {
		i.secrets = append(i.secrets, cookie.Value)
	}
	i.secrets = append(i.secrets, person.Password, person.Email, oidctest.ClientSecret)
	page := i.console + "/merchants/shops/acme-coffee"
	if err := i.Wait("the person may act", func() (bool, error) {
		answer, err := send(http.MethodGet, page, "")
		return answer.Status == http.StatusOK, err
	}); err != nil {
		return err
	}
	_, err = send(http.MethodPost, page+"/allowlist", "generation=1&confirmed=yes&allowlist=127.0.0.0/8")
	_, refusedErr := send(http.MethodPost, page+"/keys/till/rotate", "generation=7&overlap=0")
	return errors.Join(err, refusedErr)
}

// damage writes into Redis what the programs would not have, until each of them has met it.
func (i *installation) damage() error {
	ctx := context.Background()
	redis := goredis.NewClient(&goredis.Options{Addr: i.Redis.Addr(), Protocol: 2, DisableIdentity: true})
	defer func() { _ = redis.Close() }()
	id := session.NewID("aaaaaaaaaaaa", false)
	cookie := "00" + strings.Repeat("A", 43) // of a login in bucket 0
	login := fmt.Sprintf("{b00m}:login:%x", sha256.Sum256([]byte(cookie)))
	for _, key := range []string{storetest.BucketTag(id.Bucket()) + "session:" + id.String(), "{b01k}:due", login} {
		if err := redis.Set(ctx, key, "neither a hash nor a sorted set", 0).Err(); err != nil {
			return err
		}
	}
	for _, role := range []string{apiserverRole, dispatcherRole, consoleRole} {
		if err := i.Wait("the "+role+" has met it", func() (bool, error) {
			if _, err := i.call(http.MethodGet, publicSessions+id.String(), "", ""); err != nil {
				return false, err
			}
			if _, err := fixture.Call(http.DefaultClient, i.console, http.MethodGet, "/", "", "", "Cookie", "console-login="+cookie); err != nil {
				return false, err
			}
			_, text, err := i.get(role, "/metrics", i.token)
			return strings.Contains(text, "redis_operation_errors_total{"), err
		}); err != nil {
			return err
		}
	}
	return redis.Del(ctx, "{b01k}:due").Err()
}

// onboard applies a Merchant and an ApiKey and returns the delivered key.
func (i *installation) onboard(hook string) (key string, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme-coffee"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme Coffee",
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 1000, Burst: 1000},
			Webhook:     &v1alpha1.Webhook{URL: hook},
		},
	}
	till := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till"},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"},
			Delivery:    &v1alpha1.Delivery{SecretName: "till-key"},
		},
	}
	for _, object := range []client.Object{namespace, merchant, till} {
		if err := i.Client.Create(context.Background(), object); err != nil {
			return "", err
		}
	}
	return key, i.Wait("the key works", func() (bool, error) {
		var secret corev1.Secret
		if err := i.Client.Get(context.Background(), client.ObjectKey{Namespace: "shops", Name: "till-key"}, &secret); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		key = string(secret.Data["apiKey"])
		answer, err := i.call(http.MethodGet, fixture.Me, key, "")
		return answer.Body["merchant"] != nil, err
	})
}

// call sends a request to the public port and returns the answer, whatever its status.
func (i *installation) call(method, path, key, body string) (fixture.Answer, error) {
	return i.callAt(i.api.Public, method, path, key, body)
}

func (i *installation) callAt(base, method, path, key, body string) (fixture.Answer, error) {
	return fixture.Call(http.DefaultClient, base, method, path, key, body,
		"Traceparent", "00-"+foreignTrace+"-00f067aa0ba902b7-01", "Tracestate", "vendor="+strangerState, "X-Forwarded-For", payerAddress)
}
