package caller

import (
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// ErrPlainHTTP is the error of a request for an API key while the internal listener has no TLS.
var ErrPlainHTTP = errors.New("an API key would be sent over plain HTTP")

// Accounts lets in requests of Kubernetes accounts on the internal listener.
type Accounts struct {
	// NewGuard returns the guard of a path.
	NewGuard func(path string) *authz.Guard
	// Confidential is true if nobody on the network can read a response.
	Confidential bool
	Reasons      *Reasons
}

// WithToken authenticates and authorizes the caller for the path before next.
func (a *Accounts) WithToken(path string, next web.Handler) web.Handler {
	guard := a.NewGuard(path)
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		if err := guard.Check(r.Context(), r.RemoteAddr, bearerToken(r.Header)); err != nil {
			return err
		}
		return next(e, w, r)
	}
}

// Confidentially is WithToken for what must not be read on the network.
func (a *Accounts) Confidentially(path string, next web.Handler) web.Handler {
	if a.Confidential {
		return a.WithToken(path, next)
	}
	return func(*web.Event, http.ResponseWriter, *http.Request) error { return ErrPlainHTTP }
}

// Finished counts refused callers.
func (a *Accounts) Finished(e *web.Event) { a.Reasons.Count(e) }
