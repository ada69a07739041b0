package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

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
