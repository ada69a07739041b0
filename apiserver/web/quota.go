package web

import (
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// The names of limits, in RateLimit headers and in the metric of requests over them.
const (
	MerchantLimit = "merchant"
	AddressLimit  = "address"
	RotationLimit = "rotations" // of one ApiKey
	SessionLimit  = "sessions"  // that a merchant creates, and requests for refunds
)

// RateLimit-Policy and RateLimit, in canonical form.
const (
	policyHeader = "Ratelimit-Policy"
	limitHeader  = "Ratelimit"
)

// SetQuota sets the RateLimit headers, if the limiter was asked. err is the error of that request: admission.ErrRateLimited over the limit.
func (e *Event) SetQuota(header http.Header, limit string, quota ratelimit.Quota, err error) {
	if quota == (ratelimit.Quota{}) {
		return
	}
	values := [...]string{quota.PolicyHeader(limit), quota.Header(limit)}
	header[policyHeader], header[limitHeader] = values[:1:1], values[1:]
	if errors.Is(err, admission.ErrRateLimited) {
		e.SetLimited(header, limit, quota)
	}
}

// SetLimited says when to try again what a limit refused, and counts that.
func (e *Event) SetLimited(header http.Header, limit string, quota ratelimit.Quota) {
	header.Set("Retry-After", quota.RetryAfterHeader())
	e.limit = limit
}

// ClearQuota removes the headers of an admission that does not count any more: the request has waited, and is admitted anew.
func ClearQuota(header http.Header) {
	delete(header, policyHeader)
	delete(header, limitHeader)
}
