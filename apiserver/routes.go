package apiserver

import (
	_ "embed" // the document is a file that people read, too
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// api is what the public endpoints work with.
type api struct {
	edge

	directory   *directory.Directory
	store       *store.Store
	keys        publishedKeys
	clients     clientaddr.Resolver
	publicLimit ratelimit.Policy
	wrongKeys   *wrongKeys
	qrScheme    string
	now         func() time.Time
}

// publicHandler serves everything an ingress routes to. HEAD goes where GET goes, and OPTIONS of any
// /api/v1/ path is a preflight.
func (a *api) publicHandler() http.Handler {
	return a.observe(cors(a.canonical(a.mux(map[string]methods{
		"/api/v1/sessions":             {http.MethodPost: a.withKey(a.createSession)},
		"/api/v1/sessions/{id}":        {http.MethodGet: a.withKey(a.getSession)},
		"/api/v1/sessions/{id}/cancel": {http.MethodPost: a.withKey(a.cancelSession)},
		"/api/v1/public/sessions/{id}": {http.MethodGet: a.publicSession},
		"/api/v1/merchant/me":          {http.MethodGet: a.withKey(a.merchantMe)},
		"/api/v1/keys/rotate":          {http.MethodPost: a.withKey(a.rotateKey)},
		"/openapi.yaml":                {http.MethodGet: openAPI},
	}))))
}

// settlementPath is asked of the Kubernetes API as it stands here, for every session alike: with the
// session's id in it, each report would be a question of its own, and ids would get into the audit log.
const settlementPath = "/internal/v1/sessions/{id}/settlement"

// internalHandler serves rails inside the cluster. No ingress routes to it.
func (r *rails) internalHandler() http.Handler {
	return r.observe(r.canonical(r.mux(map[string]methods{
		settlementPath: {http.MethodPost: r.withToken(r.settle)},
	})))
}

// endpoint answers a request, or returns the error that errors.go has an answer for.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// methods are the endpoints of one path.
type methods map[string]endpoint

// mux routes by path and method, and answers what it cannot route in the shape of all errors, which
// the mux of net/http would not.
func (e edge) mux(routes map[string]methods) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, endpoints := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			serve, known := endpoints[r.Method]
			if r.Method == http.MethodHead {
				serve, known = endpoints[http.MethodGet]
			}
			if !known {
				w.Header().Set("Allow", endpoints.allow(pattern))
				e.refuse(w, r, errMethod)
				return
			}
			if err := serve(w, r); err != nil {
				e.refuse(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { e.refuse(w, r, errNoRoute) })
	return mux
}

// allow is the value of Allow (RFC 9110).
func (m methods) allow(pattern string) string {
	allowed := slices.Collect(maps.Keys(m))
	if _, ok := m[http.MethodGet]; ok {
		allowed = append(allowed, http.MethodHead)
	}
	if strings.HasPrefix(pattern, "/api/v1/") {
		allowed = append(allowed, http.MethodOptions)
	}
	slices.Sort(allowed)
	return strings.Join(allowed, ", ")
}

//go:embed openapi.yaml
var openAPIDocument []byte

// openAPI serves the description of this API.
func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIDocument)
	return nil
}
