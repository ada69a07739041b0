package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// The errors of this package. The table also has those of internal/.
var (
	errNoRoute            = errors.New("path not found")
	errNoSession          = errors.New("session not found")
	errTestKeysOnly       = errors.New("only test keys have this path")
	errKubernetes         = errors.New("the Kubernetes API is unavailable")
	errStale              = errors.New("the watch of the Kubernetes API is older than the lifetime of overrides")
	errRotationIncomplete = errors.New("could not write the override of the rotated key")
	errRotationUnknown    = errors.New("unknown whether the key was rotated")
	errNoKey              = errors.New("there is no published key of that id")
	errUnreadableKey      = errors.New("the published key cannot be read")
	errPlainHTTP          = errors.New("an API key would be sent over plain HTTP")
	errChargeUnknown      = errors.New("unknown whether the session was created")
	errSettlementUnknown  = errors.New("unknown whether the report was recorded")
	errEncode             = errors.New("could not encode the response")
)

// unauthorizedError is a refused key. The store has an error of its own. The reason is for operators only.
type unauthorizedError struct{ reason string }

func isUnauthorized(err error) bool {
	_, ok := errors.AsType[unauthorizedError](err)
	return ok
}

func (e unauthorizedError) Error() string { return "unauthorized: " + e.reason }

// methodError is a method that the path does not have. It says which ones it has.
type methodError struct{ methods []string }

func (e methodError) Error() string {
	return "method not allowed; use " + strings.Join(e.methods, " or ")
}

// endedError is a session that has ended in another state than requested.
type endedError struct{ status session.Status }

func (e endedError) Error() string { return "session is already " + string(e.status) }

// unknownFieldError is a field that the service does not know, sent with a test key.
type unknownFieldError struct{ name string }

func (e unknownFieldError) Error() string { return "unknown field " + quoted(e.name) }

// requestError says what is wrong with a request. The caller reads it.
type requestError string

func (e requestError) Error() string { return string(e) }

// errorCode is the value of the header Error-Code, by which a program tells errors apart. This list is closed: the OpenAPI documents
// have all of them.
type errorCode string

const (
	codeNone               errorCode = "" // of a 401: all of them are equal
	codeInvalidRequest     errorCode = "invalid_request"
	codeUnknownField       errorCode = "unknown_field"
	codeIdempotency        errorCode = "idempotency_mismatch"
	codeMerchantNotActive  errorCode = "merchant_not_active"
	codeAccountNotAllowed  errorCode = "account_not_allowed"
	codeTLSRequired        errorCode = "tls_required"
	codeSessionNotFound    errorCode = "session_not_found"
	codeKeyNotFound        errorCode = "key_not_found"
	codePathNotFound       errorCode = "path_not_found"
	codeTestKeyRequired    errorCode = "test_key_required"
	codeMethodNotAllowed   errorCode = "method_not_allowed"
	codeSessionEnded       errorCode = "session_ended"
	codePaymentConflict    errorCode = "payment_conflict"
	codeTestSession        errorCode = "test_session"
	codeGeneration         errorCode = "generation_conflict"
	codeRateLimited        errorCode = "rate_limited"
	codeInternal           errorCode = "internal_error"
	codeUnavailable        errorCode = "unavailable"
	codeChargeUnknown      errorCode = "charge_unknown"
	codeReportUnknown      errorCode = "report_unknown"
	codeRotationUnknown    errorCode = "rotation_unknown"
	codeRotationIncomplete errorCode = "rotation_incomplete"
	codeTooManyStreams     errorCode = "too_many_streams"
)

// errorResponse is what the caller gets for an error.
type errorResponse struct {
	status  int
	code    errorCode
	message string
}

const (
	retryLater  = "temporarily unavailable; retry"
	retryCharge = "temporarily unavailable; retry with the same Idempotency-Key"
	reportAgain = "temporarily unavailable; send the same report again"
)

// errorResponses has the response to every error. An error that is missing here is a bug and gets 500.
var errorResponses = []struct {
	cause error
	errorResponse
}{
	{store.ErrKeyRejected, errorResponse{http.StatusUnauthorized, codeNone, unauthorizedMessage}},
	{store.ErrMerchantInactive, errorResponse{http.StatusForbidden, codeMerchantNotActive, "merchant is not active"}},
	{store.ErrRateLimited, errorResponse{http.StatusTooManyRequests, codeRateLimited, "rate limit exceeded; retry after the time in Retry-After"}},
	{store.ErrNotFound, errorResponse{http.StatusNotFound, codeSessionNotFound, noSessionMessage}},
	{errNoSession, errorResponse{http.StatusNotFound, codeSessionNotFound, noSessionMessage}},
	{errTestKeysOnly, errorResponse{http.StatusNotFound, codeTestKeyRequired, "path not found for live keys; use a test key (mk_test_)"}},
	{errNoRoute, errorResponse{http.StatusNotFound, codePathNotFound, "path not found"}},
	{authz.ErrUnauthenticated, errorResponse{http.StatusUnauthorized, codeNone, "missing or invalid token"}},
	{authz.ErrForbidden, errorResponse{http.StatusForbidden, codeAccountNotAllowed, "account is not allowed to post to this path"}},
	{authz.ErrTooManyRefused, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{authz.ErrUnavailable, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{errPlainHTTP, errorResponse{http.StatusForbidden, codeTLSRequired, "API keys are issued over TLS only; start the API with --internal-cert-dir"}},
	{errNoKey, errorResponse{http.StatusNotFound, codeKeyNotFound, "API key not found"}},
	{errRotationUnknown, errorResponse{http.StatusServiceUnavailable, codeRotationUnknown, "unknown whether the key was rotated; send the same request again"}},
	{errUnreadableKey, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{store.ErrTestSession, errorResponse{http.StatusConflict, codeTestSession, "session is of test mode, which no rail settles; refund the payment"}},
	{store.ErrPaymentConflict, errorResponse{http.StatusConflict, codePaymentConflict, "report contradicts an earlier report with the same paymentRef"}},
	{store.ErrIdempotencyMismatch, errorResponse{http.StatusBadRequest, codeIdempotency, "Idempotency-Key was already used for a different charge"}},
	{clientaddr.ErrMalformed, errorResponse{http.StatusBadRequest, codeInvalidRequest, "X-Forwarded-For is malformed"}},
	{errRotationIncomplete, errorResponse{http.StatusServiceUnavailable, codeRotationIncomplete, "key rotation did not complete; if the key no longer works, rotate it through its ApiKey"}},
	{errChargeUnknown, errorResponse{http.StatusServiceUnavailable, codeChargeUnknown, retryCharge}},
	{errSettlementUnknown, errorResponse{http.StatusServiceUnavailable, codeReportUnknown, reportAgain}},
	{redis.ErrUnavailable, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{redis.ErrCorrupt, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{errPayersWaiting, errorResponse{http.StatusServiceUnavailable, codeUnavailable, "too many payers are waiting; retry after the time in Retry-After"}},
	{live.ErrTooMany, errorResponse{http.StatusServiceUnavailable, codeTooManyStreams, "too many open streams; poll, or retry after the time in Retry-After"}},
	{live.ErrTooManyFromAddress, errorResponse{http.StatusServiceUnavailable, codeTooManyStreams, "too many open streams of your address; close some, or poll"}},
	{errKubernetes, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{errStale, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
	{directory.ErrNewerVersion, errorResponse{http.StatusServiceUnavailable, codeUnavailable, retryLater}},
}

const (
	unauthorizedMessage = "missing or invalid API key"
	noSessionMessage    = "session not found"
)

// errorResponseTo returns the response to an error: from the table, or the error's own text if it was written for the caller.
func errorResponseTo(err error) errorResponse {
	if isUnauthorized(err) {
		return errorResponse{http.StatusUnauthorized, codeNone, unauthorizedMessage}
	}
	if field, ok := errors.AsType[*session.FieldError](err); ok {
		return errorResponse{http.StatusBadRequest, codeInvalidRequest, field.Error()}
	}
	if request, ok := errors.AsType[requestError](err); ok {
		return errorResponse{http.StatusBadRequest, codeInvalidRequest, request.Error()}
	}
	if unknown, ok := errors.AsType[unknownFieldError](err); ok {
		return errorResponse{http.StatusBadRequest, codeUnknownField, unknown.Error()}
	}
	if method, ok := errors.AsType[methodError](err); ok {
		return errorResponse{http.StatusMethodNotAllowed, codeMethodNotAllowed, method.Error()}
	}
	if ended, ok := errors.AsType[endedError](err); ok {
		return errorResponse{http.StatusConflict, codeSessionEnded, ended.Error()}
	}
	for _, row := range errorResponses {
		if errors.Is(err, row.cause) {
			return row.errorResponse
		}
	}
	return errorResponse{http.StatusInternalServerError, codeInternal, "internal error"}
}

// unavailableSeconds is the Retry-After of a 503: about the time of a failover or a restart.
const unavailableSeconds = "2"

// statusClientGone is recorded for a request whose client has disconnected, as in nginx.
const statusClientGone = 499

// respondError responds with an error.
func (b base) respondError(w http.ResponseWriter, r *http.Request, err error) {
	response, answered := b.beginError(w, r, err)
	if answered {
		return
	}
	if err := respond(w, response.status, httpserver.ErrorBody{Error: response.message}); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// beginError sets the headers of the response to an error, and logs it if it is ours: no other place logs errors of requests. A client
// that has disconnected is answered already.
func (b base) beginError(w http.ResponseWriter, r *http.Request, err error) (response errorResponse, answered bool) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		w.WriteHeader(statusClientGone)
		return errorResponse{}, true
	}
	response = errorResponseTo(err)
	setErrorCode(w.Header(), response.code)
	switch response.status {
	case http.StatusUnauthorized:
		w.Header()["Www-Authenticate"] = bearerOnly
		uniform(w.Header(), r)
		if !countedAsTest(w) {
			b.metrics.unauthorized.WithLabelValues(reasonOf(err)).Inc()
		}
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", unavailableSeconds)
	}
	if errors.Is(err, errPayersWaiting) || errors.Is(err, live.ErrTooMany) || errors.Is(err, live.ErrTooManyFromAddress) {
		refuseStream(w)
	} else if response.status >= http.StatusInternalServerError {
		b.log.Error("request failed", "method", r.Method, "route", r.Pattern,
			"status", response.status, "requestID", w.Header().Get(requestIDHeader), "error", err)
	}
	return response, false
}

// setErrorCode sets the header Error-Code.
func setErrorCode(header http.Header, code errorCode) {
	if code != codeNone {
		header.Set(httpserver.ErrorCodeHeader, string(code))
	}
}

// uniform makes all 401 responses equal. Otherwise headers would reveal that a key was rotated after it was admitted, or that
// it was good enough for the body to be read.
func uniform(header http.Header, r *http.Request) {
	delete(header, limitHeader)
	delete(header, policyHeader)
	delete(header, ignoredFieldsHeader)
	if r.ContentLength < 0 || r.ContentLength > maxBodyBytes {
		header.Set("Connection", "close")
	}
}

// respond writes a JSON response.
func respond(w http.ResponseWriter, status int, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errEncode, err)
	}
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(status)
	_, _ = w.Write(append(encoded, '\n')) // the client may have disconnected
	return nil
}

// Shared header values, set under their canonical names: http.Header.Set would allocate for each request. Nobody may write to
// them.
var (
	jsonContent    = []string{"application/json"}
	noSniff        = []string{"nosniff"}
	noStore        = []string{"no-store"}
	anyOrigin      = []string{"*"}
	bearerOnly     = []string{"Bearer"}
	exposedHeaders = []string{"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch, Session-Expires-In, " +
		"Error-Code, Ignored-Fields, Link"}
)

// RateLimit-Policy and RateLimit, in canonical form.
const (
	policyHeader = "Ratelimit-Policy"
	limitHeader  = "Ratelimit"
)

// The names of limits in RateLimit headers.
const (
	merchantQuota = "merchant"
	addressQuota  = "address"
	rotationQuota = "rotations" // of one ApiKey
)

// setQuotaHeaders sets the RateLimit headers, if the limiter was asked, and counts requests over the limit.
func (b base) setQuotaHeaders(w http.ResponseWriter, name string, quota ratelimit.Quota, err error) {
	if quota == (ratelimit.Quota{}) {
		return
	}
	values := [...]string{quota.PolicyHeader(name), quota.Header(name)}
	w.Header()[policyHeader], w.Header()[limitHeader] = values[:1:1], values[1:]
	if errors.Is(err, store.ErrRateLimited) {
		w.Header().Set("Retry-After", quota.RetryAfterHeader())
		if !countedAsTest(w) {
			b.metrics.limited.WithLabelValues(name).Inc()
		}
	}
}

// unixMilli is a time as the API writes it.
func unixMilli(t time.Time) int64 { return t.UnixMilli() }

// unixMilliOrNull is an optional time as the API writes it.
func unixMilliOrNull(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(unixMilli(*t))
}
