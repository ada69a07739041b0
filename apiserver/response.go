package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

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
	if response.body == nil {
		response.body = httpserver.ErrorBody{Error: response.message}
	}
	if err := respond(w, response.status, response.body); err != nil {
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
	if response.code != noCode {
		w.Header().Set(httpserver.ErrorCodeHeader, response.code)
	}
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
	if response.overload {
		refuseStream(w)
	} else if response.status >= http.StatusInternalServerError {
		b.log.Error("request failed", "method", r.Method, "route", r.Pattern,
			"status", response.status, "requestID", w.Header().Get(requestIDHeader), "error", err)
	}
	return response, false
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

var errEncode = errors.New("could not encode the response")

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
