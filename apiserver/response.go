package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// respond writes a JSON response.
func respond(w http.ResponseWriter, status int, body any) error {
	const usual = 256
	buffer := bytes.NewBuffer(make([]byte, 0, usual))
	if err := json.NewEncoder(buffer).Encode(body); err != nil {
		return fmt.Errorf("%w: %w", errEncode, err)
	}
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(status)
	_, _ = w.Write(buffer.Bytes()) // the client may have disconnected
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
	exposedHeaders = []string{"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch"}
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
		b.metrics.limited.WithLabelValues(name).Inc()
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
