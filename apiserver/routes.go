package apiserver

import (
	_ "embed" // the document is a file that people read, too
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// publicAPI has the handlers of the public listener.
type publicAPI struct {
	base

	directory   *directory.Directory
	store       *store.Store
	rotator     rotator
	clients     clientaddr.Resolver
	publicLimit ratelimit.Policy
	publicReads *ratelimit.Limiter // of addresses, by publicLimit
	payers      *payerQueues
	live        *live.Hub
	streams     *streams
	wrongKeys   *wrongKeys
	refusedKeys *refusedKeyLog // nil: refused keys are not logged
	blocked     *blockedAddresses
	pages       *payerPages
	qrScheme    string
	now         func() time.Time
}

// publicHandler serves the routes of the public listener. HEAD is handled by GET, and OPTIONS of any /api/v1/ path is a CORS
// preflight.
func (a *publicAPI) publicHandler() http.Handler {
	routes := a.mux(map[string]methods{
		"/api/v1/sessions":                  {http.MethodPost: a.withKey(a.createSession)},
		"/api/v1/sessions/{id}":             {http.MethodGet: a.withKey(a.getSession)},
		"/api/v1/sessions/{id}/cancel":      {http.MethodPost: a.withKey(a.cancelSession)},
		"/api/v1/test/sessions/{id}/settle": {http.MethodPost: a.withKey(a.settleTestSession)},
		"/api/v1/public/sessions/{id}":      {http.MethodGet: a.publicSession},
		"/api/v1/merchant/me":               {http.MethodGet: a.withKey(a.merchantMe)},
		"/api/v1/keys/rotate":               {http.MethodPost: a.withCurrentKey(a.rotateKey)},
		"/pay/{id}":                         {http.MethodGet: a.page(a.paymentPage)},
		"/pay/{id}/qr.svg":                  {http.MethodGet: a.page(a.qrCode)},
		"/pay/static/{version}/{file}":      {http.MethodGet: a.pageAsset},
		payer.WidgetPath:                    {http.MethodGet: a.widget},
		"/openapi.yaml":                     {http.MethodGet: openAPI},
	})
	return a.observe(cors(a.canonical(routes)))
}

// The paths of the internal listener. Each is also the path of a SubjectAccessReview, literally and for every session or key. With
// session ids each report would need a review of its own, and ids would get into the audit log.
const (
	settlementPath = "/internal/v1/sessions/{id}/settlement"
	rotationPath   = contract.Path
)

// internalHandler serves the routes of the internal listener, for rails and for those who issue keys.
func (r *internalAPI) internalHandler() http.Handler {
	return r.observe(r.canonical(r.mux(map[string]methods{
		settlementPath: {http.MethodPost: r.withToken(settlementPath, r.settle)},
		rotationPath:   {http.MethodPost: r.confidentially(r.withToken(rotationPath, r.rotateKey))},
	})))
}

var errNoRoute = errors.New("path not found")

// methodError is a method that the path does not have. It says which ones it has.
type methodError struct{ methods []string }

func (e methodError) Error() string {
	return "method not allowed; use " + strings.Join(e.methods, " or ")
}

// handler responds to a request, or returns an error for respondError.
type handler func(w http.ResponseWriter, r *http.Request) error

// methods are the handlers of one path.
type methods map[string]handler

// mux routes by path and method. Unlike the mux of net/http, it responds to other requests with a JSON error.
func (b base) mux(routes map[string]methods) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handlers := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			serve, known := handlers[r.Method]
			if r.Method == http.MethodHead {
				serve, known = handlers[http.MethodGet]
			}
			if !known {
				w.Header().Set("Allow", handlers.allow(pattern))
				b.respondError(w, r, methodError{slices.Sorted(maps.Keys(handlers))})
				return
			}
			if err := serve(w, r); err != nil {
				b.respondError(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { b.respondError(w, r, errNoRoute) })
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

// openAPI serves the OpenAPI document.
func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIDocument)
	return nil
}
