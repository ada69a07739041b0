package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
)

const userAgent = "merchant-operator-webhooks"

// Request is one attempt.
type Request struct {
	URL string
	// ID is the webhook-id, the same on every attempt.
	ID   string
	Body []byte
	// Secrets sign, the newest first; without one nothing is sent.
	Secrets []published.SigningSecret
	// Now is the time of the attempt, which is signed.
	Now time.Time
}

// Send makes one attempt: one POST, and no redirect is followed. It returns within the timeout,
// whatever the endpoint does.
func (c *Client) Send(ctx context.Context, request Request) Result {
	target, err := parseTarget(request.URL, c.allowHTTP)
	switch {
	case errors.Is(err, errRefusedScheme):
		return Result{Reason: ReasonRefusedScheme}
	case err != nil:
		return Result{Reason: ReasonBadURL}
	}
	timestamp := request.timestamp()
	signed := signatures(request.Secrets, request.ID, timestamp, request.Body)
	if signed == "" {
		return Result{Reason: ReasonUnsigned}
	}
	attempt, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var connected atomic.Bool
	traced := httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	// The transport itself, for a http.Client would follow redirects and keep cookies.
	answer, err := c.transport.RoundTrip(post(traced, target, timestamp, signed, request))
	if err != nil {
		if ctx.Err() != nil {
			return Result{Reason: ReasonInterrupted}
		}
		return Result{Reason: reasonOf(err, connected.Load())}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusOK { // behind a 101 is a bare connection, which no deadline ends
		// The status has decided; a short rest is read so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswerBytes)
	}
	return judge(answer, request.Now)
}

func post(ctx context.Context, target *url.URL, timestamp, signed string, request Request) *http.Request {
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(request.Body)), nil }
	first, _ := body()
	return (&http.Request{
		Method: http.MethodPost,
		URL:    target,
		Host:   target.Host,
		Header: http.Header{
			"Content-Type":  {"application/json"},
			"User-Agent":    {userAgent},
			headerID:        {request.ID},
			headerTimestamp: {timestamp},
			headerSignature: {signed},
			// Not sent, for it has no value. It has the transport repeat the request on another connection when a kept one
			// ends before an answer: receivers know an event again.
			"Idempotency-Key": {},
		},
		Body:          first,
		GetBody:       body,
		ContentLength: int64(len(request.Body)),
	}).WithContext(ctx)
}

// judge reads an answer's status line and headers.
func judge(answer *http.Response, now time.Time) Result {
	status := answer.StatusCode
	result := Result{Status: status, RetryAfter: retryAfter(answer.Header, now)}
	switch {
	case status >= 200 && status < 300:
		return Result{Verdict: Delivered, Status: status, Reason: ReasonDelivered}
	case status == http.StatusGone:
		return Result{Verdict: Gone, Status: status, Reason: ReasonGone}
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
