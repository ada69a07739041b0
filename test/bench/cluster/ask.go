package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// answer is what is looked at of what the API answers, whatever was asked.
type answer struct {
	status   int
	replayed bool

	SessionID    string `json:"sessionId"`
	Status       string `json:"status"`
	OrderRef     string `json:"orderRef"`
	MerchantName string `json:"merchantName"`
	AmountCents  int    `json:"amountCents"`
	Idempotent   bool   `json:"idempotent"`
}

// caller asks one replica of the API.
type caller struct {
	client *http.Client
	url    string
}

func newCaller(address string) *caller {
	return &caller{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: checkers}}, url: "http://" + address}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// order is a charge.
type order struct {
	merchant merchant
	once     string // the Idempotency-Key
	ref      string
	cents    int
}

func (o order) body() string {
	return fmt.Sprintf(`{"amountCents": %d, "orderRef": %q, "taxCents": 20, "tipCents": 10}`, o.cents, o.ref)
}

func (c *caller) create(ctx context.Context, o order) (answer, error) {
	return c.ask(ctx, http.MethodPost, "/api/v1/sessions", o.merchant.key, o.body(), "Idempotency-Key", o.once, "Content-Type", "application/json")
}

func (c *caller) read(ctx context.Context, asks merchant, session string) (answer, error) {
	return c.ask(ctx, http.MethodGet, "/api/v1/sessions/"+session, asks.key, "")
}

func (c *caller) readAsPayer(ctx context.Context, session string) (answer, error) {
	return c.ask(ctx, http.MethodGet, "/api/v1/public/sessions/"+session, "", "")
}

func (c *caller) cancel(ctx context.Context, o order, session string) (answer, error) {
	return c.ask(ctx, http.MethodPost, "/api/v1/sessions/"+session+"/cancel", o.merchant.key, "")
}

// ask takes headers by name and value in turn.
func (c *caller) ask(ctx context.Context, method, path, key, body string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	got := answer{status: response.StatusCode}
	got.replayed, _ = strconv.ParseBool(response.Header.Get("Idempotent-Replayed")) // absent is false
	if err := json.Unmarshal(text, &got); err != nil {
		return got, fmt.Errorf("%s %s: %s: not JSON: %q", method, path, response.Status, text)
	}
	return got, nil
}
