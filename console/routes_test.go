package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Each verb opens its own pages and forms, and no others.
func TestRoutes_Rights(t *testing.T) {
	needs := map[string][]string{ // by verb
		"issuekeys":     {"GET /new-key", "POST /new-key", "GET /keys/K/disable", "POST /keys/K/disable", "GET /keys/K/delete", "POST /keys/K/delete"},
		"rotatekeys":    {"GET /keys/K/rotate", "POST /keys/K/rotate"},
		"editallowlist": {"GET /allowlist", "POST /allowlist"},
		"editwebhook": {
			"GET /webhook", "POST /webhook", "POST /webhook/resume", "GET /webhook/rotate-secret", "POST /webhook/rotate-secret",
			"GET /dead-letters/resend", "POST /dead-letters/resend",
		},
	}
	f := newFixture(t)
	for verb := range needs {
		f.merchant(verb, withWebhook)
		f.create(&v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: verb}, Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: verb}},
		})
		f.grant(user(alice), []string{"get", verb}, verb)
	}
	browser := f.signedIn(alice)
	for has := range needs {
		for verb, patterns := range needs {
			for _, pattern := range patterns {
				method, path, _ := strings.Cut(pattern, " ")
				request := httptest.NewRequest(method, f.URL+"/merchants/"+f.namespace+"/"+has+strings.Replace(path, "K", has, 1), nil)
				request.RequestURI = ""
				request.Header.Set("Sec-Fetch-Site", "same-origin")
				page := browser.Do(t, request)
				if refused := page.Status == http.StatusForbidden; refused != (verb != has) {
					t.Errorf("%s with the verb %s: %d, needs %s", pattern, has, page.Status, verb)
				}
			}
		}
	}
}
