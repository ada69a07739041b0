package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"sync"
	"time"
)

// entry is a line of the bank's books.
type entry struct {
	Kind string `json:"kind"`
	// Name is that of one movement of money. The books have it once: who asks for the same name again moves no more money.
	Name        string    `json:"name"`
	AmountCents int64     `json:"amountCents"`
	At          time.Time `json:"at"`
	Session     session   `json:"session"`      // what a payment was for
	Of          string    `json:"of,omitempty"` // the name of the payment whose money goes back, or whose account is closed
}

// The kinds of entries.
const (
	kindPayment = "payment"
	kindRefund  = "refund"
	kindClosed  = "closed" // the payer has closed the account that has paid
)

// Why the bank moves no money.
var (
	errPaid    = errors.New("the bank has a payment for this session")
	errUnknown = errors.New("the bank has no such payment")
	errTooMuch = errors.New("more than is left of the payment")
	errOther   = errors.New("the bank has another refund of this name")
	errClosed  = errors.New("account closed")
)

// books stand for the network behind the rail, which keeps its own records: a file with a line for each movement of money. A real network is asked
// over its API, and knows the names of movements too: "idempotency key", "reference" or "end-to-end id".
type books struct {
	mu      sync.Mutex
	file    *os.File
	entries []entry
}

func openBooks(path string) (*books, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b := &books{file: file}
	lines := json.NewDecoder(file)
	for {
		read := lines.InputOffset()
		var e entry
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return b, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // a crash has cut the line: its money has not moved
			return b, file.Truncate(read)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b.entries = append(b.entries, e)
	}
}

// charge moves the payer's money. A session has one payment, however often somebody presses the button.
func (b *books) charge(p payment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.index(func(e entry) bool { return e.Kind == kindPayment && e.Session.ID == p.Session.ID }) >= 0 {
		return errPaid
	}
	b.append(entry{Kind: kindPayment, Name: p.Ref, AmountCents: p.Session.AmountCents, At: p.At, Session: p.Session})
	return nil
}

// payBack gives money of a payment back, once for each name. A name that was used for another movement of money moves none.
func (b *books) payBack(name, payment string, cents int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	paid := b.index(func(e entry) bool { return e.Kind == kindPayment && e.Name == payment })
	earlier := b.index(func(e entry) bool { return e.Kind == kindRefund && e.Name == name })
	switch {
	case earlier >= 0 && (b.entries[earlier].Of != payment || b.entries[earlier].AmountCents != cents):
		return errOther
	case earlier >= 0:
		return nil
	case paid < 0:
		return errUnknown
	case cents > b.entries[paid].AmountCents-b.back(payment):
		return errTooMuch
	case b.closed(payment):
		return errClosed
	}
	b.append(entry{Kind: kindRefund, Name: name, AmountCents: cents, At: time.Now(), Of: payment})
	log.Printf("payment %s: %d back, refund %s", payment, cents, name)
	return nil
}

// closeAccount closes the account that has paid: it takes no money back.
func (b *books) closeAccount(payment string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.append(entry{Kind: kindClosed, Name: "closed-" + payment, At: time.Now(), Of: payment})
}

// payments returns all payments, in the order in which they were made.
func (b *books) payments() (all []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.Kind == kindPayment {
			all = append(all, payment{Ref: e.Name, Session: e.Session, At: e.At, Step: stepMoved, BackCents: b.back(e.Name), Closed: b.closed(e.Name)})
		}
	}
	return all
}

func (b *books) back(payment string) (cents int64) {
	for _, e := range b.entries {
		if e.Kind == kindRefund && e.Of == payment {
			cents += e.AmountCents
		}
	}
	return cents
}

func (b *books) closed(payment string) bool {
	return b.index(func(e entry) bool { return e.Kind == kindClosed && e.Of == payment }) >= 0
}

func (b *books) index(is func(entry) bool) int { return slices.IndexFunc(b.entries, is) }

// append returns when the entry is on the disk. If that fails it ends the program: only the next start can know what is on the disk.
func (b *books) append(e entry) {
	if err := errors.Join(json.NewEncoder(b.file).Encode(e), b.file.Sync()); err != nil {
		log.Fatalf("%v: the next start goes on with what is on the disk", err)
	}
	b.entries = append(b.entries, e)
}
