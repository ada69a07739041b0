package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxBody is far above the size of any event.
const maxBody = 64 << 10

// receiver is the HTTP handler. Its order of steps is what matters: the bytes as they came, the
// signature over them, and only then what they say.
type receiver struct {
	verifiers        []*standardwebhooks.Webhook
	acceptUnverified bool
	inbox            inbox
	out              io.Writer
}

func newReceiver(secrets []string, acceptUnverified bool, out io.Writer) (http.Handler, error) {
	if len(secrets) == 0 && !acceptUnverified {
		return nil, errors.New("no secret: give --secret-file or WEBHOOK_SECRET, or --accept-unverified to try it out")
	}
	r := &receiver{acceptUnverified: acceptUnverified, out: out}
	for i, secret := range secrets {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err != nil || secret == "" {
			return nil, fmt.Errorf("secret %d is not of the form whsec_<base64>", i+1)
		}
		r.verifiers = append(r.verifiers, verifier)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", r.receive)
	mux.HandleFunc("GET /events", r.list)
	return mux, nil
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	verified := r.verified(body, request.Header)
	if !verified && !r.acceptUnverified {
		http.Error(w, "no signature of ours", http.StatusUnauthorized)
		return
	}
	id := request.Header.Get(standardwebhooks.HeaderWebhookID)
	event, err := parse(id, body, verified)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Answer soon: a real receiver puts the event into a queue of its own here, and works later.
	fmt.Fprintln(r.out, r.inbox.put(event))
	w.WriteHeader(http.StatusNoContent)
}

// verified tries each secret, as there are two while one is rotated. The library also refuses times
// that are more than five minutes away, so that an event somebody overheard cannot be sent again.
func (r *receiver) verified(body []byte, header http.Header) bool {
	for _, verifier := range r.verifiers {
		if verifier.Verify(body, header) == nil {
			return true
		}
	}
	return false
}

func (r *receiver) list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(r.inbox.list()); err != nil {
		fmt.Fprintln(r.out, "could not list the events:", err)
	}
}
