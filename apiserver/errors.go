package apiserver

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Errors of this package; those of the packages below are in the table as they are.
var (
	errNoRoute     = errors.New("no such path")
	errNoSession   = errors.New("no such session")
	errMethod      = errors.New("the path does not take the method")
	errKubernetes  = errors.New("the Kubernetes API is unavailable")
	errStale       = errors.New("the watch of the Kubernetes API is older than overrides are kept")
	errNotInForce  = errors.New("the rotated key could not be put in force")
	errNotSettled  = errors.New("whether the report was taken is unknown")
	errMarshalling = errors.New("the answer could not be written as JSON")
)

// unauthorizedError is every refusal of a key but the store's own. Its reason is for operators only.
type unauthorizedError struct{ reason string }

func (e unauthorizedError) Error() string { return "unauthorized: " + e.reason }

// requestError is a message to the caller about the request.
type requestError string

func (e requestError) Error() string { return string(e) }

// answer is what a caller sees of an error.
type answer struct {
	status  int
	message string
}

const (
	retryLater  = "the service is temporarily unavailable; retry later, a charge with the same Idempotency-Key"
	reportAgain = "the service is temporarily unavailable; send the same report again later"
)

// answers is the one table from errors to what callers see. Anything that is not in it is a defect.
var answers = []struct {
	cause error
	answer
}{
	{store.ErrKeyRejected, answer{http.StatusUnauthorized, unauthorizedMessage}},
	{store.ErrMerchantBlocked, answer{http.StatusForbidden, "the merchant account is not active"}},
	{store.ErrRateLimited, answer{http.StatusTooManyRequests, "the rate limit is exceeded; slow down and retry"}},
	{store.ErrNotFound, answer{http.StatusNotFound, noSessionMessage}},
	{errNoSession, answer{http.StatusNotFound, noSessionMessage}},
	{errNoRoute, answer{http.StatusNotFound, "there is no such path"}},
	{errMethod, answer{http.StatusMethodNotAllowed, "this path takes other methods, see Allow"}},
	{authz.ErrUnauthenticated, answer{http.StatusUnauthorized, "the token is missing or not accepted"}},
	{authz.ErrForbidden, answer{http.StatusForbidden, "the account may not settle sessions"}},
	{authz.ErrUnavailable, answer{http.StatusServiceUnavailable, reportAgain}},
	{store.ErrSessionEnded, answer{http.StatusConflict, "the session has already ended in another way"}},
	{store.ErrPaymentConflict, answer{http.StatusConflict, "the report contradicts an earlier one with the same paymentRef"}},
	{store.ErrIdempotencyMismatch, answer{http.StatusBadRequest, "the Idempotency-Key was used before with another charge"}},
	{clientaddr.ErrMalformed, answer{http.StatusBadRequest, "X-Forwarded-For is malformed"}},
	{errNotInForce, answer{http.StatusServiceUnavailable, "the rotation was not completed; if the key is refused from now on, have it rotated by its ApiKey"}},
	{errNotSettled, answer{http.StatusServiceUnavailable, reportAgain}},
	{store.ErrUnavailable, answer{http.StatusServiceUnavailable, retryLater}},
	{store.ErrCorrupt, answer{http.StatusServiceUnavailable, retryLater}},
	{errKubernetes, answer{http.StatusServiceUnavailable, retryLater}},
	{errStale, answer{http.StatusServiceUnavailable, retryLater}},
}

const (
	unauthorizedMessage = "the API key is missing or not accepted from this address"
	noSessionMessage    = "there is no such session"
)

// answerTo finds an error's answer: in the table, or in the error itself where it is about the
// request and was worded for its sender.
func answerTo(err error) answer {
	if _, ok := errors.AsType[unauthorizedError](err); ok {
		return answer{http.StatusUnauthorized, unauthorizedMessage}
	}
	if field, ok := errors.AsType[*session.FieldError](err); ok {
		return answer{http.StatusBadRequest, field.Error()}
	}
	if request, ok := errors.AsType[requestError](err); ok {
		return answer{http.StatusBadRequest, request.Error()}
	}
	for _, row := range answers {
		if errors.Is(err, row.cause) {
			return row.answer
		}
	}
	return answer{http.StatusInternalServerError, "internal error"}
}

// unavailableSeconds is a guess at how long a failover or a restart takes.
const unavailableSeconds = "2"

// statusClientGone is recorded for a request nobody waits for any more, as nginx does.
const statusClientGone = 499

// refuse answers a request with an error. It is the one place where errors are logged and shown.
func (e edge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		w.WriteHeader(statusClientGone)
		return
	}
	refusal := answerTo(err)
	switch refusal.status {
	case http.StatusUnauthorized:
		w.Header()["Www-Authenticate"] = bearerOnly
		uniform(w.Header(), r)
		e.metrics.unauthorized.WithLabelValues(reasonOf(err)).Inc()
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", unavailableSeconds)
	}
	if refusal.status >= http.StatusInternalServerError {
		id := w.Header().Get(requestIDHeader)
		if id == "" {
			id = rand.Text()
			w.Header().Set(requestIDHeader, id)
		}
		e.log.Error("could not serve a request", "method", r.Method, "route", r.Pattern,
			"status", refusal.status, "requestID", id, "error", err)
	}
	if err := respond(w, refusal.status, httpserver.ErrorBody{Error: refusal.message}); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// uniform takes away what would tell one 401 from another: that the key died after it was admitted,
// or that it was good enough for the body to be read.
func uniform(header http.Header, r *http.Request) {
	delete(header, limitHeader)
	delete(header, policyHeader)
	if r.ContentLength < 0 || r.ContentLength > maxBodyBytes {
		header.Set("Connection", "close")
	}
}
