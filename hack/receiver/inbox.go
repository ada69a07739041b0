package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// kept is how many events are remembered; the oldest leave first.
const kept = 1000

// event is one event, however often it came.
type event struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Verified bool   `json:"verified"`
	// Attempts counts how often it came.
	Attempts int    `json:"attempts"`
	Body     string `json:"body"`

	session  string
	sequence int64
	status   string
}

func parse(id string, body []byte, verified bool) (event, error) {
	var read struct {
		Type string `json:"type"`
		Data struct {
			SessionID string `json:"sessionId"`
			Sequence  int64  `json:"sequence"`
			Status    string `json:"status"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &read); err != nil || id == "" || read.Type == "" {
		return event{}, errors.New("this is no event")
	}
	return event{
		ID: id, Type: read.Type, Verified: verified, Attempts: 1, Body: string(body),
		session: read.Data.SessionID, sequence: read.Data.Sequence, status: read.Data.Status,
	}, nil
}

// inbox remembers what came: an event comes at least once, and not always behind the one before it.
// The zero inbox is empty.
type inbox struct {
	mu sync.Mutex
	// events are in the order in which they came first, but those of one session by their sequence.
	events []event
}

// put takes an event in and returns the line that tells of it.
func (i *inbox) put(e event) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.IndexFunc(i.events, func(known event) bool { return known.ID == e.ID && known.Verified == e.Verified })
	if at >= 0 {
		i.events[at].Attempts++
		return describe(i.events[at], fmt.Sprintf("seen before, attempt %d", i.events[at].Attempts))
	}
	if len(i.events) == kept {
		i.events = slices.Delete(i.events, 0, 1)
	}
	newer := slices.IndexFunc(i.events, func(known event) bool {
		return known.session == e.session && known.sequence > e.sequence
	})
	if newer >= 0 {
		i.events = slices.Insert(i.events, newer, e)
		return describe(e, "late: a newer one came before it, which says how the session stands")
	}
	i.events = append(i.events, e)
	return describe(e)
}

func (i *inbox) list() []event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]event{}, i.events...) // never nil, which JSON writes as null
}

// describe is one line. What came unverified may hold anything, so it is quoted.
func describe(e event, remarks ...string) string {
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
