package apiserver_test

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
)

// The documents of the public and of the internal listener.
var (
	publicDocument   = openapitest.NewDocument(openapitest.Public)
	internalDocument = openapitest.NewDocument(openapitest.Internal)
)

func TestDocuments_Served(t *testing.T) {
	t.Parallel()
	got := newFixture(t).start().call(http.MethodGet, "/openapi.yaml", "", "").want(t, http.StatusOK)
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.raw, want) {
		t.Error("another document is served than the one that is tested")
	}
}

// served finds the routes of routes.go: what is served is what is written there.
var served = regexp.MustCompile(`(?m)^\s*(?:((?:page\.)?[A-Za-z]+Path)|"(/[^"]+)"): +\{(.*)\},$`)

var routeMethod = regexp.MustCompile(`http\.Method([A-Z][a-z]+):`)

// The documents have every path with its methods, and no other: nobody protects an API that nobody knows.
func TestDocuments_EveryRoute(t *testing.T) {
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	var inCode []string
	for _, found := range served.FindAllStringSubmatch(string(source), -1) {
		path := found[2]
		if path == "" {
			path = map[string]string{"sessionPath": sessionRoute, "holdPath": holdRoute, "settlementPath": settlementRoute, "refundsPath": refundsRoute, "owedPath": owedRoute, "rotationPath": rotationPath, "signingPath": signingPath, "acceptedPath": rotation.AcceptedPath, "page.WidgetPath": page.WidgetPath}[found[1]]
		}
		for _, method := range routeMethod.FindAllStringSubmatch(found[3], -1) {
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

// The routes of rails.
const (
	sessionRoute    = "/internal/v1/sessions/{id}"
	holdRoute       = sessionRoute + "/hold"
	settlementRoute = sessionRoute + "/settlement"
	refundsRoute    = sessionRoute + "/refunds"
	owedRoute       = "/internal/v1/refunds"
)

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

// fieldInCode finds the fields of answers, and those that a body is asked for.
var fieldInCode = regexp.MustCompile("`json:\"([A-Za-z]+)[\",]|\\bfields\\.\\w+\\(\"([A-Za-z]+)\"")

// Each field that a handler reads or writes is in a document. (What an answer has is checked by openapitest, if a test sees it.)
func TestDocuments_EveryField(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range []string{"openapi.yaml", "internal-openapi.yaml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^ +([A-Za-z]+):|[{,] *([A-Za-z]+):`).FindAllStringSubmatch(string(content), -1) {
			documented[found[1]+found[2]] = true
		}
	}
	fields := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		pages := path == filepath.Join("payer", "page", "text.go") // HTML
		if err != nil || pages || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range fieldInCode.FindAllStringSubmatch(string(source), -1) {
			fields++
			if name := found[1] + found[2]; !documented[name] {
				t.Errorf("%s: the field %s is in no document", path, name)
			}
		}
		return err
	})
	if err != nil || fields < 40 {
		t.Errorf("%d fields, %v", fields, err)
	}
}

var (
	codeInSource   = regexp.MustCompile(`(?:http\.Status\w+, |Code: )"([a-z_]+)",`)
	codesInSchemas = regexp.MustCompile(`Error-Code: \{.*enum: \[(.*)\]`)
)

// The documents list each word of Error-Code, each response lists its own words, and the page for developers those of the public listener.
func TestDocuments_EveryErrorCode(t *testing.T) {
	text := func(file string) string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	var served []string
	for _, found := range codeInSource.FindAllStringSubmatch(text("errors.go"), -1) {
		served = append(served, found[1])
	}
	documented := []string{"method_not_allowed"} // of no operation
	for document, page := range map[string]string{"openapi.yaml": "../docs/api.md", "internal-openapi.yaml": "../docs/rail.md ../docs/rotation-api.md"} {
		var explained strings.Builder
		for file := range strings.FieldsSeq(page) {
			explained.WriteString(text(file))
		}
		for _, found := range codesInSchemas.FindAllStringSubmatch(text(document), -1) {
			for code := range strings.SplitSeq(found[1], ", ") {
				documented = append(documented, code)
				if !strings.Contains(explained.String(), "`"+code+"`") {
					t.Errorf("%s of %s is not explained in %s", code, document, page)
				}
			}
		}
	}
	slices.Sort(served)
	served = slices.Compact(served)
	slices.Sort(documented)
	if documented = slices.Compact(documented); !slices.Equal(served, documented) {
		t.Errorf("served:\n%s\ndocumented:\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}
