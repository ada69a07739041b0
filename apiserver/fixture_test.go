package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

// What all tests share. Each has a namespace, hence merchants, of its own.
var (
	kubeConfig  *rest.Config
	kube        *kubernetes.Clientset
	sharedRedis *redistest.Server
)

func TestMain(m *testing.M) {
	// The tests wait more than they compute, so twice as many as there are CPUs run at the same
	// time. A flag of the command line comes after this.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		log.Fatal(err)
	}
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if flag.Lookup("test.fuzz").Value.String() != "" {
		m.Run() // needs nothing of this, and each of its workers would start it all
		return
	}
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

func runTests(m *testing.M) error {
	environment, stop, err := kubetest.New()
	if err != nil {
		return err
	}
	kubeConfig = environment.Config
	kubeConfig.QPS = -1
	if kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return errors.Join(err, stop())
	}
	server, closeRedis, err := redistest.New()
	if err != nil {
		return errors.Join(err, stop())
	}
	sharedRedis = server
	leaks.Run(m, func() error { closeRedis(); return stop() })
	return nil
}

// fixture is one test's credentials namespace, with the operator's part.
type fixture struct {
	t          *testing.T
	namespace  string
	kubeConfig *rest.Config    // of the replicas
	cutOff     bool            // replicas start without a way to the Kubernetes API
	log        *logtest.Buffer // of the replicas
	replicas   int             // started so far
	issued     []string        // keys
}

// newFixture also sees to it that no key of the fixture gets into the log of a replica.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, namespace: kubetest.Namespace(t, kubeConfig, "credentials-"), kubeConfig: kubeConfig, log: &logtest.Buffer{}}
	t.Cleanup(func() {
		logged := f.log.String()
		for _, key := range f.issued {
			if strings.Contains(logged, key) || strings.Contains(logged, apikey.NewDigest(key).Hex()) {
				t.Fatalf("a key or its digest is in the log:\n%s", logged)
			}
		}
	})
	return f
}

// merchant publishes a merchant with limits no test runs into.
func (f *fixture) merchant(name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	f.t.Helper()
	record := roomtest.NewMerchant(types.UID(f.namespace+"/"+name), name, change...)
	configMap := f.configMap(record)
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return record
}

// changeMerchant publishes another version.
func (f *fixture) changeMerchant(record published.MerchantRecord) {
	f.t.Helper()
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(f.t.Context(), f.configMap(record), metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) configMap(record published.MerchantRecord) *corev1.ConfigMap {
	f.t.Helper()
	configMap, err := published.EncodeMerchant(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	return configMap
}

// key publishes a key of the merchant and returns it in plaintext.
func (f *fixture) key(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	f.t.Helper()
	key, record := roomtest.NewKey(f.t, types.UID(f.namespace+"/"+name), name, merchant.MerchantID, change...)
	return f.publishKey(key, record)
}

func (f *fixture) publishKey(key apikey.Key, record published.KeyRecord) (plaintext string) {
	f.t.Helper()
	f.issued = append(f.issued, key.Reveal())
	secret, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(f.namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return key.Reveal()
}

// newKey makes a key that is not published.
func (f *fixture) newKey(keyID string) apikey.Key {
	f.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		f.t.Fatal(err)
	}
	f.issued = append(f.issued, key.Reveal())
	return key
}

// keySecret reads the published Secret of a key.
func (f *fixture) keySecret(key string) *corev1.Secret {
	f.t.Helper()
	parsed, err := apikey.Parse(key)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, err := kube.CoreV1().Secrets(f.namespace).Get(f.t.Context(), published.KeyName(parsed.ID()), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

func (f *fixture) updateSecret(secret *corev1.Secret) {
	f.t.Helper()
	if _, err := kube.CoreV1().Secrets(f.namespace).Update(f.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// replica is one running API server, seen from outside.
type replica struct {
	t                  *testing.T
	name               string
	url, internal, ops string           // once it listens
	proxy              *kubeproxy.Proxy // between it and the Kubernetes API
	log                *logtest.Buffer
	client             *http.Client
	cancel             context.CancelFunc
	ended              chan error // receives what Run returned
}

// start runs an API server on the fixture's namespace and returns when it is ready. It stops with t.
func (f *fixture) start(change ...func(*apiserver.Options)) *replica {
	f.t.Helper()
	r := f.launch(change...)
	r.awaitReady()
	return r
}

// launch is start without waiting.
func (f *fixture) launch(change ...func(*apiserver.Options)) *replica {
	f.t.Helper()
	proxy, err := kubeproxy.Start(f.kubeConfig)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(proxy.Close)
	if f.cutOff {
		proxy.Cut()
	}
	options := apiserver.DefaultOptions()
	if options.Kubeconfig, err = proxy.Kubeconfig(f.t.TempDir(), "replica"); err != nil {
		f.t.Fatal(err)
	}
	options.CredentialsNamespace = f.namespace
	options.RedisURL, options.RedisTimeout = storetest.UserURL(f.t, sharedRedis), storetest.Timeout
	options.PublicAddress, options.InternalAddress, options.Ops.Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	options.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000}
	options.DrainDelay = 0
	f.replicas++
	name := fmt.Sprintf("replica-%d", f.replicas)
	options.Log = slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("replica", name)
	for _, c := range change {
		c(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{t: f.t, name: name, proxy: proxy, log: f.log, client: client, cancel: cancel, ended: make(chan error, 1)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.ended <- apiserver.Run(ctx, options)
	}()
	f.t.Cleanup(func() {
		cancel()
		proxy.Restore()
		select {
		case <-stopped:
		case <-time.After(patience):
			f.t.Error("Run did not end")
		}
	})
	return r
}

// awaitProbes returns when probes are answered.
func (r *replica) awaitProbes() {
	r.t.Helper()
	eventually(r.t, "probes are answered", func() bool {
		select {
		case err := <-r.ended:
			r.t.Fatalf("Run ended: %v\n%s", err, r.log)
		default:
		}
		r.ops = r.listening("ops")
		return r.ops != ""
	})
}

// awaitReady returns when the replica serves requests.
func (r *replica) awaitReady() {
	r.t.Helper()
	r.awaitProbes()
	eventually(r.t, "the replica is ready", func() bool { return getStatus(r.ops+"/readyz") == http.StatusOK })
	r.url, r.internal = r.listening("public"), r.listening("internal")
}

// awaitChecked returns when the replica has compared its first list of keys with Redis, which runs scripts of its own.
func (r *replica) awaitChecked() {
	r.t.Helper()
	eventually(r.t, "the keys are checked", func() bool { return r.metric("merchant_operator_directory_unchecked_keys") == "0" })
}

// listening returns the base URL of a listener, from the log; empty as long as it is not open.
func (r *replica) listening(name string) string {
	for line := range strings.Lines(r.log.String()) {
		var entry struct {
			Message  string `json:"msg"`
			Replica  string `json:"replica"`
			Listener string `json:"for"`
			Address  string `json:"address"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "listening" &&
			entry.Replica == r.name && entry.Listener == name {
			return "http://" + entry.Address
		}
	}
	return ""
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, patience, what, holds)
}

// result is what a caller sees.
type result struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any // nil unless the answer is a JSON object
	last   bool           // on its connection
}

// call sends one request and checks the answer against the OpenAPI document. headers are pairs of
// name and value.
func (r *replica) call(method, path, key, body string, headers ...string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.send(request)
}

// report sends a rail's report to the internal listener and checks the answer against its document.
func (r *replica) report(sessionID, token, body string, headers ...string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, settlementPath(sessionID), token, body, headers...)
}

// railGet has a rail read a session.
func (r *replica) railGet(sessionID, token string) result {
	r.t.Helper()
	return r.internally(http.MethodGet, "/internal/v1/sessions/"+sessionID, token, "")
}

func (r *replica) hold(sessionID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, "/internal/v1/sessions/"+sessionID+"/hold", token, body)
}

func settlementPath(sessionID string) string {
	return "/internal/v1/sessions/" + sessionID + "/settlement"
}

func (r *replica) internally(method, path, token, body string, headers ...string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.internal+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.sendAs(internalDocument, request)
}

func (r *replica) send(request *http.Request) result {
	r.t.Helper()
	return r.sendAs(publicDocument, request)
}

func (r *replica) sendAs(document openapitest.Document, request *http.Request) result {
	r.t.Helper()
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := read(r.t, response)
	document.Check(r.t, request, got.status, got.header, got.raw)
	return got
}

// plain asks a listener the document is not about.
func plain(t *testing.T, method, url, key string) result {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
}

func read(t *testing.T, response *http.Response) result {
	t.Helper()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := result{status: response.StatusCode, header: response.Header, raw: raw, last: response.Close}
	if bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &got.body); err != nil {
			t.Fatalf("status %d with a body that is no JSON: %s", got.status, raw)
		}
	}
	return got
}

// client shows redirects instead of following them.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       patience,
}

// want fails the test unless the answer has the status.
func (a result) want(t *testing.T, status int) result {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

func (a result) wantError(t *testing.T, status int, message string) {
	t.Helper()
	if a.want(t, status).body["error"] != message {
		t.Errorf("error %q, want %q", a.body["error"], message)
	}
}

// text returns a field of the body.
func (a result) text(name string) string {
	value, _ := a.body[name].(string)
	return value
}

// getStatus is 0 when nothing answers.
func getStatus(url string) int {
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// paid and failure are reports of one payment, "bank-1".
func paid(amountCents int) string { return report("bank-1", "COMPLETED", amountCents) }

func failure(amountCents int) string { return report("bank-1", "FAILED", amountCents) }

func report(paymentRef, outcome string, amountCents int) string {
	return fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":%d}`, paymentRef, outcome, amountCents)
}

// rail makes a service account that may read and settle sessions and returns a token of it.
func (f *fixture) rail(name string) string {
	f.t.Helper()
	token := f.account(name)
	f.admit(name)
	return token
}

// account makes a service account without any rights and returns a token of it.
func (f *fixture) account(name string) string {
	f.t.Helper()
	accounts := kube.CoreV1().ServiceAccounts(f.namespace)
	if _, err := accounts.Create(f.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return f.token(name)
}

func (f *fixture) token(account string, audiences ...string) string {
	f.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := kube.CoreV1().ServiceAccounts(f.namespace).CreateToken(f.t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.issued = append(f.issued, issued.Status.Token)
	return issued.Status.Token
}

// admit lets the account read and settle sessions, as docs/rail.md says, until dismiss or the end of the test.
func (f *fixture) admit(name string) {
	f.t.Helper()
	f.allow(name, "/internal/v1/sessions/*", "/internal/v1/sessions/x/settlement", "post", "get")
}

// allow gives the account the verbs on a URL, until dismiss or the end of the test. The path is one of that URL.
func (f *fixture) allow(name, url, path string, verbs ...string) {
	f.t.Helper()
	object := metav1.ObjectMeta{Name: f.namespace + "-" + name}
	role := &rbacv1.ClusterRole{
		ObjectMeta: object,
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{url}, Verbs: verbs}},
	}
	if _, err := kube.RbacV1().ClusterRoles().Create(f.t.Context(), role, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: object,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: object.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: name}},
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(f.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.dismiss(name) })
	eventually(f.t, "the right is in force", func() bool { return f.may(name, verbs[0], path) })
}

// dismiss takes the right away, and returns when that is in force at the Kubernetes API.
func (f *fixture) dismiss(name string) {
	ctx := context.WithoutCancel(f.t.Context()) // also when the test is over
	_ = kube.RbacV1().ClusterRoleBindings().Delete(ctx, f.namespace+"-"+name, metav1.DeleteOptions{})
	_ = kube.RbacV1().ClusterRoles().Delete(ctx, f.namespace+"-"+name, metav1.DeleteOptions{})
	for _, path := range []string{"/internal/v1/sessions/x/settlement", rotationPath} {
		eventually(f.t, "the right is gone", func() bool { return !f.may(name, "post", path) && !f.may(name, "get", path) })
	}
}

func (f *fixture) may(name, verb, path string) bool {
	answer, err := kube.AuthorizationV1().SubjectAccessReviews().Create(context.WithoutCancel(f.t.Context()),
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + f.namespace + ":" + name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
		}}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed
}

// bodiesToKubernetes returns what replicas that start from now on send to the Kubernetes API.
func (f *fixture) bodiesToKubernetes() func() string {
	var sent logtest.Buffer
	f.kubeConfig = rest.CopyConfig(f.kubeConfig)
	f.kubeConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			var body []byte
			if r.Body != nil {
				body, _ = io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			fmt.Fprintf(&sent, "%s %s\n", r.URL, body)
			return next.RoundTrip(r)
		})
	})
	return sent.String
}

// create creates a session of 12.50.
func (r *replica) create(key string) (id string) {
	r.t.Helper()
	return r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(r.t, http.StatusCreated).text("sessionId")
}

const charge1250 = `{"amountCents": 1250}`

// hugeBody is more than a handler reads.
var hugeBody = `{"x":"` + strings.Repeat("x", 200_000) + `"}`
