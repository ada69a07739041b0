package delivery

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// The headers that all requests share.
var contentType, userAgent = []string{"application/json"}, []string{"merchant-operator-webhooks"}

// The headers of the Standard Webhooks specification, as net/http spells them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
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
	timestamp := strconv.FormatInt(request.Now.Unix(), 10)
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
	// The transport itself: a http.Client would follow redirects and keep cookies.
	answer, err := c.transport.RoundTrip(post(traced, target, timestamp, signed, request))
	if err != nil {
		if ctx.Err() != nil {
			return Result{Reason: ReasonInterrupted}
		}
		return Result{Reason: failureReason(err, connected.Load())}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusOK && answer.Body != http.NoBody { // behind a 101 is a bare connection, which no deadline ends
		// The status has decided; a short rest is read so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswerBytes)
	}
	return resultOf(answer, request.Now)
}

func post(ctx context.Context, target *url.URL, timestamp, signed string, request Request) *http.Request {
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(request.Body)), nil }
	first, _ := body()
	return (&http.Request{
		Method: http.MethodPost,
		URL:    target,
		Host:   target.Host,
		Header: http.Header{
			"Content-Type":  contentType,
			"User-Agent":    userAgent,
			headerID:        {request.ID},
			headerTimestamp: {timestamp},
			headerSignature: {signed},
			// Not sent, because it has no value. It makes the transport repeat the request on another connection when a
			// kept one ends before an answer: receivers recognize the id.
			"Idempotency-Key": {},
		},
		Body:          first,
		GetBody:       body,
		ContentLength: int64(len(request.Body)),
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

// signatures returns the value of webhook-signature: one signature for each secret, so that a receiver with either
// secret of a rotation can verify it.
func signatures(secrets []published.SigningSecret, id, timestamp string, body []byte) string {
	all := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		if !secret.IsZero() { // anybody could sign with an empty key
			all = append(all, signature(secret, id, timestamp, body))
		}
	}
	return strings.Join(all, " ")
}

// signature is HMAC-SHA256 of "<id>.<timestamp>.<body>", version 1 of Standard Webhooks.
func signature(secret published.SigningSecret, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret.Key())
	_, _ = mac.Write([]byte(id + "." + timestamp + ".")) // never fails
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
