package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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

func (p payment) unfinished() bool {
	return p.Step == stepMoved || p.Step == stepOwed
}

// journal is the bank's memory: a file with a line for each step of each payment. A real one is a database, and the step that moves money is a
// transaction in it.
type journal struct {
	mu       sync.Mutex
	file     *os.File
	refs     []string // in the order of their first lines
	payments map[string]payment
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole < len(text) { // the end of a line that a crash has cut: its step has not begun
		text = text[:whole]
		if err := file.Truncate(int64(whole)); err != nil {
			return nil, err
		}
	}
	j := &journal{file: file, payments: map[string]payment{}}
	for line := range bytes.Lines(text) {
		var p payment
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		j.keep(p)
	}
	return j, nil
}

func (j *journal) keep(p payment) {
	if _, known := j.payments[p.Ref]; !known {
		j.refs = append(j.refs, p.Ref)
	}
	j.payments[p.Ref] = p
}

// write returns when the step is on the disk.
func (j *journal) write(p payment) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.keep(p)
	return nil
}

// list has all payments, the oldest first.
func (j *journal) list() []payment {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]payment, 0, len(j.refs))
	for _, ref := range j.refs {
		all = append(all, j.payments[ref])
	}
	return all
}
