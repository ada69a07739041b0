package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// Answer is the response to an error.
type Answer struct {
	Status int
	// Code is the value of the header Error-Code, by which a program distinguishes errors; empty: none.
	Code    string
	Message string
	// Overload: too many wait or watch. That has a metric of its own, and no log line: else one client could raise the alert on errors.
	Overload bool
	// Body is the body, if it is more than the message.
	Body any
}

// unavailableSeconds is the Retry-After of a 503: about the time of a failover or a restart.
const unavailableSeconds = "2"

// statusClientGone is recorded for a request whose client has disconnected, as in nginx.
const statusClientGone = 499

// respondError responds with an error.
func (e *Event) respondError(w http.ResponseWriter, r *http.Request, err error) {
	answer, gone := e.BeginError(w, r, err)
	if gone {
		return
	}
	if answer.Body == nil {
		answer.Body = httpserver.ErrorBody{Error: answer.Message}
	}
	if err := Respond(w, answer.Status, answer.Body); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// Answer returns the response to an error.
func (e *Event) Answer(err error) Answer { return e.server.Answer(err) }

// BeginError sets the headers of the response to an error, and logs it if it is ours: no other place logs errors of requests. A client
// that is gone needs no body.
func (e *Event) BeginError(w http.ResponseWriter, r *http.Request, err error) (answer Answer, gone bool) {
	canceled := errors.Is(err, context.Canceled) && r.Context().Err() != nil
	if canceled && e.body.late { // the server has cancelled the request, and its client waits for a response
		err, canceled = ErrBodyTimeout, false
	}
	e.Err = err
	if canceled {
		w.WriteHeader(statusClientGone)
		return Answer{}, true
	}
	answer = e.Answer(err)
	if answer.Code != "" {
		w.Header().Set(httpserver.ErrorCodeHeader, answer.Code)
	}
	switch answer.Status {
	case http.StatusUnauthorized:
		w.Header()["Www-Authenticate"] = bearerOnly
		uniform(w.Header(), r)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", unavailableSeconds)
	}
	e.overload = answer.Overload
	if answer.Status >= http.StatusInternalServerError && !e.overload {
		e.server.Log.Error("request failed", "method", r.Method, "route", r.Pattern,
			"status", answer.Status, "requestID", w.Header().Get(requestIDHeader), "error", err)
	}
	return answer, false
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

// SetRetryAfter says when to try again: in whole seconds, rounded up.
func SetRetryAfter(header http.Header, after time.Duration) {
	header.Set("Retry-After", strconv.FormatInt(max(1, int64((after+time.Second-1)/time.Second)), 10))
}

var errEncode = errors.New("could not encode the response")

// Respond writes a JSON response.
func Respond(w http.ResponseWriter, status int, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errEncode, err)
	}
	return RespondJSON(w, status, append(encoded, '\n'))
}

// RespondJSON writes a JSON response that is encoded already.
func RespondJSON(w http.ResponseWriter, status int, body []byte) error {
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
	return nil
}

// Livemode is the field livemode of responses about a session: false in test mode, absent for live sessions.
func Livemode(testMode bool) *bool {
	if testMode {
		return new(bool)
	}
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
	exposedHeaders = []string{"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch, Customer-Email-Ignored, " +
		"Session-Currency, Session-Expires-In, Error-Code, Ignored-Fields, Link"}
)
