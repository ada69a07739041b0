// Package inbox is the handler of a webhook receiver: it verifies events and remembers them, each once, those of a
// session in their order. The command receiver serves it; tests can too.
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
	// kept is how many events are remembered; the oldest leave first.
	kept = 1000
)

// Options of an inbox.
type Options struct {
	// Secrets are signing secrets, whsec_...; there are two while one is rotated.
	Secrets []string
	// AcceptUnverified takes events that no secret verifies too, and marks them.
	AcceptUnverified bool
	// Log gets a line for each event.
	Log io.Writer
	// Status returns the HTTP status of the answer, for tests of failing endpoints; nil: 204.
	Status func(*http.Request) int
}

// Inbox is an HTTP handler: POST to any path takes an event, GET /events lists the last of them. An event comes at least
// once, and not always behind the one before it.
type Inbox struct {
	http.ServeMux

	verifiers        []*standardwebhooks.Webhook
	acceptUnverified bool
	log              io.Writer
	status           func(*http.Request) int

	mu sync.Mutex
	// events are in the order in which they came first, but those of one session by their sequence.
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

// New refuses secrets that are none, and does not quote them.
func New(o Options) (*Inbox, error) {
	if len(o.Secrets) == 0 && !o.AcceptUnverified {
		return nil, errors.New("no secret: give --secret-file or WEBHOOK_SECRET, or --accept-unverified to try it out")
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

// receive does its steps in this order: the bytes as they came, the signature over them, and only then what they say.
func (i *Inbox) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	verified := i.verified(body, request.Header)
	if !verified && !i.acceptUnverified {
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
	fmt.Fprintln(i.log, i.put(event))
	w.WriteHeader(i.status(request))
}

// verified tries each secret, as there are two while one is rotated. The library also refuses times
// that are more than five minutes away, so that an event somebody overheard cannot be sent again.
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
		return Event{}, errors.New("this is no event")
	}
	return Event{
		ID: id, Type: read.Type, Verified: verified, Attempts: 1, Body: string(body),
		session: read.Data.SessionID, key: read.Data.KeyID, sequence: read.Data.Sequence, status: read.Data.Status,
	}, nil
}

// put takes an event in and returns the line that tells of it.
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
		return describe(e, "late: a newer one came before it, which says how the session stands")
	}
	i.events = append(i.events, e)
	return describe(e)
}

// Events are a copy of what is remembered.
func (i *Inbox) Events() []Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Event{}, i.events...) // never nil, which JSON writes as null
}

// describe is one line. What came unverified may hold anything, so it is quoted.
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
