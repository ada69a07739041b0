package apiserver

import "net/http"

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
