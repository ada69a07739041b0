package delivery

import "time"

// Verdict is what an attempt came to.
type Verdict int

// Verdicts of an attempt.
const (
	// Failed is anything but the other two: the event is still to be delivered.
	Failed Verdict = iota
	// Delivered is an answer of 2xx.
	Delivered
	// Gone is the answer 410: the endpoint wants no more events.
	Gone
)

// Result is what became of one attempt.
type Result struct {
	Verdict Verdict
	// Status is the answer's HTTP status, 0 without an answer.
	Status int
	// RetryAfter is how long a failing endpoint asks to be left alone, at most MaxRetryAfter; 0: it
	// did not ask.
	RetryAfter time.Duration
	// Reason is one of Reasons. It never quotes the endpoint.
	Reason string
}

// Reasons of a Result. They are a closed list, so that they may label metrics.
const (
	ReasonDelivered = "delivered"
	ReasonGone      = "gone"
	ReasonRedirect  = "redirect"
	ReasonStatus4xx = "status_4xx"
	ReasonStatus5xx = "status_5xx"
	// ReasonStatusOther is an answer outside of 200 to 599.
	ReasonStatusOther = "status_other"
	ReasonTimeout     = "timeout"
	// ReasonInterrupted says that the caller's context ended first: nothing is known of the endpoint.
	ReasonInterrupted = "interrupted"
	// ReasonBadURL is a URL that is not absolute http(s) with a host and without user info.
	ReasonBadURL = "bad_url"
	// ReasonRefusedScheme is plain http where the platform has not opened it.
	ReasonRefusedScheme  = "refused_scheme"
	ReasonRefusedAddress = "refused_address"
	// ReasonUnsigned says that there was no secret to sign with; nothing was sent.
	ReasonUnsigned = "unsigned"
	ReasonDNS      = "dns"
	ReasonConnect  = "connect"
	ReasonTLS      = "tls"
	// ReasonNoAnswer says that the connection ended, or carried something that is not HTTP.
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
