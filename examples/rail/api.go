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
	"net/url"
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
	err = a.call(ctx, http.MethodGet, "sessions/"+id, nil, &s)
	return s, err
}

// hold keeps everybody else from paying the session for some seconds; 0 releases it.
func (a *api) hold(ctx context.Context, p payment, seconds int) error {
	return a.call(ctx, http.MethodPost, "sessions/"+p.Session.ID+"/hold", map[string]any{"paymentRef": p.Ref, "seconds": seconds}, new(any))
}

// settle reports how a payment ended, and says whether its money must go back.
func (a *api) settle(ctx context.Context, p payment, outcome string) (refund bool, err error) {
	var answer struct {
		Action string `json:"action"`
	}
	err = a.call(ctx, http.MethodPost, "sessions/"+p.Session.ID+"/settlement", map[string]any{
		"paymentRef": p.Ref, "outcome": outcome, "amountCents": p.Session.AmountCents, "currency": p.Session.Currency, "paidAt": p.At.UnixMilli(),
	}, &answer)
	return answer.Action == "REFUND_REQUIRED", err
}

// owed is a refund that this rail owes.
type owed struct {
	SessionID  string `json:"sessionId"`
	PaymentRef string `json:"paymentRef"`
	// RefundRef is the name of this one movement of money: the API says the same one again until the refund is confirmed.
	RefundRef   string `json:"refundRef"`
	AmountCents int64  `json:"amountCents"`
	Cause       string `json:"cause"`
	MerchantID  string `json:"merchantId"`
}

// causeRequested is the cause of a refund that a merchant asks for, and that a rail may reject.
const causeRequested = "requested"

// owedPage is a part of the list of what this rail owes, the oldest first.
type owedPage struct {
	Refunds []owed `json:"refunds"`
	Cursor  string `json:"cursor"` // of the next page; empty: there is none
	// Incomplete: some could not be read now.
	Incomplete bool `json:"incomplete"`
}

// owed reads a page of the list; after is the cursor of the page before, or empty.
func (a *api) owed(ctx context.Context, after string) (page owedPage, err error) {
	path := "refunds"
	if after != "" {
		path += "?after=" + url.QueryEscape(after)
	}
	_, err = a.send(ctx, http.MethodGet, path, nil, &page)
	return page, err
}

// confirm reports that money has gone back. After an error the next list says it again.
func (a *api) confirm(ctx context.Context, o owed) error {
	_, err := a.send(ctx, http.MethodPost, "sessions/"+o.SessionID+"/refunds", map[string]any{
		"paymentRef": o.PaymentRef, "refundRef": o.RefundRef, "amountCents": o.AmountCents,
	}, new(any))
	return err
}

// reject reports that money has not gone back, and will not.
func (a *api) reject(ctx context.Context, o owed, reason string) error {
	_, err := a.send(ctx, http.MethodPost, "sessions/"+o.SessionID+"/refunds", map[string]any{
		"paymentRef": o.PaymentRef, "refundRef": o.RefundRef, "outcome": "REJECTED", "reason": reason,
	}, new(any))
	return err
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
	request, err := http.NewRequestWithContext(ctx, method, a.url+"/internal/v1/"+path, bytes.NewReader(encoded))
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
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20)) // no page of the list is longer
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
