package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// verified says whether a webhook is genuine and recent. body is the raw body: JSON that was parsed and written again has other bytes.
func verified(secret []byte, header http.Header, body []byte) bool {
	seconds, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() >= 5*time.Minute {
		return false // so that nobody can send an intercepted event again later
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", header.Get("webhook-id"), seconds, body)
	expected := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, signature := range strings.Fields(header.Get("webhook-signature")) { // two, while the secret is rotated
		if hmac.Equal([]byte(signature), expected) { // takes as long for a wrong signature as for the right one
			return true
		}
	}
	return false
}

// change is what an event says of a session.
type change struct {
	SessionID  string          `json:"sessionId"`
	OrderRef   string          `json:"orderRef"`
	Status     string          `json:"status"`
	PaymentRef string          `json:"paymentRef"`
	Payment    json.RawMessage `json:"payment"` // of a refunded payment only
	Sequence   int64           `json:"sequence"`
}

var (
	mu      sync.Mutex            // your transaction
	handled = map[string]bool{}   // by webhook-id: a table with a unique index
	latest  = map[string]change{} // by session id: a table, which also says whose order it is
)

// handle runs in one transaction. If that fails, answer 503: the event is sent again.
func handle(id string, c change) {
	mu.Lock()
	defer mu.Unlock()
	if handled[id] {
		return // events arrive at least once
	}
	handled[id] = true
	if c.Payment != nil {
		fmt.Println("note the refund of payment", c.PaymentRef)
	}
	stored := latest[c.SessionID]
	if c.Sequence <= stored.Sequence {
		return // a later event is stored already, or this is no event of a session
	}
	latest[c.SessionID] = c
	if c.Status == stored.Status {
		return
	}
	switch c.Status {
	case "COMPLETED":
		fmt.Println("deliver order", c.OrderRef)
	case "FAILED", "EXPIRED", "CANCELLED":
		fmt.Println("cancel order", c.OrderRef)
	}
}

// listen answers at once: handle only stores what is to be done.
func listen(port string) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(secret) < 24 {
		log.Fatal("WEBHOOK_SECRET is not whsec_ and the base64 of 24 to 64 bytes")
	}
	live := os.Getenv("LIVEMODE") != "false" // events of the other mode change nothing
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10)) // far above the size of any event
		if err != nil || !verified(secret, r.Header, body) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var event struct {
			Livemode bool   `json:"livemode"`
			Data     change `json:"data"`
		}
		if err := json.Unmarshal(body, &event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if event.Livemode == live {
			handle(r.Header.Get("webhook-id"), event.Data)
		}
		w.WriteHeader(http.StatusNoContent)
	})))
}
