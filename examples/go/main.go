// A merchant's till, and in webhook.go its webhook receiver. They need Go 1.22 or later and no modules.
//
//	go run . charge ORDER AMOUNT_CENTS            charge an order and wait for its end; exit 0 only if it is paid
//	go run . refund SESSION RETURN AMOUNT_CENTS   ask for a refund of a paid session; exit 0 unless it is rejected
//	go run . listen PORT                          receive webhooks on 127.0.0.1
//
// Environment: API_URL and API_KEY, or WEBHOOK_SECRET; TIMEOUT in seconds (default 10); LIVEMODE=false receives from test mode.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// patience bounds the retries of a request. Keep it far below the 24 hours that an Idempotency-Key is kept.
const patience = 3 * time.Minute

var (
	client = &http.Client{Timeout: 10 * time.Second}
	apiURL = strings.TrimSuffix(os.Getenv("API_URL"), "/")
)

type session struct {
	ID         string `json:"sessionId"`
	Status     string `json:"status"`
	Idempotent bool   `json:"idempotent"`
	RefundID   string `json:"refundId"` // if a refund is answered, of which Status is
}

// once sends a request and returns whatever answer there is.
func once(method, path, idempotencyKey string, body []byte) (status int, header http.Header, answer []byte, err error) {
	request, err := http.NewRequest(method, apiURL+path, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, response.Header, answer, err
}

// send sends a request until it is answered, and returns the session in the answer, and the headers.
func send(method, path, idempotencyKey string, body []byte) (s session, header http.Header) {
	giveUp := time.Now().Add(patience)
	for backoff := time.Second; ; backoff *= 2 {
		status, header, answer, err := once(method, path, idempotencyKey, body)
		pause, problem := backoff, fmt.Sprintf("%d %s, X-Request-Id %s", status, bytes.TrimSpace(answer), header.Get("X-Request-Id"))
		switch retryAfter, missing := strconv.Atoi(header.Get("Retry-After")); {
		case err != nil: // a lost connection, a timeout or half an answer: nobody knows whether the session exists
			problem = "no answer: " + err.Error()
		case status < 300:
			if err := json.Unmarshal(answer, &s); err != nil {
				log.Fatal(err)
			}
			return s, header
		case status != http.StatusTooManyRequests && status < 500:
			log.Fatal("refused: ", problem)
		case missing == nil:
			pause = time.Duration(retryAfter) * time.Second
		}
		if time.Now().Add(pause).After(giveUp) {
			log.Fatalf("gave up: %s. Run the same command again: it charges and refunds nothing twice", problem)
		}
		log.Printf("%s; next attempt in %s", problem, pause)
		time.Sleep(pause)
	}
}

func charge(order, amountCents string) {
	body := fmt.Appendf(nil, `{"orderRef": %q, "amountCents": %s}`, order, amountCents) // both were checked
	// The key is of the order, not of the request: whatever is sent again, also by a restarted till, finds the session that
	// exists and charges nothing twice. To charge again after a failed payment, use another key, such as order-1001-2.
	s, header := send("POST", "/api/v1/sessions", "order-"+order, body)
	if header.Get("Idempotency-Mismatch") == "true" {
		log.Fatalf("mismatch: order %s was charged before with another amount, as session %s", order, s.ID)
	}
	fmt.Println("session", s.ID)
	if s.Idempotent {
		fmt.Println("replay: an earlier request created it")
	}
	fmt.Println("payer's page", apiURL+"/pay/"+s.ID)
	for s.Status == "PENDING" {
		time.Sleep(2 * time.Second)
		s, _ = send("GET", "/api/v1/sessions/"+s.ID, "", nil)
	}
	fmt.Println("status", s.Status)
	if s.Status != "COMPLETED" {
		os.Exit(1)
	}
}

func refund(sessionID, name, amountCents string) {
	// The key is of the return: whatever is sent again asks for the same refund, and gets its status of now.
	r, _ := send("POST", "/api/v1/sessions/"+sessionID+"/refunds", "return-"+name, fmt.Appendf(nil, `{"amountCents": %s}`, amountCents))
	fmt.Println("refund", r.RefundID)
	fmt.Println("status", r.Status) // REQUESTED until the payment network has paid it back, which may take days: a webhook tells
	if r.Status == "REJECTED" {
		os.Exit(1)
	}
}

func main() {
	log.SetFlags(0)
	if timeout, err := time.ParseDuration(os.Getenv("TIMEOUT") + "s"); err == nil {
		client.Timeout = timeout
	}
	line := regexp.MustCompile(`^(?:charge|refund (ps_[0-9A-Za-z]+)) ([A-Za-z0-9._-]{1,200}) ([1-9][0-9]{0,8})$|^listen ([0-9]+)$`)
	switch words := line.FindStringSubmatch(strings.Join(os.Args[1:], " ")); {
	case words == nil:
		log.Print("usage: charge ORDER AMOUNT_CENTS | refund SESSION RETURN AMOUNT_CENTS | listen PORT")
		os.Exit(2)
	case words[4] != "":
		listen(words[4])
	case words[1] != "":
		refund(words[1], words[2], words[3])
	default:
		charge(words[2], words[3])
	}
}
