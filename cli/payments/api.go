package payments

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// newAPIClient follows no redirect, which would take the key elsewhere, and uses a proxy for https only, for the same reason.
func newAPIClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: func(r *http.Request) (*url.URL, error) {
				if r.URL.Scheme != "https" {
					return nil, nil //nolint:nilnil // it means no proxy
				}
				return http.ProxyFromEnvironment(r)
			},
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// api is the payment session API, as a merchant's key sees it.
type api struct {
	base   *url.URL
	client *http.Client
	key    string
	// readAgain reads the key again, which may have been rotated; nil: there is nowhere to read it from.
	readAgain func(context.Context) (string, error)
	// notify says why it waits, once for each problem.
	notify func(message string)

	merchant apiMerchant
	livemode bool
	// keyNames are the names of the merchant's ApiKeys by key id; nil: no cluster was asked.
	keyNames map[string]string
	zone     *time.Location
}

// apiMerchant is what the API says about the merchant of the key.
type apiMerchant struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	TimeZone string `json:"timeZone"`
}

// apiError is an answer that is an error.
type apiError struct {
	status     int
	code       string // Error-Code
	message    string
	requestID  string
	retryAfter time.Duration // 0: none
	body       []byte
}

func (e *apiError) Error() string {
	text := fmt.Sprintf("the API answers %d: %s", e.status, e.message)
	if e.requestID != "" {
		text += " (X-Request-Id " + e.requestID + ")"
	}
	return text
}

// tooManyStreams is the Error-Code of a wait for which the API has no room: its caller polls instead.
const tooManyStreams = "too_many_streams"

// permissionMissing is the Error-Code of a request for which the key has no permission.
const permissionMissing = "permission_missing"

// withAdvice adds to an error of the API what to do. Nothing was printed until then.
func withAdvice(err error) error {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case !ok, refused.status == http.StatusTooManyRequests, refused.status >= http.StatusInternalServerError:
		return terminal.Hinted("Nothing was printed. Check --api-url, and run the same command again.", "%w", err)
	case refused.status == http.StatusUnauthorized:
		return terminal.Hinted("The key is not of this API, or this machine is not on the allowlist: kubectl merchant explain-401 says which.", "%w", err)
	case refused.code == permissionMissing:
		return terminal.Hinted("Use a key that has it; kubectl merchant keys issue --permissions read,list makes one.", "%w", err)
	case refused.status == http.StatusNotFound, refused.status == http.StatusMethodNotAllowed, strings.HasPrefix(refused.message, "unknown parameter"):
		return terminal.Hinted("Is --api-url the address of the API, and has it the version of this plugin?", "%w", err)
	}
	return err
}

// identify asks whose key it is.
func (a *api) identify(ctx context.Context) error {
	var profile struct {
		Livemode bool        `json:"livemode"`
		Merchant apiMerchant `json:"merchant"`
	}
	if _, err := a.get(ctx, "/api/v1/merchant/me", nil, patience, &profile); err != nil {
		return withAdvice(err)
	}
	a.merchant, a.livemode = profile.Merchant, profile.Livemode
	var err error
	if a.zone, err = time.LoadLocation(profile.Merchant.TimeZone); err != nil {
		return terminal.Hinted("Install the plugin of the product's version.", "the time zone %q of the merchant is unknown here", profile.Merchant.TimeZone)
	}
	return nil
}

const (
	// patience is for how long a request is repeated that the API does not answer.
	patience = 2 * time.Minute
	// maxPause is the longest pause between two attempts.
	maxPause = 30 * time.Second
	// answerTime is how long an answer may take, beyond the time for which the API was asked to wait.
	answerTime = 15 * time.Second
	// maxAnswer bounds an answer: a page has at most some hundred kilobytes.
	maxAnswer = 32 << 20
)

// call is a request.
type call struct {
	method, path string
	query        url.Values
	// idempotencyKey and body are set for a POST only.
	idempotencyKey string
	body           []byte
}

// get reads, and decodes the answer, as send does.
func (a *api) get(ctx context.Context, path string, query url.Values, patience time.Duration, answer any) (http.Header, error) {
	return a.send(ctx, call{method: http.MethodGet, path: path, query: query}, patience, answer)
}

// post writes, and decodes the answer, as send does: the API does what has the same idempotency key once.
func (a *api) post(ctx context.Context, path, idempotencyKey string, body any, patience time.Duration, answer any) (http.Header, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return a.send(ctx, call{method: http.MethodPost, path: path, idempotencyKey: idempotencyKey, body: encoded}, patience, answer)
}

// send sends a request until it is answered, for as long as patience says, and decodes the answer. The error is an *apiError unless
// there was no answer.
func (a *api) send(ctx context.Context, c call, patience time.Duration, answer any) (http.Header, error) {
	deadline := time.Now().Add(patience)
	reported := ""
	for pause := time.Second; ; pause = min(2*pause, maxPause) {
		header, err := a.once(ctx, c, answer)
		if err == nil {
			if reported != "" {
				a.notify("The API answers again.")
			}
			return header, nil
		}
		wait, again := a.retry(ctx, err, pause)
		if !again || time.Now().Add(wait).After(deadline) {
			return header, err
		}
		if problem := err.Error(); problem != reported && wait > 0 {
			a.notify("Waiting for the API: " + problem)
			reported = problem
		}
		if !sleep(ctx, wait) {
			return header, ctx.Err()
		}
	}
}

// retry says whether a failed request is worth another one, and after which time.
func (a *api) retry(ctx context.Context, err error, pause time.Duration) (wait time.Duration, again bool) {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case !ok:
		return pause, ctx.Err() == nil
	case refused.status == http.StatusUnauthorized && a.readAgain != nil:
		key, err := a.readAgain(ctx)
		rotated := err == nil && key != a.key
		if rotated {
			a.key = key
		}
		return 0, rotated
	case refused.code == tooManyStreams:
		return 0, false
	case refused.status == http.StatusTooManyRequests || refused.status >= http.StatusInternalServerError:
		return cmp.Or(refused.retryAfter, pause), true
	}
	return 0, false
}

// once sends a request.
func (a *api) once(ctx context.Context, c call, answer any) (http.Header, error) {
	limit := answerTime
	if seconds, err := strconv.Atoi(c.query.Get("wait")); err == nil {
		limit += time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	target := *a.base
	target.Path += c.path
	target.RawQuery = c.query.Encode()
	request, err := http.NewRequestWithContext(ctx, c.method, target.String(), bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("User-Agent", cluster.FieldOwner)
	if c.idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", c.idempotencyKey)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the API does not answer: %w", errors.Unwrap(err)) // without the URL, which has a cursor
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the API: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return response.Header, newAPIError(response, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("read the answer of the API: %w", err)
	}
	return response.Header, nil
}

func newAPIError(response *http.Response, text []byte) *apiError {
	e := &apiError{
		status: response.StatusCode, code: response.Header.Get("Error-Code"), message: http.StatusText(response.StatusCode),
		requestID: response.Header.Get("X-Request-Id"), body: text,
	}
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &body) == nil && body.Error != "" {
		e.message = terminal.Printable(body.Error)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = min(time.Duration(seconds)*time.Second, maxPause)
	}
	return e
}

// sleep waits, and reports whether the context still holds.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
