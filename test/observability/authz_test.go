package observability

import (
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An account that Kubernetes knows and that has no right to the metrics.
func stranger(t *testing.T) (account *corev1.ServiceAccount, token string) {
	t.Helper()
	account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", GenerateName: "stranger-"}}
	if err := shared.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := shared.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return account, request.Status.Token
}

func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	_, token := stranger(t)
	for _, role := range roles() {
		for _, test := range []struct {
			what, path, token string
			want              int
		}{
			{"the reader's token", "/metrics", shared.token, http.StatusOK},
			{"no token", "/metrics", "", http.StatusUnauthorized},
			{"a forged token", "/metrics", shared.token[:len(shared.token)-4] + "AAAA", http.StatusUnauthorized},
			{"a key of ours", "/metrics", badKey, http.StatusUnauthorized},
			{"a stranger's token", "/metrics", token, http.StatusForbidden},
			{"no token, and probes", "/healthz", "", http.StatusOK},
			{"no token, and probes", "/readyz", "", http.StatusOK},
		} {
			status, text, err := shared.get(role, test.path, test.token)
			if err != nil || status != test.want {
				t.Errorf("%s: %s with %s: %d, want %d (%v)", role, test.path, test.what, status, test.want, err)
			}
			if status != http.StatusOK && strings.Contains(text, "go_goroutines") {
				t.Errorf("%s: metrics with %s", role, test.what)
			}
		}
		inTheClear := strings.Replace(shared.ops[role], "https://", "http://", 1)
		if answer, err := http.Get(inTheClear + "/metrics"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: metrics are served in the clear: %d", role, answer.StatusCode)
			}
		}
	}
}

// Who may read the metrics may not take profiles, which slow a process down: that is a right of its own.
func TestProfilesAreForThoseWhoMayTakeThem(t *testing.T) {
	account, token := stranger(t)
	profiler, profilersToken := stranger(t)
	name := "profilers-" + profiler.Name
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: profiler.Namespace, Name: profiler.Name}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := shared.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range roles() {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/profile?seconds=1"} {
			for _, test := range []struct {
				who, token string
				want       int
			}{
				{"nobody", "", http.StatusUnauthorized},
				{"a reader of metrics", shared.token, http.StatusForbidden},
				{account.Name, token, http.StatusForbidden},
			} {
				status, _, err := shared.get(role, path, test.token)
				if err != nil || status != test.want {
					t.Errorf("%s: %s by %s: %d, want %d (%v)", role, path, test.who, status, test.want, err)
				}
			}
		}
		// A right takes a moment to be in force everywhere, and a refusal is remembered for a minute: nobody asked before.
		status, text, err := shared.get(role, "/debug/pprof/goroutine?debug=1", profilersToken)
		if err != nil || status != http.StatusOK || !strings.Contains(text, "goroutine profile:") {
			t.Errorf("%s: goroutines by who may: %d, %.80q, %v", role, status, text, err)
		}
		if status, _, err := shared.get(role, "/debug/pprof/cmdline", profilersToken); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: the command line: %d, want 404 (%v)", role, status, err)
		}
	}
}
