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

// apiError is the Error-Code of a refused request: it has changed nothing, and the same request will be refused again.
type apiError string

func (e apiError) Error() string { return string(e) }

// api is the internal port of merchant-operator.
type api struct {
	url, tokenFile string
	client         *http.Client
}

// read says what is to be paid.
func (a *api) read(ctx context.Context, id string) (s session, err error) {
	err = a.call(ctx, http.MethodGet, id, nil, &s)
	return s, err
}

// hold keeps everybody else from paying the session for some seconds; 0 releases it.
func (a *api) hold(ctx context.Context, p payment, seconds int) error {
	return a.call(ctx, http.MethodPost, p.Session.ID+"/hold", map[string]any{"paymentRef": p.Ref, "seconds": seconds}, new(any))
}

// settle reports how a payment ended, and says whether its money must go back.
func (a *api) settle(ctx context.Context, p payment, outcome string) (refund bool, err error) {
	var answer struct {
		Action string `json:"action"`
	}
	err = a.call(ctx, http.MethodPost, p.Session.ID+"/settlement", map[string]any{
		"paymentRef": p.Ref, "outcome": outcome, "amountCents": p.Session.AmountCents, "currency": p.Session.Currency, "paidAt": p.At.UnixMilli(),
	}, &answer)
	return answer.Action == "REFUND_REQUIRED", err
}

// confirm reports that the money of a payment has gone back, under a name for this movement of money that is always the same.
func (a *api) confirm(ctx context.Context, p payment) error {
	return a.call(ctx, http.MethodPost, p.Session.ID+"/refunds", map[string]any{
		"paymentRef": p.Ref, "refundRef": "back-" + p.Ref, "amountCents": p.Session.AmountCents,
	}, new(any))
}

// call sends a request until it is answered or refused. One whose answer was lost may have been applied: the same one again gets the answer of
// the first. The pauses grow, and a rail goes on for days.
func (a *api) call(ctx context.Context, method, path string, body, answer any) error {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		retryAfter, err := a.send(ctx, method, path, body, answer)
		if err == nil || errors.As(err, new(apiError)) {
			return err
		}
		wait := max(pause, retryAfter)
		log.Printf("%s: %v; the same request again in %s", path, err, wait)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// send sends a request once. After any other error than an apiError the result is unknown.
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
	switch code := response.Header.Get("Error-Code"); response.StatusCode {
	case http.StatusOK:
		return 0, json.Unmarshal(text, answer)
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict:
		if code != "" && code != "path_not_found" {
			return 0, fmt.Errorf("%w: %s", apiError(code), text)
		}
	}
	// Any other answer may become another one: a token that has ended (401), a right that is missing (403), a wrong address or a proxy in between
	// (404 without a code), too many requests, and 5xx.
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, fmt.Errorf("%s %s", response.Status, text)
}
