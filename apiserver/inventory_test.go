package apiserver_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// served finds the routes of routes.go: what is served is what is written there.
var served = regexp.MustCompile(`(?m)^\s*(?:settlementPath|"(/[^"]+)"): +\{(.*)\},$`)

var methodOfRoute = regexp.MustCompile(`http\.Method([A-Z][a-z]+):`)

// An API that nobody knows of is one that nobody guards: the documents name every path with its methods, and nothing else is there.
func TestTheDocumentsNameWhatIsServed(t *testing.T) {
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	var inCode []string
	for _, found := range served.FindAllStringSubmatch(string(source), -1) {
		path := found[1]
		if path == "" {
			path = settlementRoute
		}
		for _, method := range methodOfRoute.FindAllStringSubmatch(found[2], -1) {
			inCode = append(inCode, strings.ToUpper(method[1])+" "+strings.ReplaceAll(path, "{id}", "{sessionId}"))
		}
	}
	documented := slices.Concat(operations(t, "openapi.yaml"), operations(t, "internal-openapi.yaml"))
	slices.Sort(inCode)
	slices.Sort(documented)
	if !slices.Equal(inCode, documented) {
		t.Errorf("served:\n%s\ndocumented:\n%s", strings.Join(inCode, "\n"), strings.Join(documented, "\n"))
	}
}

const settlementRoute = "/internal/v1/sessions/{id}/settlement"

// operations are the methods and paths of a document, without the preflights that go with every path.
func operations(t *testing.T, file string) []string {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for path, item := range document.Paths.Map() {
		for method := range maps.Keys(item.Operations()) {
			if method != http.MethodOptions {
				all = append(all, method+" "+path)
			}
		}
	}
	return all
}

func TestEveryAnswerHasTheHeadersThatProtectIt(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, operation := range append(operations(t, "openapi.yaml"), "GET /nothing", "DELETE /api/v1/sessions", "OPTIONS /api/v1/sessions") {
		method, path, _ := strings.Cut(operation, " ")
		for _, presented := range []string{"", key + "x", key} {
			got := r.call(method, strings.ReplaceAll(path, "{sessionId}", "ps_00"), presented, "{}")
			if sniff := got.header.Get("X-Content-Type-Options"); sniff != "nosniff" {
				t.Errorf("%s: %d has X-Content-Type-Options %q", operation, got.status, sniff)
			}
			if kept := got.header.Get("Cache-Control"); kept != "no-store" && path != "/openapi.yaml" {
				t.Errorf("%s: %d has Cache-Control %q", operation, got.status, kept)
			}
			for _, telling := range []string{"Server", "X-Powered-By", "Set-Cookie", "Access-Control-Allow-Credentials"} {
				if got.header.Get(telling) != "" {
					t.Errorf("%s: %d has %s", operation, got.status, telling)
				}
			}
			if got.status == http.StatusOK && strings.HasSuffix(path, "/rotate") {
				key = got.text("fullKey")
			}
		}
	}
}
