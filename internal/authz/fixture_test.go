package authz_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const (
	path = "/internal/v1/sessions/{id}/settlement"
	// lifetime of cached decisions; only tests advance the clock.
	lifetime = 10 * time.Second
	patience = 30 * time.Second
)

// sharedConfig is of the one API server; each test has a namespace of its own.
var sharedConfig *rest.Config

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		sharedConfig = c.Environment.Config
		sharedConfig.QPS = -1
		return nil
	})
}

// fixture is a namespace of the real API server, with what guards ask of it counted.
type fixture struct {
	t         *testing.T
	admin     *kubernetes.Clientset
	namespace string

	log      logtest.Buffer
	asked    atomic.Int64 // requests of guards
	cut      atomic.Bool  // guards cannot reach the API server
	onAsking func()       // is called before each request of a guard, if it is set

	mu  sync.Mutex
	now time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{
		t: t, admin: kubernetes.NewForConfigOrDie(sharedConfig), namespace: kubetest.Namespace(t, sharedConfig, "rails-"), now: time.Now(),
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (f *fixture) guard(change ...func(*authz.Options)) *authz.Guard {
	f.t.Helper()
	config := rest.CopyConfig(sharedConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			f.asked.Add(1)
			if f.onAsking != nil {
				f.onAsking()
			}
			if f.cut.Load() {
				return nil, http.ErrServerClosed
			}
			return next.RoundTrip(r)
		})
	})
	client := kubernetes.NewForConfigOrDie(config)
	options := authz.Options{
		TokenReviews:         client.AuthenticationV1().TokenReviews(),
		SubjectAccessReviews: client.AuthorizationV1().SubjectAccessReviews(),
		Verb:                 "post",
		Path:                 path,
		Lifetime:             lifetime,
		Now:                  f.clock,
		Log:                  slog.New(slog.NewTextHandler(&f.log, nil)),
	}
	for _, f := range change {
		f(&options)
	}
	return authz.New(options)
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) advance(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(by)
}

// account makes a service account without any rights and returns a token of it.
func (f *fixture) account(name string, audiences ...string) string {
	f.t.Helper()
	accounts := f.admin.CoreV1().ServiceAccounts(f.namespace)
	if _, err := accounts.Create(f.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return f.token(name, audiences...)
}

func (f *fixture) token(name string, audiences ...string) string {
	f.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := f.admin.CoreV1().ServiceAccounts(f.namespace).CreateToken(f.t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return issued.Status.Token
}

// allow lets the account post to the paths, and returns when that is in force.
func (f *fixture) allow(name string, paths ...string) {
	f.t.Helper()
	full := f.namespace + "-" + name
	f.t.Cleanup(func() { f.disallow(name) })
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: paths, Verbs: []string{"post"}}},
	}
	if _, err := f.admin.RbacV1().ClusterRoles().Create(f.t.Context(), role, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: name}},
	}
	if _, err := f.admin.RbacV1().ClusterRoleBindings().Create(f.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	concrete := paths[0]
	if concrete[len(concrete)-1] == '*' {
		concrete = concrete[:len(concrete)-1] + "x"
	}
	await.Until(f.t, patience, "the right is in force", func() bool { return f.may(name, concrete) })
}

// disallow takes the right away again, and returns when that is in force.
func (f *fixture) disallow(name string) {
	ctx, full := context.WithoutCancel(f.t.Context()), f.namespace+"-"+name // also when the test is over
	_ = f.admin.RbacV1().ClusterRoleBindings().Delete(ctx, full, metav1.DeleteOptions{})
	_ = f.admin.RbacV1().ClusterRoles().Delete(ctx, full, metav1.DeleteOptions{})
	await.Until(f.t, patience, "the right is gone", func() bool { return !f.may(name, path) })
}

// may asks the API server itself.
func (f *fixture) may(name, path string) bool {
	answer, err := f.admin.AuthorizationV1().SubjectAccessReviews().Create(context.WithoutCancel(f.t.Context()), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + f.namespace + ":" + name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "post"},
		},
	}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed
}
