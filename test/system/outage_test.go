package system

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheDataPlaneServesWithoutTheKubernetesAPI cuts one replica off. It knows whom to serve; only
// what needs the Kubernetes API is refused, and honestly.
func TestTheDataPlaneServesWithoutTheKubernetesAPI(t *testing.T) {
	s := newTenant(t)
	_, key := s.till()
	const cut = 1
	shared.proxies[cut].Cut()
	t.Cleanup(shared.proxies[cut].Mend)

	created := s.want(s.call(cut, http.MethodPost, sessions, key, `{"amountCents":100}`), http.StatusCreated)
	s.want(s.call(cut, http.MethodGet, "/api/v1/public/sessions/"+created.Body["sessionId"].(string), "", ""), http.StatusOK)
	refused := s.want(s.call(cut, http.MethodPost, rotate, key, ""), http.StatusServiceUnavailable)
	if refused.Header.Get("Retry-After") == "" || strings.Contains(string(refused.Raw), "mk_live_") {
		t.Errorf("a rotation without the Kubernetes API: %v %s", refused.Header, refused.Raw)
	}
	s.want(s.call(cut, http.MethodGet, me, key, ""), http.StatusOK)

	rotated := s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK)
	s.want(s.call(cut, http.MethodGet, me, key, ""), http.StatusUnauthorized)
	next := rotated.Body["fullKey"].(string)
	s.want(s.call(cut, http.MethodGet, me, next, ""), http.StatusOK)

	shared.proxies[cut].Mend()
	s.Eventually("the replica rotates again", func() bool {
		return s.call(cut, http.MethodPost, rotate, next, "").Status == http.StatusOK
	})
}
