package apiserver

import (
	_ "embed" // the document is a file that people read, too
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// publicAPI has the handlers of the public listener.
type publicAPI struct {
	gate        *caller.Gate
	directory   *directory.Directory
	store       *store.Store
	keys        *keys.Handler
	clients     clientaddr.Resolver
	publicLimit ratelimit.Policy
	publicReads *ratelimit.Limiter // of addresses, by publicLimit
	payers      *payerQueues
	live        *live.Hub
	streams     *streams
	pages       *payerPages
	unstored    *prometheus.CounterVec // see newUnstored
	qrScheme    string
}

// publicRoutes are those of the public listener.
func (a *publicAPI) publicRoutes() web.Routes {
	return web.Routes{
		"/api/v1/sessions":                  {http.MethodPost: a.gate.WithKey(a.createSession)},
		"/api/v1/sessions/{id}":             {http.MethodGet: a.gate.WithKey(a.getSession)},
		"/api/v1/sessions/{id}/cancel":      {http.MethodPost: a.gate.WithKey(a.cancelSession)},
		"/api/v1/test/sessions/{id}/settle": {http.MethodPost: a.gate.WithKey(a.settleTestSession)},
		"/api/v1/public/sessions/{id}":      {http.MethodGet: a.publicSession},
		"/api/v1/merchant/me":               {http.MethodGet: a.gate.WithKey(a.gate.Me)},
		"/api/v1/keys/rotate":               {http.MethodPost: a.gate.WithCurrentKey(a.keys.Rotate)},
		"/pay/{id}":                         {http.MethodGet: a.page(a.paymentPage)},
		"/pay/{id}/qr.svg":                  {http.MethodGet: a.page(a.qrCode)},
		"/pay/static/{version}/{file}":      {http.MethodGet: a.pageAsset},
		payer.WidgetPath:                    {http.MethodGet: a.widget},
		"/openapi.yaml":                     {http.MethodGet: openAPI},
	}
}

// The paths of the internal listener. Each is also the path of a SubjectAccessReview, literally and for every session or key. With
// session ids each report would need a review of its own, and ids would get into the audit log.
const (
	settlementPath = "/internal/v1/sessions/{id}/settlement"
	rotationPath   = contract.Path
)

// internalRoutes are those of the internal listener, for rails and for those who issue keys.
func (r *internalAPI) internalRoutes() web.Routes {
	return web.Routes{
		settlementPath: {http.MethodPost: r.accounts.WithToken(settlementPath, r.settle)},
		rotationPath:   {http.MethodPost: r.accounts.Confidentially(rotationPath, r.keys.Issue)},
	}
}

//go:embed openapi.yaml
var openAPIDocument []byte

// openAPI serves the OpenAPI document.
func openAPI(_ *web.Event, w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIDocument)
	return nil
}
