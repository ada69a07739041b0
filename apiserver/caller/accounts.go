package caller

import (
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// ErrPlainHTTP is the error of a request for a key or secret while the internal listener has no TLS.
var ErrPlainHTTP = errors.New("a key would be sent over plain HTTP")

// Accounts lets in requests of Kubernetes accounts on the internal listener.
type Accounts struct {
	// NewGuard returns the guard of a verb on a path.
	NewGuard func(verb, path string) *authz.Guard
	// Confidential is true if nobody on the network can read a response.
	Confidential bool
	Reasons      *Reasons
}

// AccountHandler handles a request of a Kubernetes account, named as in RBAC: system:serviceaccount:<namespace>:<name>.
type AccountHandler func(e *web.Event, w http.ResponseWriter, r *http.Request, account string) error

// WithToken authenticates the caller, and authorizes it for the verb on the path, before next.
func (a *Accounts) WithToken(verb, path string, next AccountHandler) web.Handler {
	guard := a.NewGuard(verb, path)
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		account, err := guard.Check(r.Context(), r.RemoteAddr, bearerToken(r.Header))
		if err != nil {
			return err
		}
		return next(e, w, r, account)
	}
}

// Confidentially is WithToken for what must not be read on the network.
func (a *Accounts) Confidentially(verb, path string, next AccountHandler) web.Handler {
	if a.Confidential {
		return a.WithToken(verb, path, next)
	}
	return func(*web.Event, http.ResponseWriter, *http.Request) error { return ErrPlainHTTP }
}

// Finished counts refused callers.
func (a *Accounts) Finished(e *web.Event) { a.Reasons.Count(e) }
