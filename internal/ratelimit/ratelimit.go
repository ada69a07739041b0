// Package ratelimit has the arithmetic of rate limits and their HTTP headers. Limits are GCRA (generic cell rate algorithm): the
// state of a caller is one time, its theoretical arrival time. Package store keeps it in Redis, a Limiter in memory.
package ratelimit

import (
	"strconv"
	"time"
)

// Policy limits the requests of one caller: Burst at once, RequestsPerSecond sustained. Values below 1 count as 1.
type Policy struct {
	RequestsPerSecond int64
	Burst             int64
}

// Interval is the emission interval, the cost of one request: whole microseconds, rounded up so that at most
// Burst + RequestsPerSecond * elapsed requests pass.
func (p Policy) Interval() time.Duration {
	rate := max(p.RequestsPerSecond, 1)
	const second = int64(time.Second / time.Microsecond)
	return time.Duration((second+rate-1)/rate) * time.Microsecond
}

// Window is the time in which an empty burst refills.
func (p Policy) Window() time.Duration {
	return p.Interval() * time.Duration(max(p.Burst, 1))
}

// Admitted returns the quota after an admitted request. The backlog is how far the caller's theoretical arrival time is ahead,
// with this request.
func (p Policy) Admitted(backlog time.Duration) Quota {
	return Quota{
		Policy:    p,
		Remaining: int64(max(p.Window()-backlog, 0) / p.Interval()),
		Reset:     max(backlog, 0),
	}
}

// Refused returns the quota after a refused request. The backlog is without this request.
func (p Policy) Refused(backlog time.Duration) Quota {
	quota := p.Admitted(backlog)
	quota.Remaining = 0
	quota.RetryAfter = max(backlog+p.Interval()-p.Window(), 0)
	return quota
}

// Quota is what remains of a caller's limit.
type Quota struct {
	Policy Policy
	// Remaining requests are allowed now.
	Remaining int64
	// Reset is the time until the full burst is available.
	Reset time.Duration
	// RetryAfter is the time until the next request is allowed; zero unless this one was refused.
	RetryAfter time.Duration
}

// PolicyHeader returns the value of RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), as in "merchant";q=100;w=2: the
// burst, and the seconds in which it refills. The name of the limit must be ASCII without quotes.
func (q Quota) PolicyHeader(name string) string {
	return format(name, ";q=", max(q.Policy.Burst, 1), ";w=", seconds(q.Policy.Window()))
}

// Header returns the value of RateLimit (same draft), as in "merchant";r=42;t=1: the remaining requests, and the seconds until
// the full burst is available.
func (q Quota) Header(name string) string {
	return format(name, ";r=", q.Remaining, ";t=", seconds(q.Reset))
}

// format writes a name with two parameters. Every admitted response needs two of them, hence without fmt.
func format(name, first string, a int64, second string, b int64) string {
	const enough = 64 // for usual names and numbers
	text := append(make([]byte, 0, enough), '"')
	text = append(text, name...)
	text = append(text, '"')
	text = strconv.AppendInt(append(text, first...), a, 10)
	text = strconv.AppendInt(append(text, second...), b, 10)
	return string(text)
}

// RetryAfterHeader returns the value of Retry-After (RFC 9110): whole seconds, at least 1.
func (q Quota) RetryAfterHeader() string {
	return strconv.FormatInt(max(seconds(q.RetryAfter), 1), 10)
}

// seconds rounds up, so that a caller that waits for so long is not too early.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
