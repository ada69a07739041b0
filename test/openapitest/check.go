package openapitest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Document checks responses against a Closed document.
type Document func() (routers.Router, error)

// NewDocument returns the Document of a file, which it reads once, when it is needed.
func NewDocument(file string) Document {
	return sync.OnceValues(func() (routers.Router, error) {
		closed, err := Closed(file)
		if err != nil {
			return nil, err
		}
		closed.Servers = nil // wherever a server of a test listens
		return legacy.NewRouter(closed)
	})
}

// transportHeaders are of HTTP itself and not in a document.
var transportHeaders = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date"}

// Check fails the test when a response is not as the document says: its status, each of its headers, its body. A request that the document
// has no operation for gets 404, 405 or the 204 of a preflight.
func (d Document) Check(t testing.TB, request *http.Request, status int, header http.Header, body []byte) {
	t.Helper()
	router, err := d()
	if err != nil {
		t.Fatal(err)
	}
	if request.Method == http.MethodHead {
		return // no body to check
	}
	asSent := request.Clone(t.Context())
	asSent.URL.Path, asSent.URL.RawPath = request.URL.EscapedPath(), "" // an escaped slash parts no segments
	route, parameters, err := router.FindRoute(asSent)
	// The router takes a trailing slash, and an empty last segment, for nothing; the API does not.
	if err != nil || strings.HasSuffix(asSent.URL.Path, "/") || strings.Count(asSent.URL.Path, "/") != strings.Count(route.Path, "/") {
		checkUndocumented(t, request, status, header, body)
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route},
		Status:                 status,
		Header:                 header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	input.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(t.Context(), input); err != nil {
		t.Errorf("%s %s, status %d, is not as documented: %v", request.Method, request.URL.Path, status, err)
		return
	}
	documented := slices.Clone(transportHeaders)
	for name := range route.Operation.Responses.Status(status).Value.Headers {
		documented = append(documented, http.CanonicalHeaderKey(name))
	}
	for name := range header {
		if !slices.Contains(documented, name) {
			t.Errorf("%s %s, status %d: the header %s is not documented", request.Method, request.URL.Path, status, name)
		}
	}
}

func checkUndocumented(t testing.TB, request *http.Request, status int, header http.Header, body []byte) {
	t.Helper()
	if request.Method == http.MethodOptions && status == http.StatusNoContent {
		return
	}
	code, ok := map[int]string{http.StatusNotFound: "path_not_found", http.StatusMethodNotAllowed: "method_not_allowed"}[status]
	if header.Get("Error-Code") != code {
		t.Errorf("%s %s: Error-Code %q, want %q", request.Method, request.URL.Path, header.Get("Error-Code"), code)
	}
	var problem map[string]string
	if err := json.Unmarshal(body, &problem); !ok || err != nil || problem["error"] == "" || len(problem) != 1 {
		t.Errorf("%s %s is not in the document, and the response is %d %s", request.Method, request.URL.Path, status, body)
	}
}
