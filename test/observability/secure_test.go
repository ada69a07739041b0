package observability

import (
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An account that Kubernetes knows and that has no right to the metrics.
func stranger(t *testing.T) (token string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", GenerateName: "stranger-"}}
	if err := shared.kube.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := shared.kube.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	token := stranger(t)
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
			status, text, err := shared.get(t.Context(), role, test.path, test.token)
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
