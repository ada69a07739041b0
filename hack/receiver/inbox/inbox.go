// Package inbox is the HTTP handler of a webhook receiver: it verifies events and keeps them, each once, those of a session in
// order. The command receiver serves it; tests can too.
package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	// maxBody is far above the size of any event.
	maxBody = 64 << 10
	// kept is the number of events that are kept; the oldest are removed first.
	kept = 1000
)

// Options of an inbox.
type Options struct {
	// Secrets are signing secrets, whsec_...; there are two during a rotation.
	Secrets []string
	// AcceptUnverified accepts events without a valid signature too, and marks them.
	AcceptUnverified bool
	// Log gets a line for each event.
	Log io.Writer
	// Status returns the HTTP status of the answer, for tests of failing endpoints; nil: 204.
	Status func(*http.Request) int
}

// Inbox is an HTTP handler: POST to any path delivers an event, GET /events lists the last ones. Events arrive at least once, and in
// any order.
type Inbox struct {
	http.ServeMux

	verifiers        []*standardwebhooks.Webhook
	acceptUnverified bool
	log              io.Writer
	status           func(*http.Request) int

	mu sync.Mutex
	// events are in the order of their first arrival, but those of one session by their sequence.
	events []Event
}

// Event is one event, however often it came. The same id with other bytes is another one.
type Event struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Verified bool   `json:"verified"`
	// Attempts counts how often it came.
	Attempts int    `json:"attempts"`
	Body     string `json:"body"`

	session, key string
	sequence     int64
	status       string
}

// New fails if a secret is malformed; the error does not quote it.
func New(o Options) (*Inbox, error) {
	if len(o.Secrets) == 0 && !o.AcceptUnverified {
		return nil, errors.New("no secret: set --secret-file or WEBHOOK_SECRET, or --accept-unverified to try it out")
	}
	i := &Inbox{acceptUnverified: o.AcceptUnverified, log: o.Log, status: o.Status}
	if i.status == nil {
		i.status = func(*http.Request) int { return http.StatusNoContent }
	}
	for n, secret := range o.Secrets {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err != nil || secret == "" {
			return nil, fmt.Errorf("secret %d is not of the form whsec_<base64>", n+1)
		}
		i.verifiers = append(i.verifiers, verifier)
	}
	i.HandleFunc("POST /", i.receive)
	i.HandleFunc("GET /events", i.list)
	return i, nil
}

// receive reads the body unchanged, verifies its signature, and only then decodes it.
func (i *Inbox) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	verified := i.verified(body, request.Header)
	if !verified && !i.acceptUnverified {
		http.Error(w, "no valid signature", http.StatusUnauthorized)
		return
	}
	id := request.Header.Get(standardwebhooks.HeaderWebhookID)
	event, err := parse(id, body, verified)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Respond soon: a real receiver stores the event here, and processes it later.
	fmt.Fprintln(i.log, i.put(event))
	w.WriteHeader(i.status(request))
}

// verified tries each secret, because there are two during a rotation. The library also refuses timestamps that are off by more than
// five minutes, so that nobody can replay an intercepted event.
func (i *Inbox) verified(body []byte, header http.Header) bool {
	for _, verifier := range i.verifiers {
		if verifier.Verify(body, header) == nil {
			return true
		}
	}
	return false
}

func (i *Inbox) list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(i.Events()); err != nil {
		fmt.Fprintln(i.log, "could not list the events:", err)
	}
}

func parse(id string, body []byte, verified bool) (Event, error) {
	var read struct {
		Type string `json:"type"`
		Data struct {
			SessionID string `json:"sessionId"`
			KeyID     string `json:"keyId"`
			Sequence  int64  `json:"sequence"`
			Status    string `json:"status"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &read); err != nil || id == "" || read.Type == "" {
		return Event{}, errors.New("malformed event")
	}
	return Event{
		ID: id, Type: read.Type, Verified: verified, Attempts: 1, Body: string(body),
		session: read.Data.SessionID, key: read.Data.KeyID, sequence: read.Data.Sequence, status: read.Data.Status,
	}, nil
}

// put stores an event and returns the line to print.
func (i *Inbox) put(e Event) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.IndexFunc(i.events, func(known Event) bool {
		return known.ID == e.ID && known.Verified == e.Verified && known.Body == e.Body
	})
	if at >= 0 {
		i.events[at].Attempts++
		return describe(i.events[at], fmt.Sprintf("seen before, attempt %d", i.events[at].Attempts))
	}
	if len(i.events) == kept {
		i.events = slices.Delete(i.events, 0, 1)
	}
	newer := slices.IndexFunc(i.events, func(known Event) bool {
		return known.session == e.session && known.sequence > e.sequence
	})
	if newer >= 0 {
		i.events = slices.Insert(i.events, newer, e)
		return describe(e, "late: a newer event of this session has arrived before; that one has the current status")
	}
	i.events = append(i.events, e)
	return describe(e)
}

// Events returns a copy of the events.
func (i *Inbox) Events() []Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Event{}, i.events...) // never nil, which JSON writes as null
}

// describe returns one line. Unverified events are quoted, because they can contain anything.
func describe(e Event, remarks ...string) string {
	words := []string{e.Type}
	if e.session != "" {
		words = append(words, e.session, e.status, fmt.Sprintf("sequence %d", e.sequence))
	}
	words = append(words, e.ID)
	if !e.Verified {
		words = []string{fmt.Sprintf("%q", strings.Join(words, " "))}
		remarks = append([]string{"NOT VERIFIED"}, remarks...)
	}
	if len(remarks) > 0 {
		words = append(words, "("+strings.Join(remarks, "; ")+")")
	}
	return strings.Join(words, " ")
}
