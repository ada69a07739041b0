package apiserver

import "net/http"

// internalHandler serves callers inside the cluster. It has no routes yet, only answers that say so.
func internalHandler(e edge) http.Handler {
	return e.observe(e.canonical(e.mux(nil)))
}
