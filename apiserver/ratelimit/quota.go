package ratelimit

import (
	"fmt"
	"strconv"
	"time"
)

// Quota is what a caller has left.
type Quota struct {
	Policy Policy
	// Remaining requests would pass now.
	Remaining int64
	// Reset is the time until the full burst is back.
	Reset time.Duration
	// RetryAfter is the time until one request passes; zero unless this one was refused.
	RetryAfter time.Duration
}

// PolicyHeader returns the value of RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), as in
// "merchant";q=100;w=2: the burst, and the seconds in which it comes back. The name says whose
// quota it is and must be plain ASCII without quotes.
func (q Quota) PolicyHeader(name string) string {
	return fmt.Sprintf(`"%s";q=%d;w=%d`, name, max(q.Policy.Burst, 1), seconds(q.Policy.Window()))
}

// Header returns the value of RateLimit (same draft), as in "merchant";r=42;t=1: the requests that
// remain, and the seconds until the full burst is back.
func (q Quota) Header(name string) string {
	return fmt.Sprintf(`"%s";r=%d;t=%d`, name, q.Remaining, seconds(q.Reset))
}

// RetryAfterHeader returns the value of Retry-After (RFC 9110): whole seconds, at least 1.
func (q Quota) RetryAfterHeader() string {
	return strconv.FormatInt(max(seconds(q.RetryAfter), 1), 10)
}

// seconds rounds up: a caller that comes back on time must not be early.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
