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

// milliseconds is how the API writes a time: a Unix timestamp in milliseconds.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }

// millisecondsOrNull writes a time there may be none of.
func millisecondsOrNull(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(milliseconds(*t))
}
