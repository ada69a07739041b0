package console

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var routeInCode = regexp.MustCompile(`r\.on(Merchant|Spec|Key)(?:InTurn)?\("([A-Z]+)", "([^"]*)"`)

// merchantRoutes are the methods and paths of routes.go below a Merchant, with K for a key and P for a payment.
func merchantRoutes(t *testing.T) (routes []string) {
	t.Helper()
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range routeInCode.FindAllStringSubmatch(string(source), -1) {
		path := strings.Replace(found[3], "{payment}", "P", 1)
		if found[1] == "Key" {
			path = "/keys/K" + path
		}
		routes = append(routes, found[2]+" "+path)
	}
	return routes
}

// Each verb opens its own pages and forms, and no others.
func TestRoutes_Rights(t *testing.T) {
	t.Parallel()
	needs := map[string][]string{ // by verb
		"get":            {"GET "},
		"viewpayments":   {"GET /payments", "GET /payments/P", "GET /payments.csv", "GET /payments.xlsx"},
		"refundpayments": {"GET /payments/P/refund", "POST /payments/P/refund"},
		"issuekeys":      {"GET /new-key", "POST /new-key", "GET /keys/K/disable", "POST /keys/K/disable", "GET /keys/K/enable", "POST /keys/K/enable", "GET /keys/K/delete", "POST /keys/K/delete"},
		"rotatekeys":     {"GET /keys/K/rotate", "POST /keys/K/rotate"},
		"editallowlist":  {"GET /allowlist", "POST /allowlist"},
		"editwebhook": {
			"GET /webhook", "POST /webhook", "POST /webhook/resume", "GET /webhook/test", "POST /webhook/test", "GET /webhook/rotate-secret", "POST /webhook/rotate-secret",
			"GET /dead-letters/resend", "POST /dead-letters/resend",
		},
	}
	known := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(needs))...)))
	if diff := cmp.Diff(slices.Sorted(slices.Values(merchantRoutes(t))), known); diff != "" {
		t.Errorf("routes, and those that are tried (-routes +tried):\n%s", diff)
	}
	f := newFixture(t)
	f.webhook.AnswerTimeout = time.Millisecond // nothing delivers the test event
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
				refused := page.Status == http.StatusForbidden
				if verb == "viewpayments" { // what a person may not see is missing
					refused = page.Status == http.StatusNotFound && !strings.Contains(page.Text, "No such payment")
				}
				if refused != (verb != has && verb != "get") {
					t.Errorf("%s with the verb %s: %d, needs %s", pattern, has, page.Status, verb)
				}
			}
		}
	}
}
