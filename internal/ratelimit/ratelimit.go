// Package ratelimit owns the arithmetic of rate limits and how they are told to callers. Limits
// are GCRA (the generic cell rate algorithm): what is kept of a caller is one moment, the time by
// which all its requests so far are paid for. The package is pure; package store keeps the moment.
package ratelimit

import (
	"strconv"
	"time"
)

// Policy bounds the requests of one caller: Burst at once, RequestsPerSecond sustained. Values
// below 1 count as 1.
type Policy struct {
	RequestsPerSecond int64
	Burst             int64
}

// Interval is the emission interval, what one request costs: a whole number of microseconds,
// rounded up so that never more than Burst + RequestsPerSecond * elapsed requests pass.
func (p Policy) Interval() time.Duration {
	rate := max(p.RequestsPerSecond, 1)
	const second = int64(time.Second / time.Microsecond)
	return time.Duration((second+rate-1)/rate) * time.Microsecond
}

// Window is how long a spent burst takes to come back.
func (p Policy) Window() time.Duration {
	return p.Interval() * time.Duration(max(p.Burst, 1))
}

// Admitted returns what is left after a request that passed, given the caller's backlog: how far
// the moment by which all its requests are paid for lies ahead, this request included.
func (p Policy) Admitted(backlog time.Duration) Quota {
	return Quota{
		Policy:    p,
		Remaining: int64(max(p.Window()-backlog, 0) / p.Interval()),
		Reset:     max(backlog, 0),
	}
}

// Refused returns what a refused caller is told, given its backlog without the refused request.
func (p Policy) Refused(backlog time.Duration) Quota {
	quota := p.Admitted(backlog)
	quota.Remaining = 0
	quota.RetryAfter = max(backlog+p.Interval()-p.Window(), 0)
	return quota
}

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
	return format(name, ";q=", max(q.Policy.Burst, 1), ";w=", seconds(q.Policy.Window()))
}

// Header returns the value of RateLimit (same draft), as in "merchant";r=42;t=1: the requests that
// remain, and the seconds until the full burst is back.
func (q Quota) Header(name string) string {
	return format(name, ";r=", q.Remaining, ";t=", seconds(q.Reset))
}

// format is a name with two parameters. It is on every admitted answer, twice, so that it is put together without fmt.
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

// seconds rounds up: a caller that comes back on time must not be early.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
