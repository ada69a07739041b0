package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// The steps of a payment. Each is in the journal before the next one begins, so that a bank that was killed goes on where it was.
const (
	stepMoved   = "moved"   // the payer's money has moved; the report has no answer yet
	stepSettled = "settled" // the session took it
	stepOwed    = "owed"    // the session did not take it: the money goes back
	stepBack    = "back"    // the money has gone back
	stepCheck   = "check"   // the report was refused: a person must look
)

// payment is one attempt to pay a session.
type payment struct {
	Ref         string    `json:"ref"` // of one movement of money, never used again
	Session     string    `json:"session"`
	Merchant    string    `json:"merchant"`
	AmountCents int64     `json:"amountCents"`
	Currency    string    `json:"currency"`
	At          time.Time `json:"at"`
	Step        string    `json:"step"`
	Note        string    `json:"note,omitempty"`
}

func (p payment) unfinished() bool { return p.Step == stepMoved || p.Step == stepOwed }

// journal is the bank's memory: a file with a line for each step of each payment. A real one is a database, and the step that moves money is a
// transaction in it.
type journal struct {
	mu       sync.Mutex
	file     *os.File
	size     int64     // of its whole lines
	broken   error     // why nothing is written any more
	payments []payment // each at its last step, the oldest first
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // a crash has cut it: its step has not begun
		}
		var p payment
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		j.keep(p, line)
	}
	return j, file.Truncate(j.size)
}

func (j *journal) keep(p payment, line []byte) {
	j.size += int64(len(line))
	if i := slices.IndexFunc(j.payments, func(known payment) bool { return known.Ref == p.Ref }); i >= 0 {
		j.payments[i] = p
		return
	}
	j.payments = append(j.payments, p)
}

// paying is the payment of a session whose money is not back.
func (j *journal) paying(session string) (payment, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.find(session)
}

func (j *journal) find(session string) (payment, bool) {
	i := slices.IndexFunc(j.payments, func(p payment) bool { return p.Session == session && p.Step != stepBack })
	if i < 0 {
		return payment{}, false
	}
	return j.payments[i], true
}

var errPaying = errors.New("the session has another payment whose money is not back")

// write returns when the step is on the disk. A session has one payment at a time, however often somebody presses the button. After an error it takes no more steps until the next start, which reads what the disk really has.
func (j *journal) write(p payment) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, paying := j.find(p.Session); paying && other.Ref != p.Ref {
		return errPaying
	}
	if j.broken != nil {
		return j.broken
	}
	if _, err = j.file.WriteAt(line, j.size); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.broken = fmt.Errorf("the journal takes no more steps until a restart: %w", errors.Join(err, j.file.Truncate(j.size)))
		return j.broken
	}
	j.keep(p, line)
	return nil
}

// list has all payments, the oldest first.
func (j *journal) list() []payment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.payments)
}
