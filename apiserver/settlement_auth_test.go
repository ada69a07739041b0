package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const (
	notAccepted = "missing or invalid token"
	notAllowed  = "account is not allowed to use this path"
)

func TestWhoMaySettle(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, stranger := f.rail("bank"), f.account("stranger")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")

	for name, authorization := range map[string][]string{
		"no header":            nil,
		"an empty one":         {""},
		"no token":             {"Bearer "},
		"another scheme":       {"Basic " + rail},
		"no scheme":            {rail},
		"two tokens":           {"Bearer " + rail, "Bearer " + rail},
		"two in one":           {"Bearer " + rail + ", Bearer " + rail},
		"a merchant's API key": {"Bearer " + key},
		"a forged token":       {"Bearer " + rail[:len(rail)-8] + "AAAAAAAA"},
		"nonsense":             {"Bearer a.b.c"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, line := range authorization {
				headers = append(headers, "Authorization", line)
			}
			got := r.report(id, "", paid(1), headers...)
			got.wantError(t, http.StatusUnauthorized, notAccepted)
			if got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate %q", got.header.Get("WWW-Authenticate"))
			}
		})
	}
	r.report(id, stranger, paid(1)).wantError(t, http.StatusForbidden, notAllowed)

	// Whoever may not settle learns nothing of sessions or reports.
	for _, path := range []string{id, "ps_aaaaaaaaaaaa000000000000000000", "x"} {
		for _, body := range []string{paid(1), `{`, badReports["200 KB"].body} {
			r.report(path, "", body).wantError(t, http.StatusUnauthorized, notAccepted)
			r.report(path, stranger, body).wantError(t, http.StatusForbidden, notAllowed)
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
	r.report(id, "", paid(1), "Authorization", "bearer  "+rail).want(t, http.StatusOK)
}

// briefly disables the cache of decisions about rails.
func briefly(o *apiserver.Options) { o.InternalCacheTTL = time.Nanosecond }

func TestARailThatIsDismissed(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(briefly)
	const missing = "ps_aaaaaaaaaaaa000000000000000000"
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
	f.dismiss("bank")
	r.report(missing, rail, paid(1)).wantError(t, http.StatusForbidden, notAllowed)
	f.admit("bank")
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
}

func TestRailsWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, unknown := f.rail("bank"), f.rail("unknown")
	remembering := f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	forgetful := f.start(briefly)
	id := remembering.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, r := range []*replica{remembering, forgetful} {
		r.report("x", rail, "").want(t, http.StatusNotFound)
		r.proxy.Cut()
	}
	for _, got := range []result{remembering.report(id, unknown, paid(1)), forgetful.report(id, rail, paid(1))} {
		got.wantError(t, http.StatusServiceUnavailable, unavailable)
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	remembering.report(id, rail, paid(1)).want(t, http.StatusOK)
	forgetful.proxy.Mend()
	forgetful.report(id, rail, paid(1)).want(t, http.StatusOK)
}

func TestTheAudienceOfRails(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.InternalAudience = "settlements" })
	r.report("x", rail, "").wantError(t, http.StatusUnauthorized, notAccepted)
	r.report("x", f.token("bank", "settlements"), "").want(t, http.StatusNotFound)
}

// The Kubernetes API keeps an audit log, and a session's id is a payer's capability.
func TestTheKubernetesAPILearnsNoSessionID(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	asked := f.bodiesToKubernetes()
	r := f.start(briefly)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.railGet(id, rail).want(t, http.StatusOK)
	r.hold(id, rail, `{"paymentRef":"a","seconds":1}`).want(t, http.StatusConflict)
	r.refund(id, rail, refundBody("bank-1", "back-1", 1)).want(t, http.StatusOK)
	all := asked()
	if !strings.Contains(all, "subjectaccessreviews") || strings.Contains(all, id[5:]) {
		t.Errorf("the Kubernetes API was asked:\n%s", all)
	}
}

const reportAgain = "temporarily unavailable; send the same report again"

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
