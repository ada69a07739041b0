package authz_test

import (
	"context"
	"flag"
	"log"
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
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const (
	path = "/internal/v1/sessions/{id}/settlement"
	// lifetime is of the guards' verdicts, by a clock that only the tests move.
	lifetime = 10 * time.Second
	patience = 30 * time.Second
)

// sharedConfig is of the one API server; each test has a namespace of its own.
var sharedConfig *rest.Config

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	environment, stop, err := kubetest.New()
	if err != nil {
		log.Fatal(err)
	}
	sharedConfig = environment.Config
	sharedConfig.QPS = -1
	leaks.Run(m, stop)
}

// cluster is a namespace of the real API server, with what guards ask of it counted.
type cluster struct {
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

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, admin: kubernetes.NewForConfigOrDie(sharedConfig), now: time.Now()}
	namespace, err := c.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rails-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.namespace = namespace.Name
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *cluster) guard(change ...func(*authz.Options)) *authz.Guard {
	c.t.Helper()
	config := rest.CopyConfig(sharedConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			c.asked.Add(1)
			if c.onAsking != nil {
				c.onAsking()
			}
			if c.cut.Load() {
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
		Now:                  c.clock,
		Log:                  slog.New(slog.NewTextHandler(&c.log, nil)),
	}
	for _, f := range change {
		f(&options)
	}
	return authz.New(options)
}

func (c *cluster) clock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *cluster) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// account makes a service account without any rights and returns a token of it.
func (c *cluster) account(name string, audiences ...string) string {
	c.t.Helper()
	accounts := c.admin.CoreV1().ServiceAccounts(c.namespace)
	if _, err := accounts.Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return c.token(name, audiences...)
}

func (c *cluster) token(name string, audiences ...string) string {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := c.admin.CoreV1().ServiceAccounts(c.namespace).CreateToken(c.t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return issued.Status.Token
}

// allow lets the account post to the paths, and returns when that is in force.
func (c *cluster) allow(name string, paths ...string) {
	c.t.Helper()
	full := c.namespace + "-" + name
	c.t.Cleanup(func() { c.disallow(name) })
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: paths, Verbs: []string{"post"}}},
	}
	if _, err := c.admin.RbacV1().ClusterRoles().Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.namespace, Name: name}},
	}
	if _, err := c.admin.RbacV1().ClusterRoleBindings().Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	concrete := paths[0]
	if concrete[len(concrete)-1] == '*' {
		concrete = concrete[:len(concrete)-1] + "x"
	}
	await.Until(c.t, patience, "the right is in force", func() bool { return c.may(name, concrete) })
}

// disallow takes the right away again, and returns when that is in force.
func (c *cluster) disallow(name string) {
	ctx, full := context.WithoutCancel(c.t.Context()), c.namespace+"-"+name // also when the test is over
	_ = c.admin.RbacV1().ClusterRoleBindings().Delete(ctx, full, metav1.DeleteOptions{})
	_ = c.admin.RbacV1().ClusterRoles().Delete(ctx, full, metav1.DeleteOptions{})
	await.Until(c.t, patience, "the right is gone", func() bool { return !c.may(name, path) })
}

// may asks the API server itself.
func (c *cluster) may(name, path string) bool {
	answer, err := c.admin.AuthorizationV1().SubjectAccessReviews().Create(context.WithoutCancel(c.t.Context()), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + c.namespace + ":" + name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "post"},
		},
	}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed
}
