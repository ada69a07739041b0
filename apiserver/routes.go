package apiserver

import "net/http"

// publicHandler serves everything an ingress routes to. HEAD goes where GET goes, and OPTIONS of any
// /api/v1/ path is a preflight.
func (a *api) publicHandler() http.Handler {
	return a.observe(cors(a.canonical(a.mux(map[string]methods{
		"/api/v1/sessions":             {http.MethodPost: a.withKey(a.createSession)},
		"/api/v1/sessions/{id}":        {http.MethodGet: a.withKey(a.getSession)},
		"/api/v1/public/sessions/{id}": {http.MethodGet: a.publicSession},
		"/api/v1/merchant/me":          {http.MethodGet: a.withKey(a.merchantMe)},
		"/api/v1/keys/rotate":          {http.MethodPost: a.withKey(a.rotateKey)},
		"/openapi.yaml":                {http.MethodGet: openAPI},
	}))))
}
