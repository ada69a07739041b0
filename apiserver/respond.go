package apiserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// respond writes an answer as JSON.
func respond(w http.ResponseWriter, status int, body any) error {
	const usual = 256
	buffer := bytes.NewBuffer(make([]byte, 0, usual))
	if err := json.NewEncoder(buffer).Encode(body); err != nil {
		return fmt.Errorf("%w: %w", errMarshalling, err)
	}
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(status)
	_, _ = w.Write(buffer.Bytes()) // the caller may be gone, and nobody else is to be told
	return nil
}

// What is on every answer is set by its canonical name and with a value that all of them share: http.Header.Set would make a
// copy of each, for each request. Nobody may write to them.
var (
	jsonContent = []string{"application/json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
	anyOrigin   = []string{"*"}
	bearerOnly  = []string{"Bearer"}
	exposed     = []string{"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch"}
)

// RateLimit-Policy and RateLimit, in canonical form.
const (
	policyHeader = "Ratelimit-Policy"
	limitHeader  = "Ratelimit"
)

// Whose quota a RateLimit header speaks of.
const (
	merchantQuota = "merchant"
	addressQuota  = "address"
	rotationQuota = "rotations" // of one ApiKey
)

// tellQuota writes what the caller has left, once the limiter has seen the request, and counts those who have nothing.
func (e edge) tellQuota(w http.ResponseWriter, name string, quota ratelimit.Quota, err error) {
	if quota == (ratelimit.Quota{}) {
		return
	}
	told := [...]string{quota.PolicyHeader(name), quota.Header(name)}
	w.Header()[policyHeader], w.Header()[limitHeader] = told[:1:1], told[1:]
	if errors.Is(err, store.ErrRateLimited) {
		w.Header().Set("Retry-After", quota.RetryAfterHeader())
		e.metrics.limited.WithLabelValues(name).Inc()
	}
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
