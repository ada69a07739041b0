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
	"github.com/merchant-operator/merchant-operator/internal/webhook"
)

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
	// Ready is asked when there is a connection. false: nothing is sent, and the attempt was interrupted; nil: it is ready.
	Ready func() bool
}

// Refusal returns what each attempt at a URL would find if none is possible, whatever its name resolves to; ok is false if one is.
func (c *Client) Refusal(text string) (result Result, ok bool) {
	target, err := parseTarget(text, c.allowHTTP)
	switch {
	case errors.Is(err, errRefusedScheme):
		return Result{Reason: ReasonRefusedScheme}, true
	case err != nil:
		return Result{Reason: ReasonBadURL}, true
	case c.guard.CheckHost(target.Hostname()) != nil:
		return Result{Reason: ReasonRefusedAddress}, true
	}
	return Result{}, false
}

// Send makes one attempt: one POST, without following redirects. It returns within the timeout, whatever the endpoint
// does.
func (c *Client) Send(ctx context.Context, request Request) Result {
	target, err := parseTarget(request.URL, c.allowHTTP)
	switch {
	case errors.Is(err, errRefusedScheme):
		return Result{Reason: ReasonRefusedScheme}
	case err != nil:
		return Result{Reason: ReasonBadURL}
	}
	header := webhook.Header(request.ID, request.Now, request.Body, request.Secrets...)
	if header == nil {
		return Result{Reason: ReasonUnsigned}
	}
	attempt, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var connected, withdrawn atomic.Bool
	traced := httptrace.WithClientTrace(context.WithValue(attempt, attemptKey{}, attempt), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			connected.Store(true)
			if request.Ready != nil && !request.Ready() {
				withdrawn.Store(true)
				cancel()
				_ = info.Conn.Close() // else the request is written all the same
			}
		},
	})
	// The transport itself: a http.Client would follow redirects and keep cookies.
	answer, err := c.connections().RoundTrip(post(traced, target, header, request.Body))
	if err != nil {
		if ctx.Err() != nil || withdrawn.Load() {
			return Result{Reason: ReasonInterrupted}
		}
		return Result{Reason: failureReason(err, connected.Load())}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusOK && answer.Body != http.NoBody { // behind a 101 is a bare connection, which no deadline ends
		// The status has decided; a short rest is read so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswerBytes)
	}
	return newResult(answer, request.Now)
}

func post(ctx context.Context, target *url.URL, header http.Header, content []byte) *http.Request {
	// Not sent, because it has no value. It makes the transport repeat the request on another connection when a kept one ends before
	// an answer: receivers recognize the id.
	header["Idempotency-Key"] = nil
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	first, _ := body()
	return (&http.Request{
		Method:        http.MethodPost,
		URL:           target,
		Host:          target.Host,
		Header:        header,
		Body:          first,
		GetBody:       body,
		ContentLength: int64(len(content)),
	}).WithContext(ctx)
}

var (
	errBadURL        = errors.New("the URL must be absolute http(s), with a host and without user info")
	errRefusedScheme = errors.New("plain http is not allowed for webhooks")
)

// parseTarget reads a webhook's URL. The CRD's rules have checked it; what they miss is refused here.
func parseTarget(text string, allowHTTP bool) (*url.URL, error) {
	target, err := url.Parse(text)
	if err != nil || target.Hostname() == "" || target.User != nil || target.Opaque != "" {
		return nil, errBadURL // the error of url.Parse quotes the URL, which may contain a token
	}
	switch {
	case target.Scheme == "https", target.Scheme == "http" && allowHTTP:
		return target, nil
	case target.Scheme == "http":
		return nil, errRefusedScheme
	}
	return nil, errBadURL
}
