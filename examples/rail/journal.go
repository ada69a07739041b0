package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// The steps of a payment. Each is on the disk before the next one begins, so that a bank that was killed goes on where it was.
const (
	stepMoved     = "moved"     // the payer's money has moved; the report has no answer yet
	stepSettled   = "settled"   // the session took it
	stepOwed      = "owed"      // the session did not take it: the money goes back
	stepBack      = "back"      // the money has gone back; the confirmation has no answer yet
	stepConfirmed = "confirmed" // the merchant knows that it is back
)

// payment is the money that moves for a session.
type payment struct {
	Ref     string    `json:"ref"` // of one movement of money, never used again
	Session session   `json:"session"`
	At      time.Time `json:"at"`
	Step    string    `json:"step"`
	Problem string    `json:"problem,omitempty"` // why a person must look before it goes on
}

// journal is the bank's memory: a file with a line for each step of each payment. A real one is a database, and the steps that move money are
// transactions in it.
type journal struct {
	mu       sync.Mutex
	file     *os.File
	payments map[string]payment // by session, each at its last step
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, payments: map[string]payment{}}
	lines := json.NewDecoder(file)
	for {
		read := lines.InputOffset()
		var p payment
		switch err := lines.Decode(&p); {
		case errors.Is(err, io.EOF):
			return j, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // a crash has cut the line: its step has not started
			return j, file.Truncate(read)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		j.payments[p.Session.ID] = p
	}
}

// find is the payment of a session.
func (j *journal) find(sessionID string) (p payment, found bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, found = j.payments[sessionID]
	return p, found
}

// list has all payments, the oldest first.
func (j *journal) list() []payment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(maps.Values(j.payments), func(a, b payment) int { return a.At.Compare(b.At) })
}

// write returns when the step is on the disk. A session has one payment, however often somebody presses the button.
func (j *journal) write(p payment) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, found := j.payments[p.Session.ID]; found && other.Ref != p.Ref {
		return fmt.Errorf("the session has payment %s", other.Ref)
	}
	j.append(p)
	j.payments[p.Session.ID] = p
	return nil
}

// append ends the program if it fails: only the next start can know what is on the disk.
func (j *journal) append(p payment) {
	if err := errors.Join(json.NewEncoder(j.file).Encode(p), j.file.Sync()); err != nil {
		log.Fatalf("%v: the next start goes on with what is on the disk", err)
	}
}
