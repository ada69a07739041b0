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

// refusal is an answer that says no: the request has changed nothing, and the same one will be refused again.
type refusal struct {
	code    string // Error-Code: for programs
	message string // for people
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

// api is the internal port of merchant-operator.
type api struct {
	url       string
	tokenFile string
	client    *http.Client
}

// read says what is to be paid.
func (a *api) read(ctx context.Context, id string) (s session, err error) {
	_, err = a.send(ctx, http.MethodGet, id, nil, &s)
	return s, err
}

// hold keeps everybody else from paying the session for some seconds; 0 releases it. To ask again for the same payment is safe.
func (a *api) hold(ctx context.Context, p payment, seconds int) error {
	return a.repeat(ctx, p.Session+"/hold", map[string]any{"paymentRef": p.Ref, "seconds": seconds}, new(struct{}))
}

// settle reports how a payment ended, and whether its money must go back.
func (a *api) settle(ctx context.Context, p payment, outcome, reason string) (refund bool, err error) {
	var answer struct {
		Action string `json:"action"`
	}
	err = a.repeat(ctx, p.Session+"/settlement", map[string]any{
		"paymentRef": p.Ref, "outcome": outcome, "amountCents": p.AmountCents, "currency": p.Currency, "paidAt": p.At.UnixMilli(), "reason": reason,
	}, &answer)
	return answer.Action == "REFUND_REQUIRED", err
}

// The pauses between repeated requests. They grow, and a rail goes on for days: its journal remembers what was not answered.
const firstPause, longestPause = time.Second, time.Minute

// repeat sends a request until it is answered or refused: one whose answer was lost may have been applied, and the same one again gets the
// answer of the first.
func (a *api) repeat(ctx context.Context, path string, body, answer any) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		retryAfter, err := a.send(ctx, http.MethodPost, path, body, answer)
		if err == nil || errors.As(err, new(*refusal)) {
			return err
		}
		wait := max(pause, retryAfter)
		log.Printf("%s: %v; the same request again in %s", path, err, wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// send sends one request. After an error that is no *refusal nobody knows whether it was received: send the same one again.
func (a *api) send(ctx context.Context, method, path string, body, answer any) (retryAfter time.Duration, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.url+"/internal/v1/sessions/"+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, err
	}
	token, err := os.ReadFile(a.tokenFile) // each time: Kubernetes replaces it
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, err
	}
	if response.StatusCode == http.StatusOK {
		return 0, json.Unmarshal(text, answer)
	}
	var problem struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(text, &problem)
	if code := response.Header.Get("Error-Code"); refuses(response.StatusCode, code) {
		return 0, &refusal{code, problem.Error}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, fmt.Errorf("%s %s", response.Status, problem.Error)
}

// refuses: the API says no to this very request. Any other answer may become another one: a token that has ended (401), a right that is missing
// (403), a wrong address or a proxy in between (404 without this code), too many requests, and 5xx.
func refuses(status int, code string) bool {
	switch status {
	case http.StatusBadRequest, http.StatusConflict:
		return code != ""
	case http.StatusNotFound:
		return code == "session_not_found"
	}
	return false
}
