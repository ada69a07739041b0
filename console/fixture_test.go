package console

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const patience = 30 * time.Second

// What all tests share. Each has a namespace, a Redis and a console of its own.
var (
	cluster    *kubetest.Cluster
	identities *oidctest.Provider
)

// People at the provider.
var (
	alice = oidctest.User{Username: "alice", Password: "correct horse", Email: "alice@shop.example", Name: "Alice Ames", Groups: []string{"shop-staff"}}
	// bob has no rights in any test, and lands on the list of merchants. Tests run at the same
	// time, on one Kubernetes API: alice may see a merchant of another one.
	bob  = oidctest.User{Username: "bob", Password: "battery staple", Email: "bob@shop.example", Name: "Bob"}
	many = oidctest.User{Username: "many", Password: "groups", Name: "Many", Groups: manyGroups()}
	// dora has a right in one test only.
	dora = oidctest.User{Username: "dora", Password: "one shop", Name: "Dora"}
	// erin has a right on the merchants of all tests.
	erin = oidctest.User{Username: "erin", Password: "all shops", Name: "Erin"}
	// Mallory's provider lets everybody choose their own groups and name.
	mallory = oidctest.User{Username: "mallory", Password: "m", Name: "<script>alert(1)</script>", Groups: []string{"system:masters"}}
)

func manyGroups() (groups []string) {
	for i := range 500 {
		groups = append(groups, "a-group-with-a-rather-long-name-"+strconv.Itoa(i))
	}
	return append(groups, "shop-staff")
}

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	ctrllog.SetLogger(logr.Discard())
	c, stop, err := kubetest.NewCluster()
	cluster = c
	stopProvider := func() error { return nil }
	if err == nil {
		identities, stopProvider, err = oidctest.New(c.Dir, alice, bob, dora, erin, many, mallory)
	}
	if err == nil {
		err = cluster.InstallRBAC()
	}
	if err != nil {
		log.Fatal(errors.Join(err, stopProvider(), stop()))
	}
	leaks.Run(m, func() error { return errors.Join(stopProvider(), stop()) })
}

// fixture is a console with a Redis, and a namespace for its merchants.
type fixture struct {
	*console

	t         *testing.T
	URL       string
	options   Options
	redis     *redistest.Server
	store     *store.Store
	outbox    *outbox.Outbox
	namespace string
	log       logtest.Buffer
	internal  atomic.Pointer[http.Handler] // the internal port of the API
	// accepted responds to who asks which keys are accepted; nil: all.
	accepted atomic.Pointer[http.HandlerFunc]

	mu  sync.Mutex
	day time.Duration // how far the console's clock is ahead

	// keysRead are the console's reads of ApiKeys, and readBytes the bytes of all answers of the
	// Kubernetes API that came into its memory.
	keysRead, readBytes atomic.Int64
}

// countingTransport counts what the console reads of the Kubernetes API.
type countingTransport struct {
	http.RoundTripper

	f *fixture
}

func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/apikeys") {
			t.f.keysRead.Add(1)
		}
		response.Body = countingBody{response.Body, t.f}
	}
	return response, err
}

type countingBody struct {
	io.ReadCloser

	f *fixture
}

func (b countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.f.readBytes.Add(int64(n))
	return n, err
}

func newFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, redis: redistest.Start(t)}
	server := httptest.NewUnstartedServer(nil)
	options := DefaultOptions()
	options.RedisURL = f.redis.URL()
	options.ExternalURL = "http://" + server.Listener.Addr().String()
	f.serveInternal(http.NotFoundHandler())
	internal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.internal.Load()).ServeHTTP(w, r) }))
	t.Cleanup(internal.Close)
	options.APIURL, options.InternalURL = "https://pay.example", internal.URL
	options.Provider = ProviderOptions{
		IssuerURL: identities.Issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Scopes: []string{"profile"},
		UsernameClaim: "sub", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "oidc:",
	}
	options.Log, options.Now = slog.New(slog.NewTextHandler(&f.log, nil)), f.clock
	for _, c := range change {
		c(&options)
	}
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	f.options = options
	connection, config := storetest.Client(t, f.redis.URL()), f.account()
	f.store, f.outbox = storetest.Store(t, connection), outbox.New(connection)
	core, err := kube.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	f.console, err = newConsole(options, &role.Role{Registry: prometheus.NewRegistry(), Redis: connection, Cluster: config, Kube: core})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = f.objects.Cache.Start(t.Context()) }()
	if err := f.objects.AwaitCache(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = f.handler()
	server.Start()
	t.Cleanup(server.Close)
	f.URL = server.URL

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shops-"}}
	if err := cluster.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	f.namespace = namespace.Name
	t.Cleanup(func() { // rights stay: without Merchants they open nothing to other tests
		for _, left := range []client.Object{&v1alpha1.Merchant{}, &v1alpha1.ApiKey{}} {
			if err := cluster.Client.DeleteAllOf(context.WithoutCancel(t.Context()), left, client.InNamespace(f.namespace)); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

// serveInternal plays the internal port of the API: it accepts the keys of f.accepted, and all as long as that is nil; the handler responds to
// other requests.
func (f *fixture) serveInternal(others http.Handler) {
	f.t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", others)
	mux.HandleFunc("GET "+rotation.AcceptedPath, func(w http.ResponseWriter, r *http.Request) {
		if accepted := f.accepted.Load(); accepted != nil {
			(*accepted)(w, r)
			return
		}
		respondAccepted(w, v1alpha1.MerchantActive, r.URL.Query()["key"]...)
	})
	var handler http.Handler = mux
	f.internal.Store(&handler)
}

// respondAccepted writes what the API says is in force.
func respondAccepted(w http.ResponseWriter, merchant v1alpha1.MerchantState, keys ...string) {
	answer := rotation.Accepted{MerchantState: merchant, Keys: []types.UID{}}
	for _, uid := range keys {
		answer.Keys = append(answer.Keys, types.UID(uid))
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err) // of a test
	}
}

// account signs in as the console's service account, without limits of its own, as kube.Load does.
func (f *fixture) account() *rest.Config {
	f.t.Helper()
	account, err := cluster.Account("merchant-operator-console")
	if err != nil {
		f.t.Fatal(err)
	}
	config := rest.CopyConfig(account.Config())
	config.QPS = -1
	kube.Slim(config, role.Keep())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, f} })
	return config
}

// newReviewer has decided nothing yet.
func (f *fixture) newReviewer(config *rest.Config) *authz.Reviewer {
	f.t.Helper()
	core, err := kube.Client(config)
	if err != nil {
		f.t.Fatal(err)
	}
	return authz.NewReviewer(core.AuthorizationV1().SubjectAccessReviews(), f.options.RightsLifetime, f.clock)
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.day)
}

func (f *fixture) advance(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.day += by
}

// signIn returns a browser in which the user has signed in.
func (f *fixture) signedIn(user oidctest.User) oidctest.Browser {
	f.t.Helper()
	browser := oidctest.NewBrowser(f.t)
	page := identities.SignIn(f.t, browser, f.URL+"/?all=yes", user)
	if page.Status != http.StatusOK || page.URL.String() != f.URL+"/?all=yes" {
		f.t.Fatalf("signing in leads to %s with %d: %s\n%s", page.URL, page.Status, page.Text, &f.log)
	}
	return browser
}

// merchant creates a Merchant, and waits until the console lists it.
func (f *fixture) merchant(name string, change ...func(*v1alpha1.Merchant)) *v1alpha1.Merchant {
	f.t.Helper()
	m := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: v1alpha1.MerchantSpec{DisplayName: strings.ToUpper(name)}}
	for _, c := range change {
		c(m)
	}
	f.create(m)
	await.Until(f.t, patience, "the console knows the Merchant", func() bool {
		return f.objects.Cache.Get(f.t.Context(), client.ObjectKeyFromObject(m), &v1alpha1.Merchant{}) == nil
	})
	return m
}

// create creates the object, and waits until the console knows it, if it is an ApiKey.
func (f *fixture) create(object client.Object) {
	f.t.Helper()
	if err := cluster.Client.Create(f.t.Context(), object); err != nil {
		f.t.Fatal(err)
	}
	if key, ok := object.(*v1alpha1.ApiKey); ok {
		await.Until(f.t, patience, "the console knows the ApiKey", func() bool {
			return f.objects.Cache.Get(f.t.Context(), client.ObjectKeyFromObject(key), &v1alpha1.ApiKey{}) == nil
		})
	}
}

// stored returns the Merchant as it is now.
func (f *fixture) stored(merchant *v1alpha1.Merchant) *v1alpha1.Merchant {
	f.t.Helper()
	var now v1alpha1.Merchant
	if err := cluster.Client.Get(f.t.Context(), client.ObjectKeyFromObject(merchant), &now); err != nil {
		f.t.Fatal(err)
	}
	return &now
}

// grant gives a user or group verbs on Merchants of the namespace, all of them without names, and waits until that is in force.
func (f *fixture) grant(subject rbacv1.Subject, verbs []string, names ...string) *rbacv1.RoleBinding {
	f.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "merchant-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"merchant-operator.io"}, Resources: []string{"merchants"}, Verbs: verbs, ResourceNames: names}},
	}
	f.create(role)
	subject.APIGroup = rbacv1.GroupName
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "merchant-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	}
	f.create(binding)
	who := authz.NewSubject(subject.Name, nil)
	if subject.Kind == rbacv1.GroupKind {
		who = authz.NewSubject("anybody", []string{subject.Name})
	}
	f.awaitRight(who, verbs[0], true, append(names, "any")[0])
	f.advance(f.options.RightsLifetime) // the console may have cached that there is no right
	return binding
}

// awaitRight asks beside the cache of the console.
func (f *fixture) awaitRight(who authz.Subject, verb string, want bool, name string) {
	f.t.Helper()
	config := f.account()
	await.Until(f.t, patience, "the right is in force", func() bool {
		beside := rights.Reviewer{Reviews: f.newReviewer(config)}
		allowed, err := beside.May(f.t.Context(), who, verb, f.namespace, name)
		return err == nil && allowed == want
	})
}

func user(u oidctest.User) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, Name: "oidc:" + u.Username}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "oidc:" + name}
}
