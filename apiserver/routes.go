package apiserver

import (
	_ "embed" // the document is a file that people read, too
	"net/http"

	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/events"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/rail"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
)

// rooms have the handlers of both listeners.
type rooms struct {
	gate     *caller.Gate
	accounts *caller.Accounts
	sessions *sessions.Handler
	events   *events.Handler
	keys     *keys.Handler
	rail     *rail.Handler
	payer    *payer.Handler
}

// The permissions of keys, as short as the table of routes needs them.
const (
	create = v1alpha1.PermissionCreate
	read   = v1alpha1.PermissionRead
	list   = v1alpha1.PermissionList
	cancel = v1alpha1.PermissionCancel
	rotate = v1alpha1.PermissionRotate
	refund = v1alpha1.PermissionRefund
)

// publicRoutes are those of the public listener: path, who may call, handler. A key needs the permission of the route. A route without a right
// is for anyone with the session id.
func (r *rooms) publicRoutes() web.Routes {
	withKey, withCurrentKey, forPayer := r.gate.WithKey, r.gate.WithCurrentKey, r.payer.Page
	lists := sessions.ByQuery(withKey(read, r.sessions.ListOrder), withKey(read, r.sessions.ListReference), withKey(list, r.sessions.ListEnded))
	return web.Routes{
		"/api/v1/sessions":                  {http.MethodGet: lists, http.MethodPost: withKey(create, r.sessions.Create)},
		"/api/v1/sessions/{id}":             {http.MethodGet: withKey(read, r.sessions.Get)},
		"/api/v1/sessions/{id}/cancel":      {http.MethodPost: withKey(cancel, r.sessions.Cancel)},
		"/api/v1/sessions/{id}/refunds":     {http.MethodPost: withKey(refund, r.sessions.Refund)},
		"/api/v1/test/sessions/{id}/settle": {http.MethodPost: withKey(create, r.rail.SettleTest)},
		"/api/v1/events":                    {http.MethodGet: withKey(list, r.events.List)},
		"/api/v1/merchant/me":               {http.MethodGet: withKey(read, r.gate.Me)},
		"/api/v1/keys/rotate":               {http.MethodPost: withCurrentKey(rotate, r.keys.Rotate)},
		"/api/v1/public/sessions/{id}":      {http.MethodGet: r.payer.Status},
		"/pay/{id}":                         {http.MethodGet: forPayer(r.payer.Payment)},
		"/pay/{id}/test":                    {http.MethodPost: forPayer(r.payer.PlayRail)},
		"/pay/{id}/qr.svg":                  {http.MethodGet: forPayer(r.payer.QRCode)},
		"/pay/static/{version}/{file}":      {http.MethodGet: r.payer.Asset},
		page.WidgetPath:                     {http.MethodGet: r.payer.Widget},
		"/openapi.yaml":                     {http.MethodGet: openAPI},
	}
}

// The paths of the internal listener. Each is also the path of a SubjectAccessReview, literally and for every session or key. With
// session ids each report would need a review of its own, and ids would get into the audit log.
const (
	sessionPath    = "/internal/v1/sessions/{id}"
	holdPath       = sessionPath + "/hold"
	settlementPath = sessionPath + "/settlement"
	refundsPath    = sessionPath + "/refunds"
	owedPath       = "/internal/v1/refunds"
	rotationPath   = contract.Path
	acceptedPath   = contract.AcceptedPath
	signingPath    = contract.SigningPath
)

// internalRoutes are those of the internal listener, for rails and for those who issue keys: path, the verb that RBAC must allow, handler.
func (r *rooms) internalRoutes() web.Routes {
	withToken, confidentially := r.accounts.WithToken, r.accounts.Confidentially
	return web.Routes{
		sessionPath:    {http.MethodGet: withToken("get", sessionPath, r.rail.Get)},
		holdPath:       {http.MethodPost: withToken("post", holdPath, r.rail.Hold)},
		settlementPath: {http.MethodPost: withToken("post", settlementPath, r.rail.Settle)},
		refundsPath:    {http.MethodPost: withToken("post", refundsPath, r.rail.Refund)},
		owedPath:       {http.MethodGet: withToken("get", owedPath, r.rail.ListOwed)},
		rotationPath:   {http.MethodPost: confidentially("post", rotationPath, r.keys.RotateFor)},
		acceptedPath:   {http.MethodGet: withToken("get", acceptedPath, r.keys.ListAccepted)},
		signingPath:    {http.MethodPost: confidentially("post", signingPath, r.keys.ShowSigningSecret)},
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
