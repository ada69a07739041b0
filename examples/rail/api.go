package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// session is what is to be paid, and to whom. The id of the merchant never changes: map it to an account.
type session struct {
	ID          string `json:"sessionId"`
	Status      string `json:"status"`
	AmountCents int64  `json:"amountCents"`
	Currency    string `json:"currency"`
	Merchant    struct {
		ID          string `json:"id"`
		DisplayName string `json:"displayName"`
		State       string `json:"state"`
	} `json:"merchant"`
}

// settlement is the answer to a report.
type settlement struct {
	Status  string `json:"status"`
	Applied bool   `json:"applied"`
	Action  string `json:"action"`
}

// refusal is an answer that says no: the request has changed nothing, and the same one will be refused again.
type refusal struct {
	status  int
	code    string // Error-Code: for programs
	message string // for people
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.code, r.message) }

// api is the internal port of merchant-operator.
type api struct {
	url       string
	tokenFile string
	client    *http.Client
}

// read says what is to be paid.
func (a *api) read(ctx context.Context, id string) (session, error) {
	var s session
	err := a.send(ctx, http.MethodGet, id, nil, &s)
	return s, err
}

// settle reports how a payment ended. It repeats the report until there is an answer: one that was lost may have been applied, and a repeated
// report gets the answer of the first.
func (a *api) settle(ctx context.Context, p payment, outcome, reason string) (answer settlement, err error) {
	err = a.repeat(ctx, p.Session+"/settlement", map[string]any{
		"paymentRef": p.Ref, "outcome": outcome, "amountCents": p.AmountCents, "currency": p.Currency, "paidAt": p.At.UnixMilli(), "reason": reason,
	}, &answer)
	return answer, err
}

// The pauses between repeated reports. They grow, and a rail goes on for days: its journal remembers what was not answered.
const firstPause, longestPause = time.Second, time.Minute

// repeat sends a report until it is answered, or refused: then a person must look.
func (a *api) repeat(ctx context.Context, path string, report, answer any) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := a.send(ctx, http.MethodPost, path, report, answer)
		if err == nil || errors.As(err, new(*refusal)) {
			return err
		}
		var unknown *unanswered
		wait := pause
		if errors.As(err, &unknown) {
			wait = max(wait, unknown.retryAfter)
		}
		log.Printf("%s: %v; the same report again in %s", path, err, wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// unanswered is an answer that does not say what became of a report.
type unanswered struct {
	status     string
	retryAfter time.Duration
}

func (u *unanswered) Error() string { return "answer unknown: " + u.status }

// send sends one request. The error is a *refusal; after any other one nobody knows whether the request was received.
func (a *api) send(ctx context.Context, method, path string, body, answer any) error {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.url+"/internal/v1/sessions/"+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(a.tokenFile) // each time: Kubernetes replaces it
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusOK:
		return json.Unmarshal(text, answer)
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return &unanswered{response.Status, time.Duration(seconds) * time.Second}
	}
	var problem struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(text, &problem)
	return &refusal{response.StatusCode, response.Header.Get("Error-Code"), problem.Error}
}
