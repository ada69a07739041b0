package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Outcome is how an attempt ended.
type Outcome int

// Outcomes of an attempt.
const (
	// Failed: the event is still to be delivered.
	Failed Outcome = iota
	// Delivered: the answer was 2xx.
	Delivered
	// Gone: the answer was 410, the endpoint wants no more events.
	Gone
)

// Result describes one attempt.
type Result struct {
	Outcome Outcome
	// Status is the answer's HTTP status; 0: no answer.
	Status int
	// RetryAfter is the Retry-After of a failing endpoint, at most MaxRetryAfter; 0: none.
	RetryAfter time.Duration
	// Reason is one of Reasons. It never quotes the endpoint.
	Reason string
}

// Answer is what people see of the result: the status, or the reason why there was no answer.
func (r Result) Answer() string {
	if r.Status == 0 {
		return r.Reason
	}
	return strconv.Itoa(r.Status)
}

// Reasons of a Result, a closed list, because they label metrics.
const (
	ReasonDelivered = "delivered"
	ReasonGone      = "gone"
	ReasonRedirect  = "redirect"
	ReasonStatus4xx = "status_4xx"
	ReasonStatus5xx = "status_5xx"
	// ReasonStatusOther is a status outside 200 to 599.
	ReasonStatusOther = "status_other"
	ReasonTimeout     = "timeout"
	// ReasonInterrupted: the caller's context ended first, which says nothing about the endpoint.
	ReasonInterrupted = "interrupted"
	// ReasonBadURL: the URL is not absolute http(s) with a host and without user info.
	ReasonBadURL = "bad_url"
	// ReasonRefusedScheme is plain HTTP that the platform does not allow.
	ReasonRefusedScheme  = "refused_scheme"
	ReasonRefusedAddress = "refused_address"
	// ReasonUnsigned: there was no secret to sign with; nothing was sent.
	ReasonUnsigned = "unsigned"
	ReasonDNS      = "dns"
	ReasonConnect  = "connect"
	ReasonTLS      = "tls"
	// ReasonNoAnswer: the connection ended, or the answer was not HTTP.
	ReasonNoAnswer = "no_answer"
)

// Reasons returns every Reason there is.
func Reasons() []string {
	return []string{
		ReasonDelivered, ReasonGone, ReasonRedirect, ReasonStatus4xx, ReasonStatus5xx, ReasonStatusOther,
		ReasonTimeout, ReasonInterrupted, ReasonBadURL, ReasonRefusedScheme, ReasonRefusedAddress,
		ReasonUnsigned, ReasonDNS, ReasonConnect, ReasonTLS, ReasonNoAnswer,
	}
}

// newResult parses an answer's status line and headers.
func newResult(answer *http.Response, now time.Time) Result {
	status := answer.StatusCode
	result := Result{Status: status, RetryAfter: retryAfter(answer.Header, now)}
	switch {
	case status >= 200 && status < 300:
		return Result{Outcome: Delivered, Status: status, Reason: ReasonDelivered}
	case status == http.StatusGone:
		return Result{Outcome: Gone, Status: status, Reason: ReasonGone}
	case status >= 300 && status < 400:
		result.Reason = ReasonRedirect
	case status >= 400 && status < 500:
		result.Reason = ReasonStatus4xx
	case status >= 500 && status < 600:
		result.Reason = ReasonStatus5xx
	default:
		result.Reason = ReasonStatusOther
	}
	return result
}

// MaxRetryAfter is the longest Retry-After that is honoured.
const MaxRetryAfter = 24 * time.Hour

// retryAfter reads the header (RFC 9110, section 10.2.3): seconds or a date. A malformed, past or repeated value is
// ignored.
func retryAfter(header http.Header, now time.Time) time.Duration {
	values := header.Values("Retry-After")
	if len(values) != 1 {
		return 0
	}
	value := strings.TrimSpace(values[0])
	if digits := strings.Trim(value, "0123456789") == ""; digits && value != "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) { // err: more than an int64 holds
			return MaxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
